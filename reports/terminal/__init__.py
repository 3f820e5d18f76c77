"""What is printed: tables of a run, sentences, and how a table fits into the terminal's width (`text`)."""
