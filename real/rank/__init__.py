"""The backend of a real rank: how calls begin (`backend`), streams (`lanes`, `cuda`), what is noted (`journal`).

`call_checker` compares what members are about to call. How a library makes a call is in `real/libraries`.
"""
