"""The kernels of attention: a block of queries against a block of keys, folded or dense."""

from __future__ import annotations

import math
import string
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.kernels.coordinates import Skipping
from combinators.merging.monoid import Monoid
from combinators.monoids import AttentionState, attention_output
from combinators.numerics.hiding import hide

Axes = tuple[str, ...]


@dataclass(frozen=True)
class Scores:
    """Scaled, biased and masked dot products of a block of queries and keys.

    Attributes:
      query, key, value: axes of the operands; the last one of `query` and `key` is contracted.
      mask, bias: axes of the optional operands.
      keys: the folded dimension.
      queries: the dimension compared with `keys` where `causal`.
      causal: whether a query sees only keys at or before its coordinate.
      scale: of the dot products; None is `1 / sqrt(d)`.
    """

    query: Axes
    key: Axes
    value: Axes
    keys: str
    queries: str | None
    mask: Axes | None = None
    bias: Axes | None = None
    causal: bool = False
    scale: float | None = None

    def stands_for(self, kernel: Any) -> bool | None:
        """Whether another kernel of attention has the same fields; None of what is no such kernel."""
        if not isinstance(kernel, Scores):
            return None
        return all(getattr(self, each.name, None) == getattr(kernel, each.name) for each in fields(kernel))

    @property
    def rows(self) -> Axes:
        """The axes that rows of scores have: all of the query's but the contracted one.

        Those shared with the keys come first, as matrix products give them: the scores are never transposed.
        """
        return scores_rows(self.query, self.key)

    @property
    def output(self) -> Axes:
        """The axes of the result."""
        return (*self.query[:-1], self.value[-1])

    @property
    def hidden(self) -> float:
        """The score of what the mask hides."""
        return -math.inf

    @property
    def shared(self) -> Axes:
        """The axes that queries and keys share: batches, the last of them the heads."""
        return tuple(name for name in self.query[:-1] if name in self.key)

    @property
    def lines(self) -> Axes:
        """The axes that queries alone have and that make the rows of one head; where causal, the one compared."""
        own = tuple(name for name in self.query[:-1] if name not in self.key)
        return own if self.queries is None else (self.queries,)

    @property
    def groups(self) -> Axes:
        """The other axes of the queries: they share heads of the keys."""
        return tuple(name for name in self.query[:-1] if name not in self.key and name not in self.lines)

    def _scores(self, blocks: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        query, key, value, *rest = blocks
        scale = self.scale if self.scale is not None else query.shape[-1] ** -0.5
        wide = query.dtype == state_dtype(query, key)
        if wide:
            # Queries are smaller than scores, which then go from the product straight into their maximum.
            query = query * scale
        scores = self._einsum(query, self.query, key, self.key, (*self.rows, self.keys))
        if not wide:
            # Scores of half-precision operands have the digits that scaled operands would lose.
            scores = scores * scale
        optional = iter(rest)
        mask = self._spread(next(optional), self.mask) if self.mask is not None else None
        if self.bias is not None:
            scores = scores + self._spread(next(optional), self.bias)
        if self.causal:
            assert self.queries is not None
            at, of = next(optional), next(optional)
            seen = self._spread(at[:, None] >= of[None, :], (self.queries, self.keys))
            mask = seen if mask is None else mask & seen
        return scores, mask, value

    def _weights(self, blocks: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        """The maximum of every row of scores, their exponentials relative to it, and the values."""
        scores, mask, value = self._scores(blocks)
        if mask is not None:
            scores = self._hide(scores, mask, self.hidden, blocks[0])
        maximum = jax.lax.stop_gradient(jnp.max(scores, axis=-1, initial=-jnp.inf))
        # A row without any visible key, which a mask or a bias of -inf makes, has the maximum -inf and must not turn
        # into NaN; without them there is none.
        sees_all = mask is None and self.bias is None
        at = maximum if sees_all else jnp.where(jnp.isfinite(maximum), maximum, 0)
        return maximum, jnp.exp(scores - at[..., None]), value

    def _hide(self, scores: Any, seen: Any, value: float, query: Any) -> Any:
        """Scores or weights, and a value in the place of those that are not seen."""
        if not query.shape[-1]:
            return jnp.where(seen, scores, value)
        return hide(scores, seen, value, self._spread(query[..., 0], self.query[:-1]))

    def _spread(self, block: Any, axes: Axes) -> Any:
        """Bring a block to the axes of the scores, with size 1 where it has none."""
        full = (*self.rows, self.keys)
        order = sorted(range(len(axes)), key=lambda i: full.index(axes[i]))
        moved = jnp.transpose(block, order)
        return jnp.expand_dims(moved, [i for i, name in enumerate(full) if name not in axes])

    def _einsum(self, left: Any, left_axes: Axes, right: Any, right_axes: Axes, out: Axes) -> Any:
        letters = dict(zip(dict.fromkeys((*left_axes, *right_axes, *out)), string.ascii_letters, strict=False))
        a, b, c = ("".join(letters[name] for name in axes) for axes in (left_axes, right_axes, out))
        return _wide_product(f"{a},{b}->{c}", left, right)

    def _weighted(self, weights: Any, value: Any, out: Axes) -> Any:
        return self._einsum(weights.astype(value.dtype), (*self.rows, self.keys), value, self.value, out)


@dataclass(frozen=True)
class AttentionKernel(Scores, Skipping):
    """A block of queries against a block of keys: `(maximum, sum of weights, weighted sum of values)`."""

    merged_by: ClassVar[tuple[Monoid, ...]] = (AttentionState,)

    def __call__(self, *blocks: Any) -> Any:
        """State block with axes `rows`, `rows`, `rows + value`."""
        if not self.causal or not all(block.size for block in blocks[-2:]):
            return self._state(*blocks)
        # Coordinates ascend: where the last query lies before the first key, nothing is seen and nothing computed.
        at, of = blocks[-2:]
        return jax.lax.cond(at[-1] >= of[0], self._state, self._unseen, *blocks)

    @property
    def unskipped(self) -> Callable[..., Any]:
        """The same, which computes blocks of which nothing is seen as well."""
        return self._state

    def _unseen(self, *blocks: Any) -> Any:
        """The state of queries that see none of the keys."""
        like = jax.eval_shape(self._state, *blocks)
        return tuple(
            jnp.full_like(blocks[0], value, leaf.dtype, leaf.shape)
            for value, leaf in zip((-jnp.inf, 0, 0), like, strict=True)
        )

    def _state(self, *blocks: Any) -> Any:
        maximum, weights, value = self._weights(blocks)
        return maximum, jnp.sum(weights, axis=-1), self._weighted(weights, value, (*self.rows, self.value[-1]))


@dataclass(frozen=True)
class DenseAttention(Scores):
    """The whole softmax at once, for uncut keys."""

    def __call__(self, *blocks: Any) -> Any:
        """The result block."""
        if self.mask is None and self.bias is None:
            # Every query sees the first key, and XLA knows this form of softmax as one fused kernel.
            scores, seen, value = self._scores(blocks)
            if scores.shape[-1]:
                weights = jax.nn.softmax(scores if seen is None else self._hide(scores, seen, -jnp.inf, blocks[0]))
                return self._weighted(weights, value, self.output).astype(value.dtype)
        _, weights, value = self._weights(blocks)
        total = jnp.sum(weights, axis=-1)
        total = jnp.transpose(total, [self.rows.index(name) for name in self.output[:-1]])[..., None]
        # The output is divided, not the weights: it is smaller.
        return self.divided(self._weighted(weights, value, self.output), total).astype(value.dtype)

    def divided(self, out: Any, total: Any) -> Any:
        """Weighted sums over sums of weights; 0 where nothing is seen."""
        return out / jnp.where(total > 0, total, 1)


@dataclass(frozen=True)
class RoundedOutput:
    """Present the state of half-precision attention, which is kept in float32, in the dtype of the values."""

    dtype: str

    def __call__(self, state: Any) -> Any:
        """The output of one query."""
        return attention_output(state).astype(self.dtype)


def scores_rows(query: Axes, key: Axes) -> Axes:
    """The order of the axes of rows of scores and of the state: those that queries and keys share come first."""
    rows = query[:-1]
    return (*(name for name in rows if name in key), *(name for name in rows if name not in key))


def state_dtype(*operands: Any) -> Any:
    """The dtype that sums are kept in: that of the operands, at least float32."""
    return jnp.promote_types(jnp.result_type(*operands), jnp.float32)


def _wide_product(subscripts: str, left: Any, right: Any) -> Any:
    """`jnp.einsum` of two operands into the type that sums are kept in."""
    if left.dtype == right.dtype and state_dtype(left, right) != left.dtype:
        return _of_halves(subscripts, left, right)
    return _product(subscripts, left, right)


def _product(subscripts: str, left: Any, right: Any) -> Any:
    return jnp.einsum(subscripts, left, right, preferred_element_type=state_dtype(left, right))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _of_halves(subscripts: str, left: Any, right: Any) -> Any:
    """A product of half precision in float32, whose derivatives are products of half precision.

    Its cotangent is float32; taken as it comes, JAX converts the other operand to float32 as well, and GPUs multiply at
    half the rate and write matrices of twice the bytes. Rounded first, as fused kernels of attention do, both operands
    are of one type, and sums are kept in float32 inside of the products.
    """
    return _product(subscripts, left, right)


@_of_halves.defjvp
def _(subscripts: str, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (left, right), (change, other) = primals, tangents
    value = _of_halves(subscripts, left, right)
    # Transposed, the conversion rounds the cotangent.
    moved = jnp.einsum(subscripts, change, right).astype(value.dtype)
    return value, moved + jnp.einsum(subscripts, left, other).astype(value.dtype)
