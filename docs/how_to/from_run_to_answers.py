"""From a run to three answers, in pandas.

`python docs/how_to/from_run_to_answers.py RUN`, or cell by cell in an editor that knows `# %%`. RUN is a folder of
`python -m sim` or `python -m real`, of a program that computes and exchanges. docs/reference/runs.md has the columns.
"""

# %% The run, and its steady steps: complete, and what most of them are
import sys

import reports

run = reports.load(sys.argv[1])
steady = run.steps.query("steady")
numbers, step_ms = steady["step"].tolist(), steady["step_ns"].median() / 1e6

# %% 1. What does computation not hide, and costs most?
sent = run.operations_of(numbers).query("part == 'communication'")
for row in sent.nlargest(3, "exposed_ns").itertuples():
    print(f"{row.label or row.kind}: {row.exposed_ns / 1e6:.3f} of {row.mean_ns / 1e6:.3f} ms per step are not hidden.")

# %% 2. Which rank holds the others up, and by how much?
ranks = run.ranks_of(numbers).set_index("rank")
busy_ms = ranks["compute_ns"] / ranks["steps"] / 1e6
late_ms = busy_ms.max() - busy_ms.median()
print(f"Rank {busy_ms.idxmax()} computes {busy_ms.max():.3f} ms per step, {late_ms:.3f} ms more than the median rank.")

# %% 3. What would a step take at best if the most uneven computation took every rank what it takes the median one?
work = run.spans[run.spans["step"].isin(numbers)].query("kind == 'compute'").eval("took_ms = (end_ns - start_ns) / 1e6")
each_ms = work.groupby(["label", "rank"])["took_ms"].sum().div(len(numbers)).groupby("label")
uneven_ms = (each_ms.max() - each_ms.median()).nlargest(1)
best_ms = step_ms - uneven_ms.iloc[0]
print(f"With {uneven_ms.index[0]} even, a step would take {best_ms:.3f} ms at best instead of {step_ms:.3f} ms.")
