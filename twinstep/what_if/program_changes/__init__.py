"""Changes of a program itself, each declared once: when it applies, what it makes of kernels and host, how it is made.

`--what-if` and a prediction's first screen simulate these changes.
"""
