"""Describes a traced call as an operator of `seam/operations`: shapes and dtypes in the form that laws read."""
