"""The programs `collective` and `all_to_all`, of one collective per step."""
