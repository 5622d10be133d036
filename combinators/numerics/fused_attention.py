"""The fused attention of JAX, cuDNN's on CUDA, as a dense kernel: where all keys are in the block."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.numerics.attention_kernel import Axes, Scores
from combinators.settings import remembered


@dataclass(frozen=True)
class FusedAttention(Scores):
    """`jax.nn.dot_product_attention` for any order of axes.

    Attributes:
      implementation: `"cudnn"`, or `"xla"`, which runs anywhere and is no faster than our own kernels.
    """

    implementation: str = "cudnn"

    @property
    def heads(self) -> Axes:
        """The heads of the queries: those of the keys, and for each the queries that share it."""
        return (*self.shared[-1:], *self.groups)

    def __call__(self, *blocks: Any) -> Any:
        """The result block."""
        query, key, value, *rest = blocks
        optional = iter(rest)
        mask = next(optional) if self.mask is not None else None
        bias = next(optional) if self.bias is not None else None
        sizes = self._sizes(blocks)
        scores = None if bias is None else self._four(bias, self.bias or (), sizes, all_heads=True)
        seen = None if mask is None else self._four(mask, self.mask or (), sizes)
        if scores is not None:
            # A bias of -inf hides a key as a mask does; the sum of two large negative numbers would not.
            visible = scores > -jnp.inf
            scores, seen = jnp.where(visible, scores, 0), visible if seen is None else seen & visible
        fused: Any = jax.nn.dot_product_attention
        out = fused(
            self._sequence(query, self.query, self.lines, self.heads, sizes),
            self._sequence(key, self.key, (self.keys,), self.shared[-1:], sizes),
            self._sequence(value, self.value, (self.keys,), self.shared[-1:], sizes),
            scores,
            seen,
            scale=self.scale,
            is_causal=self.causal,
            implementation=self.implementation,
        )
        if seen is not None:
            out = jnp.where(self._sees_any(seen), out, 0)
        order = (*self.shared[:-1], *self.lines, *self.heads, self.output[-1])
        full = out.reshape([out.shape[-1] if name == order[-1] else sizes[name] for name in order])
        return jnp.transpose(full, [order.index(name) for name in self.output])

    def takes(self, *blocks: Any) -> bool:
        """Whether the axes have the form that the fused kernel knows, and it runs forwards and backwards here.

        Its limits (head size, dtypes, sequence lengths, the library itself) are asked, not repeated.
        """
        inner = {*self.shared, self.keys}
        if {*self.key[:-1]} != inner or {*self.value[:-1]} != inner or blocks[0].shape[-1] != blocks[2].shape[-1]:
            return False
        if self.bias is not None and {*self.shared[:-1]} & {*self.bias, *(self.mask or ())}:
            # cuDNN gives no gradient for a bias that differs between batches, and does not say so.
            return False
        if any(size == 0 for block in blocks for size in block.shape):
            return False
        return _runs(self, tuple(jax.ShapeDtypeStruct(block.shape, block.dtype) for block in blocks))

    def _sizes(self, blocks: Sequence[Any]) -> dict[str, int]:
        axes = [self.query[:-1], self.key[:-1]]
        return {
            n: s for names, block in zip(axes, blocks, strict=False) for n, s in zip(names, block.shape, strict=False)
        }

    def _sequence(self, block: Any, axes: Axes, rows: Axes, heads: Axes, sizes: Mapping[str, int]) -> Any:
        """Batch, sequence, heads, features."""
        order = (*self.shared[:-1], *rows, *heads, axes[-1])
        moved = jnp.transpose(block, [axes.index(name) for name in order])
        groups = (self.shared[:-1], rows, heads)
        return moved.reshape(*(math.prod(sizes[name] for name in group) for group in groups), block.shape[-1])

    def _four(self, block: Any, axes: Axes, sizes: Mapping[str, int], all_heads: bool = False) -> Any:
        """Batch and heads (1 where the block has none of them), rows, keys."""
        groups = (self.shared[:-1], self.heads, self.lines, (self.keys,))
        kept = [
            group if number > 1 or (number == 1 and all_heads) or set(group) & set(axes) else ()
            for number, group in enumerate(groups)
        ]
        full = [name for group in kept for name in group]
        moved = jnp.transpose(block, sorted(range(len(axes)), key=lambda i: full.index(axes[i])))
        spread = jnp.expand_dims(moved, [i for i, name in enumerate(full) if name not in axes])
        whole = jnp.broadcast_to(spread, [sizes[name] for name in full])
        return whole.reshape([math.prod(sizes[name] for name in group) for group in kept])

    def _sees_any(self, seen: Any) -> Any:
        """Whether a row sees a key at all, as batch, rows, heads, 1: a fused softmax of nothing is no zero."""
        if self.causal:
            rows, keys = seen.shape[-2:]
            seen = seen & (jnp.arange(rows)[:, None] >= jnp.arange(keys)[None, :])
        return jnp.transpose(jnp.any(seen, axis=-1), (0, 2, 1))[..., None]


@dataclass(frozen=True)
class FitsFused:
    """The condition of a `FusedAttention`."""

    kernel: FusedAttention

    def __call__(self, *blocks: Any) -> bool:
        """Whether it takes blocks of these types."""
        return self.kernel.takes(*blocks)


@remembered(maxsize=256)
def _runs(kernel: FusedAttention, blocks: tuple[jax.ShapeDtypeStruct, ...]) -> bool:
    smooth = [i for i, block in enumerate(blocks) if jnp.issubdtype(block.dtype, jnp.inexact)]

    def gradient(*arrays: Any) -> Any:
        def run(*chosen: Any) -> Any:
            given = dict(zip(smooth, chosen, strict=True))
            return kernel(*(given.get(i, array) for i, array in enumerate(arrays)))

        out, pull = jax.vjp(run, *(arrays[i] for i in smooth))
        return pull(out)

    try:
        jax.eval_shape(kernel, *blocks)
        jax.eval_shape(gradient, *blocks)
    except (
        ImportError,
        NotImplementedError,
        RuntimeError,
        ValueError,
    ):  # a library is missing; it takes no such blocks
        return False
    return True
