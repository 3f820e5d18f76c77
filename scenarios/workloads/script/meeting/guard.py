"""Guard for processes that a script starts and that are no simulated ranks: forbids process groups there; no torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn


def own_ranks(line: str) -> str:
    """Return the error message for a script's line that starts ranks in an unsupported way."""
    return (
        f"{line}: starts ranks of its own: expected torch.multiprocessing.spawn, Processes of one function of which the"
        " i-th is given i, torch's elastic_launch, or a script as torchrun starts it, which is one rank itself"
    )


NO_RPC = "torch.distributed.rpc is not simulated: expected collectives, or send and recv"


class Guarded(NamedTuple):
    """A process's function, run such that the process cannot create a process group."""

    function: Callable[..., Any] | None
    line: str

    def __call__(self, *given: Any, **more: Any) -> Any:
        """Run the function with init_process_group and init_rpc disabled.

        Raises:
            RuntimeError: the function calls init_process_group or init_rpc.
        """
        _replace("torch.distributed", "init_process_group", self._refuse)
        _replace("torch.distributed.rpc", "init_rpc", self._refuse_rpc)
        return None if self.function is None else self.function(*given, **more)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(own_ranks(self.line))

    def _refuse_rpc(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(f"{self.line}: {NO_RPC}")


def _replace(module_name: str, function_name: str, by: Callable[..., NoReturn]) -> None:
    """Replace a function of a loaded module under every name that loaded modules have for it."""
    usual = getattr(sys.modules.get(module_name), function_name, None)
    for module in list(sys.modules.values()) if usual is not None else ():
        for name, found in list(getattr(module, "__dict__", {}).items()):
            if found is usual:
                setattr(module, name, by)
