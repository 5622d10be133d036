"""Attention: a fold over the keys with the attention state."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from combinators.errors import CompositionError, SignatureError, message
from combinators.monoids import AttentionState, attention_output
from combinators.operation import Operation
from combinators.program import Program
from combinators.signature import Signature
from combinators.trace import trace_of
from combinators.value import Value

Axes = tuple[str, ...]


@dataclass(frozen=True)
class _Scores:
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

    @property
    def rows(self) -> Axes:
        """The axes of one row of scores: all of the query's but the contracted one."""
        return self.query[:-1]

    def _scores(self, blocks: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        query, key, value, *rest = blocks
        scores = self._einsum(query, self.query, key, self.key, (*self.rows, self.keys))
        scores = scores * (self.scale if self.scale is not None else query.shape[-1] ** -0.5)
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

    def _spread(self, block: Any, axes: Axes) -> Any:
        """Bring a block to the axes of the scores, with size 1 where it has none."""
        full = (*self.rows, self.keys)
        order = sorted(range(len(axes)), key=lambda i: full.index(axes[i]))
        moved = jnp.transpose(block, order)
        return jnp.expand_dims(moved, [i for i, name in enumerate(full) if name not in axes])

    def _einsum(self, left: Any, left_axes: Axes, right: Any, right_axes: Axes, out: Axes) -> Any:
        letters = dict(zip(dict.fromkeys((*left_axes, *right_axes, *out)), string.ascii_letters, strict=False))
        a, b, c = ("".join(letters[name] for name in axes) for axes in (left_axes, right_axes, out))
        return jnp.einsum(f"{a},{b}->{c}", left, right)

    def _weighted(self, weights: Any, value: Any) -> Any:
        return self._einsum(weights, (*self.rows, self.keys), value, self.value, (*self.rows, self.value[-1]))


@dataclass(frozen=True)
class AttentionKernel(_Scores):
    """A block of queries against a block of keys: `(maximum, sum of weights, weighted sum of values)`."""

    def __call__(self, *blocks: Any) -> Any:
        """State block with axes `rows`, `rows`, `rows + value`."""
        scores, mask, value = self._scores(blocks)
        if mask is not None:
            scores = jnp.where(mask, scores, -jnp.inf)
        maximum = jax.lax.stop_gradient(jnp.max(scores, axis=-1, initial=-jnp.inf))
        # A row without any visible key has the maximum -inf and must not turn into NaN.
        at = jnp.where(jnp.isfinite(maximum), maximum, 0)
        weights = jnp.exp(scores - at[..., None])
        return maximum, jnp.sum(weights, axis=-1), self._weighted(weights, value)


@dataclass(frozen=True)
class DenseAttention(_Scores):
    """The whole softmax at once, for uncut keys."""

    def __call__(self, *blocks: Any) -> Any:
        """The result block."""
        scores, mask, value = self._scores(blocks)
        if mask is not None:
            scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
        weights = jax.nn.softmax(scores, axis=-1)
        if mask is not None and self.mask is not None:
            # Only an explicit mask can hide every key of a row; such a row gives zeros.
            weights = jnp.where(mask, weights, 0)
        return self._weighted(weights, value)


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    over: str = "keys",
    causal: bool = False,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
) -> Any:
    """Softmax attention: a fold over the keys whose monoid is the attention state.

    `y = softmax(scale * q . k + bias) . v`, the softmax over the keys that `mask` (and `causal`) leaves visible.

    Args:
      q: queries; its last axis is contracted with that of `k`. Axes are matched by name: those that `q` and `k` share are
        batch-like, those of `q` alone are queries. Arrays without names are `(..., queries, heads, d)`.
      k: keys, with the axis `over` and none of the queries' names: `k.rename(seq="keys")`.
      v: values: the axes of `k` but the last, then its own.
      over: the name of the folded dimension.
      causal: a query sees the keys whose coordinate is at most its own; needs exactly one query dimension.
      mask: bool, any of the axes of queries and keys; False hides. A row that sees no key gives zeros.
      bias: added to the scores, any of their axes.
      scale: of the dot products, by default `1 / sqrt(d)`.

    Returns:
      The axes of `q` but the last, then the last of `v`.

    Raises:
      SignatureError: when an axis has no name, or there is no single query dimension to compare with.
      CompositionError: when queries and keys share the name of their sequence.

    Source: Milakov and Gimelshein 2018; Rabe and Staats 2021; Dao et al. 2022.
    """
    optional = {name: value for name, value in (("mask", mask), ("bias", bias)) if value is not None}
    operands = (q, k, v, *optional.values())
    if not any(isinstance(operand, Value) for operand in operands):
        return _on_arrays(operands, tuple(optional), over, causal, scale)
    return _apply(operands, tuple(optional), over, causal, scale)


