"""`python -m reports`: reads runs; `twinstep.reporting` says how."""

from scenarios.interruption import end
from twinstep.reporting.cli import main

if __name__ == "__main__":
    end(main)
