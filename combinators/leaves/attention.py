"""Attention: a fold over the keys with the attention state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from combinators.arguments import read_dimension, read_flag, read_number
from combinators.arrows.program import Program
from combinators.arrows.tracing import trace
from combinators.errors import CompositionError, SignatureError, message, spelt
from combinators.graphs.graph import Graph
from combinators.index_space.signature import Signature
from combinators.index_space.tensor_type import TensorType, type_of
from combinators.monoids import AttentionState, attention_output
from combinators.numerics.attention_kernel import (
    AttentionKernel,
    DenseAttention,
    RoundedOutput,
    scores_rows,
    state_dtype,
)
from combinators.operations.dense import Dense
from combinators.operations.operation import Operation
from combinators.recording.current import trace_of
from combinators.recording.value import Value, as_value
from combinators.settings import remembered

Axes = tuple[str, ...]
Factors = tuple[float | None, float]
"""Of the dot products, and the share of weights that are kept."""


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    over: str = "keys",
    causal: bool | str = False,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    kept: Any = None,
    share: float = 1.0,
) -> Any:
    """Softmax attention: a fold over the keys whose monoid is the attention state.

    `y = softmax(scale * q . k + bias) . v`, the softmax over the keys that `mask` (and `causal`) leaves visible.

    Args:
      q: queries; its last axis is contracted with that of `k`. Axes are matched by name: those that `q` and `k` share
        are batch-like, those of `q` alone are queries. Arrays without names are `(..., queries, heads, d)`, and keys
        may have fewer heads, which divide those of the queries: consecutive heads then share one of the keys.
      k: keys, with the axis `over` and none of the queries' names: `k.rename(seq="keys")`.
      v: values: the axes of `k` but the last, then its own.
      over: the name of the folded dimension.
      causal: a query sees the keys whose coordinate is at most its own along the query dimension. Of several (grouped
        queries) it is the one that the keys were renamed from, or `causal="seq"` names it.
      mask: bool, any of the axes of queries and keys; False hides. A row that sees no key gives zeros.
      bias: added to the scores, any of their axes.
      scale: of the dot products, by default `1 / sqrt(d)`.
      kept: bool, any of the axes of queries and keys: where False a weight counts as 0 behind the softmax (dropout).
      share: by which weights that are kept are divided.

    Returns:
      The axes of `q` but the last, then the last of `v`.

    Raises:
      SignatureError: when an axis has no name, or nothing tells which query dimension to compare with the keys.
      CompositionError: when queries and keys share the name of their sequence.

    Plans for TPUs run splash attention for bfloat16 and float32, where keys are whole and where they are cut, for
    blocks of a multiple of 128 queries and keys whose scores are more than fast memory holds, no mask and no bias;
    plans for CUDA run cuDNN's where keys are whole, for float16 and bfloat16. `explain` names them, or says why splash
    attention was passed over. They have gradients, but no forward-mode derivatives. Otherwise XLA fuses our own;
    `platforms="cpu"` in a plan asks for that.

    Laws: fold_homomorphism over `over`; the dense kernels agree.

    Source: Milakov and Gimelshein 2018; Rabe and Staats 2021; Dao et al. 2022.

    Example:
      >>> import jax.numpy as jnp
      >>> q = k = jnp.zeros((1, 3, 1, 2))  # batch, sequence, heads, features
      >>> v = jnp.array([0.0, 1.0, 5.0]).reshape(1, 3, 1, 1)
      >>> attention(q, k, v, causal=True).ravel().tolist()  # means of what each query sees
      [0.0, 0.5, 2.0]
    """
    over = read_dimension(over, "over= of attention", SignatureError)
    if not isinstance(causal, str):
        causal = read_flag(causal, "causal= of attention, which may also name a query dimension,", SignatureError)
    elif not causal.isidentifier():
        read_dimension(causal, "causal= of attention", SignatureError)
    scale = None if scale is None else read_number(scale, "scale= of attention", SignatureError)
    share = read_number(share, "share= of attention", SignatureError)
    if not 0 < share <= 1:
        raise SignatureError(
            message("share= of attention is none", f"got {share!r}", remedy="Pass a number above 0, up to 1.")
        )
    given = (("mask", mask), ("bias", bias), ("kept", kept))
    optional = {name: value for name, value in given if value is not None}
    operands = tuple(map(as_value, (q, k, v, *optional.values())))
    if not any(isinstance(operand, Value) for operand in operands):
        return _on_arrays(operands, tuple(optional), over, causal, (scale, share))
    return _apply(operands, tuple(optional), over, causal, (scale, share))


def _apply(
    operands: tuple[Any, ...], optional: tuple[str, ...], over: str, causal: bool | str, factors: Factors
) -> Any:
    recording = trace_of(operands, "attention")
    names = [_names(operand, label) for operand, label in zip(operands, ("q", "k", "v", *optional), strict=True)]
    query, key, value = names[:3]
    _check_mask(dict(zip(optional, operands[3:], strict=True)))
    extra: Mapping[str, Axes] = dict(zip(optional, names[3:], strict=True))
    _check_folded(query, key, value, over)
    contracted, own = "~d", "~e"
    query, key, value = (*query[:-1], contracted), (*key[:-1], contracted), (*value[:-1], own)
    rows = [name for name in query[:-1] if name not in key]
    at = _compared(recording.renamed_from(operands[1], over), rows, over, causal)
    _check_scores((*query[:-1], over), extra)
    dims = dict.fromkeys((*query[:-1], *key[:-1], *value[:-1]))
    local = {name: f"d{i}" for i, name in enumerate(dims)} | {contracted: "d", own: "e"}
    fields: dict[str, Any] = {
        label: tuple(local[name] for name in axes)
        for label, axes in {"query": query, "key": key, "value": value, **extra}.items()
    }
    fields |= {"keys": local[over], "queries": at and local[at], "causal": at is not None, "scale": factors[0]}
    fields |= {"share": factors[1]} if "kept" in extra else {}
    # Equal numbers that graphs tell apart, 1 and 1.0, make operations of their own.
    operation = _known_operation(tuple(fields.items()), repr(factors), operands[2].dtype)
    return recording.apply(operation, operands)


# The layers of a model repeat the same few: what is known of an operation is not found again for its equal.
@remembered(maxsize=256)
def _known_operation(fields: tuple[tuple[str, Any], ...], factors: str, dtype: Any) -> Operation:
    return attention_operation(dict(fields), dtype)


def attention_operation(fields: Mapping[str, Any], dtype: Any) -> Operation:
    """The operation of attention.

    Args:
      fields: those of its kernel, `combinators.numerics.attention_kernel.Scores`; the last axis of queries and keys is
        `d`, that of values `e`.
      dtype: of the values.
    """
    texts = [
        " ".join(fields[label])
        for label in ("query", "key", "value", "mask", "bias", "kept")
        if fields.get(label) is not None
    ]
    texts = [text[:-1] + f"[{text[-1]}]" if i < 2 else text for i, text in enumerate(texts)]
    queries, query = fields["queries"], fields["query"]
    coordinates = [f"@{queries}", f"@{fields['keys']}"] if queries is not None else []
    signature = Signature.parse(", ".join([*texts, *coordinates]) + f" -> {' '.join(query[:-1])} e")
    order = scores_rows(query, fields["key"])
    state = (order, order, (*order, "e"))
    kept = state_dtype(jnp.zeros((), dtype)) == dtype
    present = attention_output if kept else RoundedOutput(dtype.name)
    if "kept" in fields:
        # Loaded by the first that drops weights.
        from combinators.numerics.dropped_attention import DroppedAttention, DroppedKernel

        dropped = DroppedKernel(**fields), (DroppedAttention(**fields),)
        return Operation(signature, dropped[0], AttentionState, state, present, dense=dropped[1], name="attention")
    # Loaded by the first that is made.
    from combinators.numerics.fused_attention import FitsFused, FusedAttention
    from combinators.numerics.splash_attention import FitsSplash, SplashAttention, SplashState

    kernel, fused = AttentionKernel(**fields), FusedAttention(**fields)
    # A causal kernel without coordinates starts at row 0 and key 0: the queries must be whole as well.
    conditions: dict[str, Any] = {"whole": (queries,) if queries is not None else (), "takes": FitsFused(fused)}
    splash, partial = SplashAttention(**fields), SplashState(**fields)
    on_tpu: dict[str, Any] = {"platforms": ("tpu",), "dtypes": ("bfloat16", "float32"), "whole": ()}
    dense = (
        Dense(fused, platforms=("cuda",), dtypes=("bfloat16", "float16"), **conditions),
        Dense(splash, takes=FitsSplash(splash), **on_tpu),
        Dense(partial, takes=FitsSplash(partial), gives="state", **on_tpu),
        DenseAttention(**fields),
    )
    return Operation(signature, kernel, AttentionState, state, present, dense=dense, name="attention")


def _check_mask(optional: Mapping[str, Any]) -> None:
    if "mask" in optional and optional["mask"].dtype != bool:
        raise SignatureError(
            message(
                f"the mask of attention is {optional['mask'].dtype}, not bool",
                remedy="Compare it (mask > 0), or pass what is added to the scores as bias=.",
            )
        )
    if "kept" in optional and optional["kept"].dtype != bool:
        told = f"kept= of attention is {optional['kept'].dtype}, not bool"
        raise SignatureError(message(told, remedy="Draw it by tp.random.bernoulli."))


def _check_folded(query: Axes, key: Axes, value: Axes, over: str) -> None:
    if over not in key or over in query or over not in value:
        raise CompositionError(
            message(
                f"attention folds `{over}`, which keys and values carry and queries do not",
                f"q ({', '.join(query)}), k ({', '.join(key)}), v ({', '.join(value)})",
                remedy=f'Rename the sequence of keys and values: k.rename(seq="{over}"), or pass over=.',
            )
        )


def _check_scores(scores: Axes, extra: Mapping[str, Axes]) -> None:
    """Refuse a mask or a bias with axes that the scores have not, the last of which is the keys'."""
    for label, axes in extra.items():
        strange = [name for name in axes if name not in scores]
        if strange:
            raise CompositionError(
                message(
                    f"the {label} of attention has the axis `{strange[0]}`, which the scores have not",
                    f"scores ({', '.join(scores)}), {label} ({', '.join(axes)})",
                    remedy=f'Rename it, as in {label}.rename({strange[0]}="{scores[-1]}").',
                )
            )


