"""Measures single operators on a GPU and writes the table that corrects the laws.

`ranges` and `shapes` say which operators, `making` makes each, `measuring` and `timers` time it,
`judging` says how good the table is. The laws themselves are in `sim/operators`.
"""
