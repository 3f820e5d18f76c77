"""Names of GPU kernels, of torch's operators and of collectives, as a profiler's traces have them, in our words."""

from __future__ import annotations

import re

_BACKWARD = re.compile(r"^(?:autograd::engine::evaluate_function: )?(\w+?)Backward\w*$")
# Letters of a collective's name, in the order in which they are looked for.
_COLLECTIVES = {
    "allreducecoalesced": "all_reduce_coalesced",
    "allgatherintotensorcoalesced": "all_gather_into_tensor_coalesced",
    "reducescattertensorcoalesced": "reduce_scatter_tensor_coalesced",
    "monitoredbarrier": "monitored_barrier",
    "allreduce": "all_reduce",
    "alltoall": "all_to_all_single",
    "allgather": "all_gather_into_tensor",
    "reducescatter": "reduce_scatter_tensor",
    "broadcast": "broadcast",
    "sendrecv": "all_to_all_single",
    "send": "send",
    "recv": "recv",
    "barrier": "barrier",
    "gather": "gather",
    "scatter": "scatter",
    "reduce": "reduce",
}

# Names of GPU kernels, and of torch's operators on a CPU, by kind; the first that fits counts.
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


def kernel_kind(name: str) -> str:
    """The kind of a GPU kernel by its name, as `scenarios.seam.rank.Kernel` has them; "other" where it tells none."""
    plain = name.lower().replace("(anonymous namespace)::", "")
    head = re.split(r"[<(]", plain, maxsplit=1)[0]  # what a template was made with says less than its own name
    return next((kind for part in (head, plain) for kind, words in _KERNEL_WORDS if re.search(words, part)), "other")


def operator_kind(name: str) -> str:
    """The kind of an operator of torch by its name; a backward function's is that of its forward one."""
    found = _BACKWARD.match(name)
    plain = (found[1] if found else name.rsplit(": ", 1)[-1].rsplit("::", 1)[-1]).lower().rstrip("_")
    kind = next((kind for kind, words in _OPERATOR_WORDS if re.match(words, plain)), "other")
    return "embedding_update" if found and kind == "embedding_lookup" else kind


def collective_kind(name: str) -> str:
    """The verb of a collective by torch's or NCCL's name for it; "collective" where that tells none.

    NCCL plays an all-to-all as sends and receives in one kernel, so that SendRecv alone is taken for one.
    """
    letters = re.sub(r"[^a-z]", "", name.lower())
    return next((verb for word, verb in _COLLECTIVES.items() if word in letters), "collective")
