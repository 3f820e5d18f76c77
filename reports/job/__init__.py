"""A job of days: its prediction (`folder`), a real job beside its prediction (`real_job`), and how to `load` either."""
