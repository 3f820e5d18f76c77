"""Finds the plan of a model's tables that is quickest in the simulator: proposed by rules, played, priced anew.

TorchRec's estimator knows no caches, repeated ids, contention or overlap, and levels sums where phases count.
"""

from twinstep.plan_choice.choice import Choice, Planned, build_planned, choose_plan, with_simulated_plan
from twinstep.plan_choice.evaluated_plan import Tried, with_plan

__all__ = ["Choice", "Planned", "Tried", "build_planned", "choose_plan", "with_plan", "with_simulated_plan"]
