"""Reads files of published times (steps, collectives, operators) and tabulates predictions of them.

The predictions are made in `twinstep/published`.
"""
