"""Operators as pure data: shapes, dtypes and strides, which a kernel carries for the laws of `sim/operators`."""
