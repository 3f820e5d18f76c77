"""The memory of PowerSGD between steps, with torch's option names."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, fields

import numpy as np
import torch
from torch import Tensor

from scenarios.compression.bucket import Bucket
from scenarios.config.scenario import Compression
from scenarios.seam.group import Group

_log = logging.getLogger(__name__)
_DRAW_BOUND = 1_000_000_000  # seeds of draws are below it, as in torch 2.13


@dataclass(slots=True, eq=False)
class PowerSGDState:
    """A rank's options, in torch 2.13's order and with its defaults, and its memory between steps.

    A state pickles whole: a restored state continues with the same numbers. `process_group` is plain data and is
    pickled too; None is the world of the stream that the reduction runs on.

    `survive_zero_matrices` is not torch's, and off by default to match torch's numbers. In torch, with a rank of 1 or
    2, an all-zero matrix turns into NaN (or, with an epsilon, into zeros), and warm start keeps it so for ever. With
    the option, a column that vanishes during orthogonalisation becomes zero instead of NaN, and a collapsed column of Q
    restarts from its first draw. Other matrices give the same bits either way, apart from columns that are linearly
    dependent up to rounding.

    Raises:
        ValueError: error feedback or warm start from before the second step, or a rank below 1.
    """

    process_group: Group | None = None
    matrix_approximation_rank: int = 1
    start_powerSGD_iter: int = 1_000  # noqa: N815 (torch's own option name)
    min_compression_rate: float = 2
    use_error_feedback: bool = True
    warm_start: bool = True
    orthogonalization_epsilon: float = 0
    random_seed: int = 0
    compression_stats_logging_frequency: int = 10_000
    batch_tensors_with_same_shape: bool = False
    _: KW_ONLY
    survive_zero_matrices: bool = False
    rng: np.random.RandomState = field(init=False, repr=False)
    error_dict: dict[int, Tensor] = field(init=False, repr=False, default_factory=dict)
    p_memory_dict: dict[int, Tensor] = field(init=False, repr=False, default_factory=dict)
    q_memory_dict: dict[int, Tensor] = field(init=False, repr=False, default_factory=dict)
    reserve_dict: dict[int, Tensor] = field(init=False, repr=False, default_factory=dict)
    iter: int = field(init=False, default=0)
    total_numel_before_compression: int = field(init=False, default=0)
    total_numel_after_compression: int = field(init=False, default=0)
    next_stats_report: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.matrix_approximation_rank < 1:
            raise ValueError(f"matrix_approximation_rank = {self.matrix_approximation_rank}: expected 1 or more")
        if (self.use_error_feedback or self.warm_start) and self.start_powerSGD_iter <= 1:
            raise ValueError(
                f"start_powerSGD_iter = {self.start_powerSGD_iter}: expected 2 or more with use_error_feedback or"
                " warm_start, whose memory is by bucket, and DDP changes its buckets after the first step"
            )
        self.compression_stats_logging_frequency = max(1, self.compression_stats_logging_frequency)
        self.rng = np.random.RandomState(self.random_seed)

    @classmethod
    def from_options(cls, options: Compression, process_group: Group | None = None) -> PowerSGDState:
        """Return a fresh state with a scenario's options.

        Raises:
            ValueError: as for the state itself.
        """
        chosen = {item.name: getattr(options, item.name) for item in fields(options) if item.name != "kind"}
        return cls(process_group, **chosen)

    @property
    def group(self) -> Group | None:
        """The group to reduce over, as a rank's verbs take it."""
        return self.process_group

    @property
    def warming_up(self) -> bool:
        """True while steps are reduced without compression."""
        return self.iter < self.start_powerSGD_iter

    def advance(self, bucket: Bucket) -> None:
        """Count the step when its last bucket is done."""
        if not bucket.is_last():
            return
        self.iter += 1
        if self.iter == self.start_powerSGD_iter:
            _log.info("PowerSGD compresses from step %d on", self.iter)

    def count(self, bucket: Bucket, before_numel: int, after_numel: int) -> None:
        """Count elements of a compressed bucket, and log the totals every `compression_stats_logging_frequency`
        steps.
        """
        self.total_numel_before_compression += before_numel
        self.total_numel_after_compression += after_numel
        if bucket.is_last() and self.iter >= self.next_stats_report:
            _log.info("step %d: compression rate %g (%d elements to %d)", self.iter, *self.compression_stats())
            self.next_stats_report = self.iter + self.compression_stats_logging_frequency

    def compression_stats(self) -> tuple[float, int, int]:
        """Return elements before over elements after compression (0 if none), before, and after, without
        vanilla steps.
        """
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return before / after if after else 0.0, before, after

    def next_seed(self) -> int:
        """Return the seed of the next draw, equal on every rank, since all ranks draw in the same order."""
        return int(self.rng.randint(_DRAW_BOUND))


def draw_normal(seed: int, targets: Sequence[Tensor]) -> None:
    """Fill the tensors, in order, with N(0, 1) from a CPU generator of this seed, on any device.

    The global generators are left alone.
    """
    # A CPU generator gives ranks on any device the same numbers.
    generator = torch.Generator().manual_seed(seed)
    for target in targets:
        target.copy_(torch.randn(target.shape, generator=generator, dtype=target.dtype))
