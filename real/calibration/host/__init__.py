"""Measures what eager PyTorch takes on the host of a GPU: small snippets, and the prices of their parts (`fit`).

Which snippets there are is in `twinstep/calibration/snippets.py`.
"""
