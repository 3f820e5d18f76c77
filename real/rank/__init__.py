"""The backend of a real rank: how calls begin (`backend`), streams (`lanes`, `cuda`), the record of a run (`journal`).

`call_checker` compares the calls that members are about to make. How a library makes a call is in `real/libraries`.
"""
