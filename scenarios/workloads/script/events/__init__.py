"""Events of a script's rank: what it asks and computes, each a frozen value that is a line of a recording; no torch.

Whoever plays events answers them, by their types (`script/program`, `recording/single_rank`, `real/script/link`).
"""
