"""A description of fused scaled dot-product attention, as its law takes it; needs no GPU."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.seam.operations.operation import DescribedOperator, Words, back


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(DescribedOperator):
    """An attention of [batch, heads, queries, head_size] to [batch, key_heads, keys, head_size], or its backward pass.

    `key_heads` below `heads` means grouped-query attention. A query with `window` sees itself and `window` keys before
    it. `is_serving`: kernels of an inference server, for prompts of a ragged batch whose keys and values are also
    written to a paged cache; else `torch.nn.functional.scaled_dot_product_attention`.
    """

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    head_size: int
    dtype: str
    is_causal: bool = False
    window: int | None = None
    is_backward: bool = False
    is_serving: bool = False

    def words(self) -> Words:
        shapes = f"{self.batch}x{self.heads}x{self.queries}x{self.head_size}"
        shapes += (
            f" on {self.key_heads}x{self.keys}" if (self.key_heads, self.keys) != (self.heads, self.queries) else ""
        )
        shapes += f", {self.dtype}{', causal' if self.is_causal else ''}"
        shapes += "" if self.window is None else f", window {self.window}"
        return back("scaled_dot_product_attention", self.is_backward), shapes
