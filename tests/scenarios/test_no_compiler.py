"""Simulations run without torch's compiler, which stays whole for those who ask for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BEGIN = """
import sys, torch
from scenarios.no_compiler import without_compiler
def is_loaded():
    return "torch._dynamo.eval_frame" in sys.modules
def compiles():
    return torch.compile(lambda x: x + 1, backend="eager", fullgraph=True)(torch.ones(2)).tolist() == [2, 2]
"""


def python(text: str) -> None:
    """Run text in a Python of its own, which has not loaded the compiler."""
    done = subprocess.run([sys.executable, "-c", BEGIN + text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_prediction_and_an_optimizer_load_no_compiler_and_leave_it_whole(tmp_path: Path):
    python(f"""
from sim.__main__ import main
assert main(["criteo_small_2x2", "--steps", "1", "--out", {str(tmp_path / "run")!r}, "--quiet"]) == 0
assert not is_loaded() and "torch._dynamo" not in sys.modules
from contextlib import nullcontext
from torch._subclasses.fake_tensor import FakeTensorMode
for mode in (nullcontext, FakeTensorMode):
    with without_compiler(), mode():
        layer = torch.nn.Linear(2, 2)
        optimizer = torch.optim.Adam(layer.parameters())
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert not is_loaded() and "torch._dynamo" not in sys.modules and "torch._dynamo.source" not in sys.modules
assert "__dynamo_disable" not in vars(torch.optim.Optimizer.add_param_group.__wrapped__)
assert compiles() and is_loaded()
with without_compiler():
    assert compiles()
""")


def test_who_asks_for_the_compiler_gets_torchs_own():
    uses = [
        "assert compiles()",
        "from torch._dynamo.decorators import disable",  # a module that must not run twice
        "assert torch.compiler.disable()(compiles)._torchdynamo_disable",  # an answer that is kept
    ]
    python(f"""
import os
for use in {uses}:
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, use
    else:
        break
else:
    sys.exit()
with without_compiler():
    torch.optim.SGD([torch.ones(1)])
    exec(use)
    assert is_loaded()
    for name, module in list(sys.modules.items()):
        if name.startswith("torch._dynamo"):
            assert module.__spec__.name == name
            assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
assert not any(type(finder).__name__ == "_Submodules" for finder in sys.meta_path)
assert compiles()
""")
