"""Recordings of ranks' operations, of scripts or other programs, and the program 'recording', which simulates one.

`events` are the lines, `recorded` the file's values, `file` reads and checks it, `lines` writes and parses lines.
`recorder` notes a program's run, `tasks` and `program` play it; a script's recording is noted and played by `script`.
"""
