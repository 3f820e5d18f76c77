"""Any program's run as a recording, in the file of scripts' recordings: `recorder` writes, `program` plays it again.

The lines are `script.events`, the file is `script.recording`'s; a script's own recording is played by program 'script'.
"""