def _compared(source: str | None, rows: Sequence[str], over: str, causal: Any) -> str | None:
    """The query dimension that is compared with the keys; None where attention is not causal.

    Args:
      source: the name that the keys' sequence had before it was renamed.
      rows: the query dimensions.
      over: the keys' dimension.
      causal: whether, or along which dimension.
    """
    if causal is False:
        return None
    found = [causal] if isinstance(causal, str) else rows if len(rows) == 1 else [source]
    if isinstance(causal, bool | str) and found[0] in rows:
        return found[0]
    named = ", ".join(f"`{name}`" for name in rows) or "none"
    raise SignatureError(
        message(
            f"causal attention compares one query dimension with `{over}`",
            f"the query dimensions are {named}, got causal={spelt(causal, 40)}",
            remedy=f'Name it: causal="{rows[0]}".'
            if rows
            else "Give the queries a dimension that the keys do not have.",
        )
    )


def _names(value: Any, label: str) -> Axes:
    if not isinstance(value, Value) or None in value.settle().names:
        raise SignatureError(
            message(
                f"attention matches axes by name, and an axis of `{label}` has none",
                f"got {spelt(value, 120)}",
                remedy="Name the axes by the program's signature or by a tp.TensorType.",
            )
        )
    return tuple(name for name in value.names if name is not None)


