"""The rows that fbgemm's operators look up and train, and its names of optimizers, without importing torch.

Used by notes before a run, and by the code that makes rows. Facts are those of fbgemm 1.6 to 1.8.
"""

from __future__ import annotations

from collections.abc import Iterable

from scenarios.config.scenario import Optimizer

# What fbgemm's operators are compiled for (genscript/jinja_environment.py, dispatch_macros.h): rows are read 4 elements
# at a time, and have one of two dtypes.
DIM_STEP, LARGEST_DIM = 4, 1024
ROW_DTYPES = ("float32", "float16")
FOUND_DTYPES = (*ROW_DTYPES, "bfloat16")
# The optimizers that `dlrm` supports, by their names in fbgemm's OptimType.
OPTIMIZERS = {
    "EXACT_SGD": Optimizer(kind="sgd"),
    "SGD": Optimizer(kind="sgd"),
    "EXACT_ADAGRAD": Optimizer(kind="adagrad", state="element"),
    "EXACT_ROWWISE_ADAGRAD": Optimizer(kind="adagrad", state="row"),
    "ADAM": Optimizer(kind="adam"),
    "PARTIAL_ROWWISE_ADAM": Optimizer(kind="partial_rowwise_adam"),
    "LAMB": Optimizer(kind="lamb"),
    "PARTIAL_ROWWISE_LAMB": Optimizer(kind="partial_rowwise_lamb"),
}


def optim_type(optimizer: Optimizer) -> str:
    """Return the name of an optimizer in fbgemm's OptimType."""
    found = [name for name, one in OPTIMIZERS.items() if one.kind == optimizer.kind]
    return min(found, key=lambda name: OPTIMIZERS[name].state != optimizer.state)


def takes(dims: Iterable[int], dtype: str, travels_as: str) -> bool:
    """Return whether fbgemm looks up rows of these dims and dtype, and returns them in the dtype that is sent."""
    fits = all(dim % DIM_STEP == 0 and dim <= LARGEST_DIM for dim in dims)
    return fits and dtype in ROW_DTYPES and travels_as in FOUND_DTYPES


def why_not_trained(optimizer: Optimizer, device_type: str) -> str:
    """Return why fbgemm's fused updates are not used with this optimizer on such a device; "" if they are.

    LAMB divides a row's norm by that of its change (genscript/optimizers.py): 0 by 0 if a row's first gradient is 0 and
    no weight decay moves it, as for all rows in a first step with overflowing scaled losses.
    """
    if device_type == "cpu" and optimizer.has_moments:
        return f"fbgemm has no '{optimizer.kind}' for CPUs"
    if optimizer.kind in ("lamb", "partial_rowwise_lamb") and not optimizer.weight_decay:
        return f"fbgemm's '{optimizer.kind}' without weight_decay makes NaN of a row whose first gradient is 0"
    return ""
