"""What reading a scenario needs of a program: its tables, checks across them, and how it is built.

Declaring a program loads no torch; the program itself is imported when it is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from scenarios.config.keys import conditional
from scenarios.config.scenario import Scenario, Workload
from scenarios.config.toml.derive import freeze, section_of
from scenarios.config.toml.look import Look
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.reading import expected_phrase
from scenarios.config.toml.sections import Document, RunSection
from scenarios.config.toml.tree import KeyPath
from scenarios.workloads.effort import Effort

V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScenarioTable(Generic[V]):
    """A top-level table of a scenario file that one or several programs read.

    Attributes:
        values: the dataclass whose fields declare the table's keys.
        section: the pydantic model that reads the table; derived from `values` by default.
        check: `check(section, document, look)` adds what does not fit together in the table.
        about: the table's line in lists of keys.
        field: the workload's field for the table's value, by default of the table's key.
        make: makes that value, if it is more than what the table says.
    """

    key: str
    about: str
    values: Callable[..., V]
    section: Any = None
    field: str = ""
    make: Callable[[Document, Mistakes], V | None] | None = None
    check: Callable[[Any, Document, Look], None] = lambda section, document, look: None

    def __post_init__(self) -> None:
        if self.section is None:
            object.__setattr__(self, "section", section_of(self.values))
        object.__setattr__(self, "field", self.field or self.key)

    def of(self, document: Document) -> Any:
        """Return the table's sound values; None where the file has none."""
        return getattr(document, self.key, None)

    def or_empty(self, document: Document) -> Any:
        """Return the table's sound values; an empty section if the file lacks the table."""
        return self.of(document) or self.section()

    def build(self, document: Document, **given: object) -> V:
        """Build the table's frozen value; `given` are fields that other tables decide."""
        built: V = freeze(self.values, self.of(document), **given)
        return built

    def check_in(self, document: Document, look: Look) -> None:
        """Check the table, if the file has it."""
        section = self.of(document)
        if section is not None:
            if conditional(getattr(self.section, "declared_by", None)):
                look.refuse_elsewhere((self.key,), section)
            self.check(section, document, look)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProgramSpec:
    """A program that a scenario can name.

    Attributes:
        factory: "module:function"; called with the scenario, it returns the `Program`.
        workload: the `Workload`, whose fields have the values of the tables.
        name: the value of `program` in the file, which names this value.
        summary: its description in a few words.
        needs: the required table; None if there is none.
        may: optional tables that it reads.
        payload: the default of `run.payload`.
        batch_size: whether `run.batch_size` is required, refused, or without effect.
        check: adds what does not fit between the program's tables and the rest of the file.
        why_each: why every rank must be simulated; "" if host classes suffice.
        effort: the cost of simulating a step of every rank, at most.
        names: the key of a value that names further user code, as `program` does; () without one.
    """

    factory: str
    workload: Callable[..., Workload] = Workload
    name: str = ""
    summary: str = ""
    needs: ScenarioTable[Any] | None = None
    may: tuple[ScenarioTable[Any], ...] = ()
    payload: Callable[[Document], Literal["values", "sizes"]] = lambda document: "sizes"
    batch_size: Literal["required", "refused", "unused"] = "unused"
    check: Callable[[Document, Look], None] = lambda document, look: None
    why_each: Callable[[Document], str] = lambda document: ""
    effort: Callable[[Scenario], Effort] = lambda scenario: Effort()
    names: KeyPath = ()

    @property
    def tables(self) -> tuple[ScenarioTable[Any], ...]:
        """All tables that the program reads."""
        return self.may if self.needs is None else (self.needs, *self.may)

    def build(self, document: Document, mistakes: Mistakes) -> Workload:
        """Build the workload of a document without mistakes."""
        return self.workload(
            **{one.field: one.make(document, mistakes) if one.make else one.build(document) for one in self.tables}
        )

    def check_run(self, document: Document, look: Look) -> None:
        """Add to the document's mistakes a batch size that is missing or has no effect, and what `check` finds."""
        run, reason = document.run or RunSection(), f"with program = '{self.name}'"
        if self.batch_size == "required" and run.batch_size is None:
            phrase = expected_phrase(RunSection, "batch_size")
            if document.run is None:
                look.mistakes.missing(("run",), f"batch_size = {phrase}")
            else:
                look.mistakes.missing(("run", "batch_size"), phrase)
        if self.batch_size == "refused":
            look.refuse(("run",), run, ("batch_size",), reason)
        self.check(document, look)


def check_dtype(dtype: str | None, key: str, document: Document, look: Look) -> None:
    """Add a missing peak rate of the GPU for the dtype in which the table `key` computes."""
    flops = document.cluster.gpu.flops if document.cluster and document.cluster.gpu else None
    if dtype not in (None, "float32") and flops is not None and getattr(flops, str(dtype)) is None:
        phrase = f"{expected_phrase(type(flops), str(dtype))}, because {key}.dtype = '{dtype}'"
        look.mistakes.missing(("cluster", "gpu", "flops", str(dtype)), phrase)
