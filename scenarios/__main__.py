"""`python -m scenarios`: checks and lists scenario files, as implemented in `twinstep.scenario_files`."""

from scenarios.interruption import end
from twinstep.scenario_files import main

if __name__ == "__main__":
    end(main)
