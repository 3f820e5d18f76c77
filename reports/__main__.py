"""The command `python -m reports`; `twinstep.reporting` defines its subcommands."""

from scenarios.interruption import end
from twinstep.reporting.cli import main

if __name__ == "__main__":
    end(main)
