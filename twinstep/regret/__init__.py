"""The command `regret`: measures a study's points, to see whether the one predicted best is the best."""
