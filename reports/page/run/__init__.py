"""The page of one run: its sections, and the spans that its timeline shows."""