def _on_arrays(
    operands: tuple[Any, ...], optional: tuple[str, ...], over: str, causal: bool | str, factors: Factors
) -> Any:
    """Attention of arrays `(..., queries, heads, d)`; optional ones broadcast to `(..., heads, queries, keys)`.

    Where keys have fewer heads, consecutive heads of queries share one: a dimension `group` beside `queries`.
    """
    groups = _groups(operands)
    if groups > 1:
        query, keys = operands[0], operands[1]
        split = (*query.shape[:-2], keys.shape[-2], groups, query.shape[-1])
        result = _on_grouped((jnp.reshape(query, split), *operands[1:]), optional, over, causal, factors)
        return jnp.reshape(result, (*query.shape[:-1], result.shape[-1]))
    types = [type_of(operand, "an operand of attention") for operand in operands]
    lead = tuple(f"b{i}" for i in range(types[0].ndim - 3))
    labels = [(*lead, "queries", "heads", "d"), (*lead, over, "heads", "d"), (*lead, over, "heads", "e")]
    for kind, axes, label in zip(types, labels, ("q", "k", "v"), strict=False):
        if kind.ndim != len(axes):
            raise SignatureError(
                message(
                    f"`{label}` of attention has {kind.ndim} axes",
                    f"expected ({', '.join(axes)}), got {kind}",
                    remedy="Give q, k and v the same leading axes, then sequence, heads and features.",
                )
            )
    sizes = dict(zip((*labels[0], over), (*types[0].shape, types[1].shape[-3]), strict=True))
    named = [TensorType.make(axes, kind.shape, kind.dtype) for axes, kind in zip(labels, types, strict=False)]
    arrays = list(operands[:3])
    for operand, kind, label in zip(operands[3:], types[3:], optional, strict=True):
        axes = _broadcast_axes(label, kind, (*lead, "heads", "queries", over), sizes)
        gone = tuple(at for at, name in enumerate(axes) if name is None)
        arrays.append(jnp.squeeze(operand, gone))
        kept = [(name, size) for name, size in zip(axes, kind.shape, strict=True) if name is not None]
        named.append(TensorType(kept, kind.dtype))
    return _graph(tuple(named), optional, over, causal, factors)(*arrays)


