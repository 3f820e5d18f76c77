"""Changes of a program itself, each declared once: its conditions, its effect on kernels and host, how to make it.

`--what-if` and a prediction's first screen simulate these changes.
"""
