"""The program `collective`: one collective a step."""
