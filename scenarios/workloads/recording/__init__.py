"""What a rank issues as a recording, of a script or of any other program, and the program 'recording', which plays one.

`events` are the lines, `recorded` the file's values, `file` reads and checks it, `lines` writes and parses lines.
`recorder` notes a program's run, `tasks` and `program` play it; a script's recording is noted and played by `script`.
"""
