"""`python -m scenarios`: checks and lists scenario files; `twinstep.scenario_files` says how."""

from scenarios.interruption import end
from twinstep.scenario_files import main

if __name__ == "__main__":
    end(main)
