"""The sections on operations: layers of the dense part, times, hidden communication, bandwidth, kernels on GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from reports.analysis.by_role import whats
from reports.analysis.operations import fold_layers
from reports.sections import model
from reports.sections.run.headline import kernel_shares
from reports.sections.run.subject import RunView
from reports.terminal import text
from reports.terminal.rows import cells, operation_names

# Columns of the table of operations; computations leave those of communication blank.
_OPERATION_COLUMNS: model.FrameColumns = {
    "name": "operation",
    "kind": model.Column("kind", model.PAGE),
    "calls_per_step": "calls",
    "mean_ns": model.Column("mean", model.PAGE),
    "median_ns": "median",
    "max_ns": "max",
    "bytes_sent": "payload",
    "transfer_ns": model.Column("exposed transfer", model.PAGE),
    "wait_ns": model.Column("waiting", model.PAGE),
    "wait_share": model.Column("waiting", model.TERMINAL),
    "hidden_share": "hidden",
    "algbw_bytes_per_s": model.Column("algbw", model.PAGE),
    "busbw_bytes_per_s": model.Column("busbw", model.PAGE),
}
_OF_COMMUNICATION = 6  # the first column that only communication has
_LAYERS_NOTE = "layers.* x 16: repeated layers that take about as long, summed."
_LAYERS_SHOWN, _LEAST_LAYER = 16, 0.001  # rows, and the least share of a step of one
_LAYERS_SUM = (
    "Predictions divide a computation among its layers like the times of their operators alone on an idle GPU; a fused"
    " operator belongs to the layer of its first one. Launching: the GPU waits for the host."
)
_NO_LAYERS = "Only predictions of programs that run modules know their layers."
_BANDWIDTH_NOTE = "algbw and busbw as in nccl-tests, from the time at which a call's last rank enters."
# The difference from which NCCL's own formula is compared with the link model.
DIFFERS = 0.05
_FORMULAS_SHOWN, _BANDWIDTHS_SHOWN = 10, 8


def _operations(view: RunView) -> Iterator[model.ReportTable]:
    frame = fold_layers(view.run.operations_of(view.kept_steps))
    frame = frame.sort_values(["median_ns", "label", "kind"], ascending=[False, True, True])
    frame = frame.assign(name=operation_names(frame), transfer_ns=frame["exposed_ns"] - frame["wait_ns"])

    def rows(most: int) -> list[list[str]]:
        shown = frame.head(most)
        blank = [""] * (len(_OPERATION_COLUMNS) - _OF_COMMUNICATION)
        return [
            row if part == "communication" else [*row[:_OF_COMMUNICATION], *blank]
            for row, part in zip(cells(shown, list(_OPERATION_COLUMNS)), shown["part"], strict=True)
        ]

    raw = {name: float(frame[name].sum()) for name in ("mean_ns", "exposed_ns", "wait_ns", "hidden_ns")}
    yield model.ReportTable(
        f"Operations per rank and step, {view.which}",
        list(_OPERATION_COLUMNS.values()),
        rows,
        left=2,
        note=f"Times are per rank and step, over {view.which}. {_LAYERS_NOTE} {_BANDWIDTH_NOTE}",
        folded=True,
        raw=raw,
        name="All operations",
        most=model.Most(16, 200),
        count=len(frame),
        others="shorter ones",
        file="steady_operations.csv",
    )


def _bandwidths(view: RunView) -> Iterator[model.ReportTable]:
    frame = view.run.operations_of(view.kept_steps)
    frame = frame[frame["busbw_bytes_per_s"].notna().to_numpy(bool)]
    frame = frame.sort_values("size_bytes", ascending=False, kind="stable")
    columns = {"name": "operation", "members": "ranks", "size_bytes": "size", "moving_ns": "transfer"}
    columns |= {"algbw_bytes_per_s": "algbw", "busbw_bytes_per_s": "busbw"}
    title = f"Bandwidth of collectives, from the entry of the last rank, {text.steps(view.kept_steps)}"
    most = model.Most(_BANDWIDTHS_SHOWN, _BANDWIDTHS_SHOWN)
    if len(frame):
        yield model.table_of(title, _name_rows(frame), columns, most=most, others="smaller ones")


def _formulas(view: RunView) -> Iterator[model.ReportTable]:
    frame = view.run.formulas_of(view.kept_steps)
    frame = frame[frame["difference"].abs() > DIFFERS]
    frame = frame.sort_values("difference", key=abs, ascending=False, kind="stable")
    columns = {"name": "operation", "calls": "calls", "median_ns": "link model", "formula_ns": "formula"}
    columns["difference"] = "difference"
    title = f"NCCL's own formula where it differs by over 5 %, {view.which}"
    most = model.Most(_FORMULAS_SHOWN, _FORMULAS_SHOWN)
    if len(frame):
        shown = _name_rows(frame).assign(calls=frame["calls"].map("{:,}".format))
        yield model.table_of(title, shown, columns, most=most, file="formulas.csv")


def _name_rows(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(name=operation_names(frame))


OPERATIONS = model.ReportSection(
    "hidden",
    "Hidden and exposed",
    [model.figure("run.times.draw_hidden"), _operations, model.on_terminal(_bandwidths), _formulas],
    absent=RunView.why_absent,
    data=lambda view: {"operations": view.run.operations, "formulas": view.run.formulas},
    folded=True,
)


def communication(view: RunView) -> pd.DataFrame:
    """Return the communication of a step by class, the most time first, summed over the operations of a class.

    `bytes_sent`, `mean_ns` and its parts `transfer_ns`, `wait_ns` (both exposed) and `hidden_ns` are of the mean rank.
    """
    frame = view.run.operations_of(view.kept_steps) if view.kept_steps else view.run.operations.iloc[:0]
    frame = frame[(frame["part"] == "communication").to_numpy(bool)]
    frame = frame.assign(what=whats(frame.assign(kernel="")), transfer_ns=frame["exposed_ns"] - frame["wait_ns"])
    added = frame.groupby("what", sort=True)[["bytes_sent", "mean_ns", "transfer_ns", "wait_ns", "hidden_ns"]].sum(
        min_count=1
    )
    return added.sort_values("mean_ns", ascending=False, kind="stable").reset_index()


def _communication(view: RunView) -> Iterator[model.ReportTable]:
    columns = {"what": "what", "bytes_sent": "payload", "mean_ns": "takes", "transfer_ns": "transfer"}
    columns |= {"wait_ns": "waiting", "hidden_ns": "hidden"}
    note = "Means over the ranks that have each operation. Transfer and waiting are exposed; hidden overlaps compute."
    title = f"Communication by kind, per rank and step, {view.which}"
    yield model.table_of(title, communication(view), columns, note=note)


COMMUNICATION = model.ReportSection(
    "communication",
    "Communication",
    [_communication],
    absent=lambda view: view.why_absent() or ("" if len(communication(view)) else "No operation communicates."),
    absent_in=model.PAGE,
    data=lambda view: {"communication": communication(view)},
    folded=True,
)


def layers(view: RunView) -> pd.DataFrame:
    """Return the time of each layer per rank and step, the most first: `forward_ns`, `backward_ns`, and `launch_ns`.

    `both_ns` is of both passes, without `launch_ns`; `share` is of the step, `launch_ns` included.
    """
    steps = view.run.steps
    whole_ns = float(steps.loc[steps["step"].isin(view.kept_steps).to_numpy(bool), "step_ns"].mean())
    times = view.run.layer_times_of(view.kept_steps)
    phases = {f"{name}_ns": times["time_ns"].where(times["phase"] == name, 0.0) for name in ("forward", "backward")}
    summed = times.assign(layer=times["name"], **phases).groupby("layer", sort=False)[[*phases, "launch_ns"]].sum()
    both_ns = summed[list(phases)].sum(axis=1)
    found = summed.assign(both_ns=both_ns, share=(both_ns + summed["launch_ns"]) / whole_ns).reset_index()
    return found.sort_values("both_ns", ascending=False, kind="stable", ignore_index=True)


def shown_layers(view: RunView) -> pd.DataFrame:
    """Return `layers` without those that take next to nothing."""
    found = layers(view)
    return found[(found["share"] >= _LEAST_LAYER).to_numpy(bool)]


def _layers(view: RunView) -> Iterator[model.ReportTable]:
    found, whole = shown_layers(view), layers(view)[["both_ns", "launch_ns"]].sum()
    columns = {"layer": "layer", "forward_ns": "forward", "backward_ns": "backward", "both_ns": "both"}
    if whole["launch_ns"]:
        columns["launch_ns"] = "launching"
    yield model.table_of(
        f"Layers of modules, {text.duration(float(whole.sum()))} per rank and step, {view.which}",
        found,
        {**columns, "share": "of the step"},
        note=f"{_LAYERS_NOTE} {_LAYERS_SUM}",
        raw={"sum": float(whole.sum())},
        most=model.Most(_LAYERS_SHOWN, 200),
        others="shorter ones",
    )


LAYERS = model.ReportSection(
    "layers",
    "Layers",
    [model.figure("run.times.draw_layers"), _layers],
    absent=lambda view: view.why_absent() or ("" if len(view.run.layers) else _NO_LAYERS),
    absent_in=model.PAGE,
    data=lambda view: {"layers": layers(view)},
    folded=True,
)

_KERNELS_SHOWN = 20


def _kernels(view: RunView) -> Iterator[model.ReportTable]:
    """Yield the kernels that take most of a step, so that a GPU's owner sees which prediction to check."""
    frame = view.run.kernels
    said = ", ".join(f"{name} {text.percent(share)}" for name, share in (kernel_shares(view.run) or {}).items())
    note = (
        "Kernels of the first simulated rank, means over its steps without the first. Times are those of an idle GPU,"
        f" without launches; shares are of a step's kernel time. Shares by pricing: {said}."
    )
    shown = frame.assign(time_ns=1e3 * frame["predicted_us"], calls_per_step=frame["count"])
    columns = {"operator": "operator", "shapes": "shapes", "priced_by": "priced by"}
    if len(times := view.run.layer_times_of(view.kept_steps)):
        names = times.sort_values("share", ascending=False, kind="stable").groupby(["operator", "shapes"])["name"]
        where = names.agg(lambda each: ", ".join(dict.fromkeys(each))).to_dict()
        keys = zip(frame["operator"], frame["shapes"], strict=True)
        shown, columns["layers"] = shown.assign(layers=[where.get(key, "") for key in keys]), "layers"
    columns |= {"time_ns": "time of one", "calls_per_step": "calls", "share": "share"}
    title = f"The {_KERNELS_SHOWN} most expensive kernels" if len(frame) > _KERNELS_SHOWN else "Kernels"
    raw, most = (
        {"us": float((frame["predicted_us"] * frame["count"]).sum())},
        model.Most(_KERNELS_SHOWN, _KERNELS_SHOWN),
    )
    yield model.table_of(
        title, shown, columns, left=len(columns) - 3, note=note, raw=raw, most=most, file="kernels.csv"
    )


KERNELS = model.ReportSection(
    "kernels",
    "Kernels",
    [model.on_page(_kernels)],
    absent=lambda view: "" if len(view.run.kernels) else "Only a prediction on GPUs lists its kernels.",
    data=lambda view: {"kernels": view.run.kernels, "kernels_priced_by": kernel_shares(view.run)},
    folded=True,
)
