"""Measured operators: their surfaces, which of them is nearest to an operator, and the correction that follows."""
