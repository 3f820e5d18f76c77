"""How ids are drawn, and how many of them are expected to differ."""
