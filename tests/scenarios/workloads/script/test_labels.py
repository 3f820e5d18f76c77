"""The labels of a script's work, with what each part is for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scenarios.seam.roles import IDS, OPTIMIZER
from scenarios.workloads.recording.events.work import Label
from scenarios.workloads.script.process.labels import Labels


class BaseSparseFeaturesDist(nn.Module):
    """It has the name of TorchRec's exchange of ids, and a part."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(2, 2)

    def forward(self, values: Tensor) -> Tensor:
        return self.part(values)


class Decoder(nn.Module):
    """It has an exchange, and a module whose name is that of an optimizer's method."""

    def __init__(self) -> None:
        super().__init__()
        self.exchanges = nn.ModuleList([BaseSparseFeaturesDist()])
        self.step = nn.Linear(2, 2)

    def forward(self, values: Tensor) -> Tensor:
        return self.step(self.exchanges[0](values))


def test_exchanges_and_optimizers_have_roles_and_their_gradients_those_of_the_forward_pass() -> None:
    told: list[Label] = []
    labels, decoder = Labels(told.append), Decoder()
    optimizer = torch.optim.Adam(decoder.parameters())
    decoder(torch.ones(1, 2, requires_grad=True)).sum().backward()
    optimizer.step()
    labels.end()
    assert {label.text: label.role for label in told} == {
        "Decoder": "",
        "exchanges.0": IDS,
        "exchanges.0.part": IDS,
        "exchanges.0.part.backward": IDS,
        "step": "",
        "step.backward": "",
        "script": "",
        "Adam.step": OPTIMIZER,
    }
