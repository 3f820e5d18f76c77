"""Translate the names of GPU kernels, torch's operators and collectives in a profiler's traces to this project's."""

from __future__ import annotations

import re
from functools import lru_cache

from scenarios.seam.traits import TRAITS

# The number of names whose kind is cached: a trace has far fewer distinct names than kernels.
_KEPT = 8192
_BACKWARD = re.compile(r"^(?:autograd::engine::evaluate_function: )?(\w+?)Backward\w*$")
# Kernels that communicate: NCCL's and RCCL's (ncclDevKernel_..., ncclKernel_..., ncclSymkDevKernel_...), MSCCL's,
# those of torch's symmetric memory, NVSHMEM's, all-reduces of vLLM, FlashInfer and TensorRT-LLM, and DeepEP's exchanges
# of tokens.
_COMMUNICATES = re.compile(
    r"nccl\w*kernel|msccl(pp)?\w*kernel|\bnvshmem|\brccl|\bmultimem_|\b(one|two)_?shot_?all_?reduce"
    r"|cross_device_reduce|allreduce_fusion|\bdeep_ep::(?!layout)|symmetric_?memory|symm_mem",
    re.IGNORECASE,
)
# Names that mean a collective without containing its letters, or with those of another collective.
_MEANT = (
    (re.compile(r"cross_device_reduce", re.IGNORECASE), "all_reduce"),
    (re.compile(r"\bdeep_ep::.*(dispatch|combine)", re.IGNORECASE), "all_to_all_single"),
    (re.compile(r"put_signal", re.IGNORECASE), "send"),
    (re.compile(r"wait_signal", re.IGNORECASE), "recv"),
)
SEND_RECV = re.compile(r"nccl\w*kernel\w*sendrecv", re.IGNORECASE)
# Words in annotations and operators around a launch: torch's own, or any name with a whole collective in it.
_SAID = re.compile(
    r"^(?:nccl|gloo|c10d|ucc|_c10d_functional|_dtensor)\b:{1,2}(?P<own>\w+)"
    r"|(?P<any>all_?reduce|all_?to_?all|all_?gather|reduce_?scatter|broadcast)(?![a-z])",
    re.IGNORECASE,
)
# Names of GPU kernels, and of torch's operators on a CPU, by kind; the first match counts.
_ATTENTION = re.compile(
    r"flash_?(fwd|bwd|attn|attention)|pytorch_flash|\bflash::|flash_[fb]prop|fmha|sdpa|mem_?eff|(?<!no_)attention"
    r"|\battn_(fwd|bwd)|_attn_(fwd|bwd)|compute_dot_do_o|convert_dq_to"
)
_KERNEL_WORDS = (
    ("elementwise", r"triton_poi"),
    ("reduction", r"triton_(red|per)"),
    ("optimizer", r"multi_?tensor_?apply|fused_?(adam|sgd|lamb|adagrad)|(adam|sgd|lamb|adagrad)\w*_kernel$"),
    ("embedding_update", r"embedding\w*(backward|grad)|compute_grad_weight|rowwise_adagrad|krn_partial"),
    ("embedding_lookup", r"embedding|indexselect|index_select"),
    ("bucketize", r"bucketize|searchsorted"),
    ("qr", r"geqr|orgqr|ormqr|larf[bgt]|householder"),
    (
        "gemm",
        r"(?<!fb)gemm|gemv|cutlass|cublas|xmma|nvjet|wgrad|dgrad|splitk|winograd|convolve|cijk_|triton_(tem|mm)|\bmma_",
    ),
    ("permute", r"permute|transpose|nchwtonhwc|nhwctonchw"),
    ("reduction", r"reduce|reduction|softmax|norm|scan|cudnn::bn_|gammabeta"),
    ("elementwise", r"elementwise|catarray|copy|fill|memset|dropout|relu"),
)
_OPERATOR_WORDS = (
    ("attention", r"_?(scaled_dot_product|flash|efficient|cudnn|fused_sdp)\w*(attention|sdp)"),
    ("optimizer", r"_?fused_(adam|adamw|sgd|adagrad)|_foreach"),
    ("embedding_update", r"\w*embedding\w*backward"),
    ("embedding_lookup", r"\w*embedding|index_select"),
    ("bucketize", r"(\w+_)?bucketize|searchsorted"),
    ("qr", r"(linalg_)?qr|geqrf|orgqr|linalg_householder"),
    ("gemm", r"(add|b|badd)?mm$|addm[mv]|mv$|matmul|linear$|linear_backward|(\w+_)?conv|einsum|mkldnn_linear"),
    ("permute", r"(\w+_)?permute|transpose|t$"),
    ("reduction", r"sum|mean|amax|amin|max$|min$|argm|norm$|var|std|cumsum|_?(log_?)?softmax|native\w*norm|\w*_norm"),
    ("elementwise", r"(add|sub|mul|div|rsub|neg|exp|log|sqrt|rsqrt|pow|abs|copy|fill|zero|relu|sigmoid|tanh|gelu"
                    r"|silu|clamp|clamp_min|threshold|threshold_backward|where|cat|to|_to_copy|clone|contiguous|dropout"
                    r"|nan_to_num|ones|zeros|ones_like|zeros_like|accumulategrad|binary_cross_entropy\w*|mse_loss\w*)$"),
)  # fmt: skip


@lru_cache(_KEPT)
def kernel_kind(name: str) -> str:
    """Return the kind of a GPU kernel by its name, one of `scenarios.seam.kernel.Kernel`'s; "other" if unknown."""
    plain = name.lower().replace("(anonymous namespace)::", "")
    head = re.split(r"[<(]", plain, maxsplit=1)[0]  # a template's arguments are weaker evidence than its own name
    if _ATTENTION.search(plain) and not re.search(r"triton_(poi|red|per)|elementwise|reduce_kernel", head):
        return "attention"  # first: attention kernels are CUTLASS's and cuDNN's, and their names contain gemm words
    return next((kind for part in (head, plain) for kind, words in _KERNEL_WORDS if re.search(words, part)), "other")


@lru_cache(_KEPT)
def operator_kind(name: str) -> str:
    """Return the kind of a torch operator by its name; a backward function has the kind of its forward function."""
    found = _BACKWARD.match(name)
    plain = (found[1] if found else name.rsplit(": ", 1)[-1].rsplit("::", 1)[-1]).lower().rstrip("_")
    kind = next((kind for kind, words in _OPERATOR_WORDS if re.match(words, plain)), "other")
    return "embedding_update" if found and kind == "embedding_lookup" else kind


@lru_cache(_KEPT)
def communicates(kernel: str) -> bool:
    """Return whether a GPU kernel moves data between GPUs, by its name."""
    return bool(_COMMUNICATES.search(kernel))


def verb_around(name: str) -> str:
    """Return the verb named by an annotation or operator around a launch, "" if none."""
    found = _SAID.search(name)
    kind = collective_kind(found["own"] or found["any"]) if found else "collective"
    return "" if kind == "collective" else kind


def collective_kind(name: str) -> str:
    """Return the verb of a collective by torch's or a kernel's name for it; "collective" if unknown.

    NCCL runs an all-to-all as sends and receives in one kernel, so SendRecv alone is taken for an all-to-all.
    """
    meant = next((verb for pattern, verb in _MEANT if pattern.search(name)), "")
    if meant:
        return meant
    letters = re.sub(r"[^a-z]", "", name.lower())
    return next((verb for verb, known in TRAITS.items() if any(one in letters for one in known.letters)), "collective")
