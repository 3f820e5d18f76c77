"""Checks across the keys of the table `model` on optimizers and precision."""

from __future__ import annotations

from typing import Any

from scenarios.config.toml.look import Look
from scenarios.config.toml.reading import expected_phrase
from scenarios.config.toml.sections import Document
from scenarios.workloads.step_tables import COMPRESSION, DENSE_PARALLEL

OF_MOMENTS = ("beta1", "beta2", "weight_decay")
# The optimizer of torch.optim for the dense part of a model whose tables have one of these.
DENSE_OF = {"adam": "Adam", "partial_rowwise_adam": "Adam"}


def check_precision(model: Any, document: Document, look: Look) -> None:
    """Add what does not fit together in optimizers and precision."""
    _check_optimizer(model, look)
    parallel = DENSE_PARALLEL.of(document)
    if parallel is not None and parallel.kind in ("fsdp", "hsdp"):
        reason = f"with dense_parallel.kind = '{parallel.kind}': each rank would check its own shards only"
        look.refuse(("model",), model, ("loss_scaling",), reason)
    compression = COMPRESSION.of(document)
    if model.loss_scaling is not None and compression is not None and compression.kind not in (None, "none"):
        reason = "what a step leaves out of scaled gradients is added to the next one's, of another scale"
        phrase = f"'none' with model.loss_scaling = {model.loss_scaling!r}: {reason}"
        look.mistakes.add(("compression", "kind"), phrase)
    flops = document.cluster.gpu.flops if document.cluster and document.cluster.gpu else None
    if model.dtype not in (None, "float32"):
        reason = f"with dtype = '{model.dtype}'"
        look.refuse(("model",), model, ("autocast",), reason)
        if model.tf32:
            look.mistakes.add(("model", "tf32"), f"no tf32 {reason}")
        if model.dtype == "float16":
            look.refuse(("model",), model, ("loss_scaling",), f"{reason}: GradScaler takes gradients of float32 only")
    elif model.autocast is not None and flops is not None and getattr(flops, model.autocast) is None:
        phrase = f"{expected_phrase(type(flops), model.autocast)}, because model.autocast = '{model.autocast}'"
        look.mistakes.missing(("cluster", "gpu", "flops", model.autocast), phrase)


def _check_optimizer(model: Any, look: Look) -> None:
    section, path = model.optimizer, ("model", "optimizer")
    kind = "sgd" if section is None else section.kind or "sgd"
    if section is not None:
        if kind in ("sgd", "adagrad"):
            look.refuse(path, section, OF_MOMENTS, f"with kind = '{kind}'")
        if kind == "sgd":
            look.refuse(path, section, ("eps",), "with kind = 'sgd'")
    if kind in ("sgd", "adagrad") or model.dense_optimizer is not None:
        return
    wanted = "the dense part's own, such as {kind = 'Adam', lr = 0.001}, because "
    if kind not in DENSE_OF:
        look.mistakes.missing(("model", "dense_optimizer"), f"{wanted}torch.optim has none for '{kind}'")
    elif model.dtype == "float16":
        reason = f"torch.optim.{DENSE_OF[kind]} divides by 0 in model.dtype = 'float16'"
        look.mistakes.missing(("model", "dense_optimizer"), wanted + reason)
