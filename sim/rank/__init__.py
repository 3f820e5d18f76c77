"""The simulator's backend: a rank's operations, where calls meet, and what each step is made of."""
