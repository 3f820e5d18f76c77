"""Terminal output: tables of a run, sentences, and fitting tables into the terminal's width (`text`)."""
