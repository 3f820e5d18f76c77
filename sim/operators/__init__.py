"""The laws: what an operator takes on a GPU, from its shapes and the GPU's figures. One file a family.

Measured operators that correct a law are in `tables`.
"""
