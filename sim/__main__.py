"""`python -m sim`: predicts steps, plays studies; `twinstep.prediction` says how."""

from scenarios.interruption import end
from twinstep.prediction import main

if __name__ == "__main__":
    end(main)
