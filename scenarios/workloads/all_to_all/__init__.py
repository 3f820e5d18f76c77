"""The program `all_to_all`: one exchange a step."""
