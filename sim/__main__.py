"""`python -m sim`: predict steps and run studies; `twinstep.prediction` has the commands."""

from scenarios.interruption import end
from twinstep.prediction import main

if __name__ == "__main__":
    end(main)
