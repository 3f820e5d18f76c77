"""Command `python -m real calibrate`: measures this machine and writes its profile; its probes and fits are in
`real`.
"""
