"""Command `python -m real regret`: measures a study's points, to see whether the predicted best point is the best."""