def _groups(operands: tuple[Any, ...]) -> int:
    """How many heads of queries share one of the keys; 1 where the numbers do not divide."""
    shapes: list[tuple[int, ...]] = [getattr(operand, "shape", ()) for operand in operands[:2]]
    if any(len(shape) < 3 for shape in shapes) or not shapes[1][-2] or shapes[0][-2] % shapes[1][-2]:
        return 1
    return shapes[0][-2] // shapes[1][-2]


def _on_grouped(
    operands: tuple[Any, ...], optional: tuple[str, ...], over: str, causal: bool | str, factors: Factors
) -> Any:
    """Attention of queries `(..., queries, heads, group, d)`, keys and values as without groups."""
    types = [type_of(operand, "an operand of attention") for operand in operands]
    lead = tuple(f"b{i}" for i in range(types[0].ndim - 4))
    query, keys = (*lead, "queries", "heads", "group", "d"), (*lead, over, "heads", "d")
    if any(kind.ndim != len(keys) for kind in types[1:3]) or optional:
        raise SignatureError(
            message(
                "attention of arrays with grouped queries takes q, k, v of the same leading axes, no mask or bias",
                f"got {', '.join(map(str, types))}",
                remedy="Write a program, whose axes have names: queries with a dimension that keys do not have.",
            )
        )
    axes = (query, keys, (*keys[:-1], "e"))
    named = tuple(TensorType.make(names, kind.shape, kind.dtype) for names, kind in zip(axes, types, strict=True))
    return _graph(named, optional, over, "queries" if causal is True else causal, factors)(*operands)


def _broadcast_axes(
    label: str, kind: TensorType, full: Sequence[str], sizes: Mapping[str, int]
) -> tuple[str | None, ...]:
    """The names of the axes of a mask or bias, aligned from the right; None where one broadcasts."""
    names = tuple(full[len(full) - kind.ndim :]) if kind.ndim <= len(full) else ()
    if len(names) != kind.ndim or any(s not in (1, sizes[n]) for n, s in zip(names, kind.shape, strict=True)):
        expected = ", ".join(f"{name}={sizes[name]}" for name in full)
        raise SignatureError(
            message(
                f"`{label}` of attention does not broadcast to the scores",
                f"expected ({expected}), got {kind}",
                remedy="Give it these axes from the right, or size 1 where it broadcasts.",
            )
        )
    return tuple(n if s == sizes[n] else None for n, s in zip(names, kind.shape, strict=True))


@remembered(maxsize=64)
def _graph(
    types: tuple[TensorType, ...], optional: tuple[str, ...], over: str, causal: bool | str, factors: Factors
) -> Graph:
    """The graph of attention on arrays, traced (and compiled) once per types."""
    called = Program(lambda *values: _apply(values, optional, over, causal, factors), None)
    called.name = "attention"
    return trace(called, *types)
