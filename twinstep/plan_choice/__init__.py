"""Find the plan of a model's tables that is fastest in the simulator: propose by rules, simulate, update costs.

TorchRec's estimator knows no caches, repeated ids, contention or overlap, and balances sums where phases count.
"""

from twinstep.plan_choice.choice import Choice, Planned, build_planned, choose_plan, with_simulated_plan
from twinstep.plan_choice.evaluated_plan import Tried, with_plan

__all__ = ["Choice", "Planned", "Tried", "build_planned", "choose_plan", "with_plan", "with_simulated_plan"]
