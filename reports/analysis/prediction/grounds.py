"""Split a predicted step's time by how it was priced: measured tables, laws, rooflines, the host, links."""

from __future__ import annotations

from reports.analysis.by_role import HOST
from reports.analysis.frames import COMPUTE
from reports.analysis.step_breakdown import typical_step
from reports.run import Run

TABLES, LAWS, ROOFLINES, MEASURED = "table", "law", "roofline", "measured"
HOSTS, WITHIN, BETWEEN = "host", "within", "between"
# Kernels by how the simulator prices them: measured one by one, corrected by measured ones near them, by a law, by a
# roofline; then work of the host, then collectives within one host and between hosts.
GROUNDS = (MEASURED, TABLES, LAWS, ROOFLINES, HOSTS, WITHIN, BETWEEN)


def grounds(run: Run) -> dict[str, float] | None:
    """Return the share of a steady step's critical path by each of `GROUNDS`; shares add up to 1.

    Kernels with measured times (`run.compute_times`) and operators of a user's own table count as measured. None is
    returned where no spans are left, or no kernels were priced, as on CPUs.
    """
    step = typical_step(run)
    if step is None or not len(run.kernels):
        return None
    path = run.critical_path_of(step)
    part, share = path["part"].to_numpy(object), path["share"].to_numpy(float)
    launching = share * (path["launching_ns"] / path["duration_ns"].clip(lower=1)).to_numpy(float)
    computed, hosts = part == COMPUTE, part == HOST
    found = dict.fromkeys(GROUNDS, 0.0)
    found[HOSTS] = float(launching.sum() + share[hosts].sum())
    sent = float((share - launching)[~computed & ~hosts].sum())
    found[WITHIN if run.outline.hosts == 1 else BETWEEN] = sent
    kernels = run.kernels.groupby("priced_by")["share"].sum()
    whole = float(kernels.sum()) or 1.0
    own = float((share - launching)[computed].sum())
    for by, of in kernels.items():
        found[str(by)] += own * float(of) / whole
    return found
