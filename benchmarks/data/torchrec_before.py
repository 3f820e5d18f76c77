"""TorchRec's benchmark of its pipelines as it was before April 2026 (70f66501): what modules give stays to a batch's end.

The contexts of pipelines kept it, though nothing read it there.
"""

import runpy

from torchrec.distributed.train_pipeline.runtime_forwards import PipelinedForward

call = PipelinedForward.__call__


def kept(forward, *args, **kwargs):
    """Call the module of a pipeline, and have the batch's context keep what it gives."""
    found = call(forward, *args, **kwargs)
    vars(forward.get_context()).setdefault("given", []).append(found)
    return found


PipelinedForward.__call__ = kept
runpy.run_module("torchrec.distributed.benchmark.benchmark_train_pipeline", run_name="__main__", alter_sys=True)
