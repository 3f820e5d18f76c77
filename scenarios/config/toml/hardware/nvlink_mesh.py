"""NVLinks between the GPUs of a host as a square matrix of counts, and its checks."""

from __future__ import annotations

from collections.abc import Sequence

MOST_MESH_GPUS = 16  # meshes that were built have 8 at most; looking for rings takes longer with each


def mesh_mistake(links: Sequence[Sequence[int]], gpus_per_host: int | None) -> str | None:
    """What was expected of `links[i][j]` NVLinks from GPU i to GPU j instead; None if they are right."""
    size, rows = len(links), range(len(links))
    if gpus_per_host is not None and size < gpus_per_host:
        return f"a row for each GPU, because gpus_per_host = {gpus_per_host}"
    if not 2 <= size <= MOST_MESH_GPUS:
        return f"2 to {MOST_MESH_GPUS} rows, one for each GPU"
    for i in rows:
        if len(links[i]) != size:
            return f"{size} numbers in each row, as there are {size} rows, but row {i} has {len(links[i])}"
    for i in rows:
        if links[i][i]:
            return f"no NVLinks from GPU {i} to itself"
        for j in range(i):
            if links[i][j] != links[j][i]:
                return f"as many NVLinks from GPU {j} to GPU {i} as back"
    apart = [gpu for gpu in rows if gpu not in _joined(links)]
    return (
        f"NVLinks that join all GPUs, but none lead from GPU 0 to GPU {apart[0]}, not even over others"
        if apart
        else None
    )


def _joined(links: Sequence[Sequence[int]]) -> set[int]:
    """GPU 0 and all that can be reached from it."""
    reached, new = {0}, [0]
    while new:
        gpu = new.pop()
        found = [to for to, count in enumerate(links[gpu]) if count and to not in reached]
        reached.update(found)
        new += found
    return reached
