"""A job of days: the folder of its prediction (`folder`), and a real job beside its prediction (`real_job`)."""
