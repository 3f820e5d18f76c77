"""The simulated world: predicts when everything that a program does would happen."""
