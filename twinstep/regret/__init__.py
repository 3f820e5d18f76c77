"""The command `regret`: measures a study's points, to see whether the predicted best point is the best."""
