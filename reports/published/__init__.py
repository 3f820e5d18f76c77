"""Read files of published times (steps, collectives, operators) and tabulate predictions of them.

`twinstep/published` computes the predictions.
"""
