"""torch.cuda.comm where one GPU is all there is, as nn.DataParallel has it with one; several are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.cuda import comm


def of_one_gpu() -> None:
    """Have the functions of torch.cuda.comm give back tensors of one GPU; those of several stay as they are."""
    refused: dict[str, Callable[..., Any]] = {name: getattr(comm, name) for name in comm.__all__}
    single: dict[str, Callable[..., Any]] = {
        "broadcast": lambda tensor, devices: (tensor.to(devices[0]),),
        "broadcast_coalesced": lambda tensors, devices, *_: [[each.to(devices[0]) for each in tensors]],
        "scatter": lambda tensor, devices, *_: (tensor.to(devices[0]),),
        "gather": lambda tensors, *_: tensors[0],
        "reduce_add": lambda tensors, *_: tensors[0],
        "reduce_add_coalesced": lambda inputs, *_: inputs[0],
    }
    # Which argument has an element for each GPU.
    of_gpus = {"broadcast": 1, "broadcast_coalesced": 1, "scatter": 1}

    def patch(name: str) -> None:
        def either(*args: Any, **more: Any) -> Any:
            place = of_gpus.get(name, 0)
            is_single = len(args) > place and len(args[place]) == 1
            return (single if is_single else refused)[name](*args, **more)

        setattr(comm, name, either)
        setattr(torch.nn.parallel.comm, name, either)

    for name in single:
        patch(name)
    core: Any = torch._C
    core._broadcast_coalesced = lambda tensors, devices, _: comm.broadcast_coalesced(tensors, devices)