def _apply(operands: tuple[Any, ...], optional: tuple[str, ...], over: str, causal: bool, scale: float | None) -> Any:
    recording = trace_of(operands, "attention")
    names = [_names(operand, label) for operand, label in zip(operands, ("q", "k", "v", *optional), strict=True)]
    query, key, value = names[:3]
    extra: Mapping[str, Axes] = dict(zip(optional, names[3:], strict=True))
    if over not in key or over in query or over not in value:
        raise CompositionError(
            message(
                f"attention folds `{over}`, which keys and values carry and queries do not",
                f"q ({', '.join(query)}), k ({', '.join(key)}), v ({', '.join(value)})",
                remedy=f'Rename the sequence of keys and values: k.rename(seq="{over}"), or pass over=.',
            )
        )
    contracted, own = "~d", "~e"
    query, key, value = (*query[:-1], contracted), (*key[:-1], contracted), (*value[:-1], own)
    rows = [name for name in query[:-1] if name not in key]
    if causal and len(rows) != 1:
        raise SignatureError(
            message(
                f"causal attention compares one query dimension with `{over}`",
                f"got {rows}",
                remedy="Pass a mask instead, or keep one query dimension.",
            )
        )
    dims = dict.fromkeys((*query[:-1], *key[:-1], *value[:-1]))
    local = {name: f"d{i}" for i, name in enumerate(dims)} | {contracted: "d", own: "e"}
    at = rows[0] if causal else None
    fields: dict[str, Any] = {
        label: tuple(local[name] for name in axes)
        for label, axes in {"query": query, "key": key, "value": value, **extra}.items()
    }
    fields |= {"keys": local[over], "queries": None if at is None else local[at], "causal": causal, "scale": scale}
    texts = [" ".join(fields[label]) for label in ("query", "key", "value", *optional)]
    texts = [text[:-1] + f"[{text[-1]}]" if i < 2 else text for i, text in enumerate(texts)]
    coordinates = [f"@{local[at]}", f"@{local[over]}"] if at is not None else []
    row = " ".join(local[name] for name in query[:-1])
    signature = Signature.parse(", ".join([*texts, *coordinates]) + f" -> {row} e")
    state = (tuple(row.split()), tuple(row.split()), (*row.split(), "e"))
    kernel, dense = AttentionKernel(**fields), DenseAttention(**fields)
    operation = Operation(signature, kernel, AttentionState, state, attention_output, dense=(dense,), name="attention")
    return recording.apply(operation, operands)


def _names(value: Any, label: str) -> Axes:
    if not isinstance(value, Value) or None in value.settle().names:
        raise SignatureError(
            message(
                f"attention matches axes by name, and an axis of `{label}` has none",
                f"got {value!r:.120}",
                remedy="Name the axes by the program's signature or by a tp.TensorType.",
            )
        )
    return tuple(name for name in value.names if name is not None)


def _on_arrays(
    operands: tuple[Any, ...], optional: tuple[str, ...], over: str, causal: bool, scale: float | None
) -> Any:
    lead = " ".join(f"b{i}" for i in range(jnp.ndim(operands[0]) - 3))
    texts = [f"{lead} queries heads d", f"{lead} {over} heads d", f"{lead} {over} heads e"]
    for operand in operands[3:]:
        full = f"{lead} heads queries {over}".split()
        texts.append(" ".join(full[len(full) - jnp.ndim(operand) :]))
    signature = Signature.parse(f"{', '.join(texts)} -> {lead} queries heads e")
    from combinators.tensor_type import TensorType, type_of
    from combinators.tracing import trace

    types = [type_of(operand, "an operand of attention") for operand in operands]
    named = [
        TensorType.make((axis.name for axis in o.axes), t.shape, t.dtype)
        for o, t in zip(signature.operands, types, strict=True)
    ]
    called = Program(lambda *values: _apply(values, optional, over, causal, scale), None)
    called.name = "attention"
    return trace(called, *named)(*operands)
