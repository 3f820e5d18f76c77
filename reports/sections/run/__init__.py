"""The sections of the report of one run, and the words that the terminal, the page and JSON share."""
