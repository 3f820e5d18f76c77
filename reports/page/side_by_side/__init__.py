"""The page of several runs side by side."""
