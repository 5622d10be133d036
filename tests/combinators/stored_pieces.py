"""Monoids, aggregators and operations of every kind, made of what has a public name: what is stored for later releases.

`python -m tests.combinators.stored_pieces > tests/combinators/data/pieces_N.json` writes them as a new version. Where
something is added, and all else is as it was, it is added to the latest.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh

import combinators as tp
import tapestry_jax
from combinators import aggregators as A
from combinators import monoids as M
from combinators.stored.codec import encode
from laws.shipped_pieces.aggregators import make, names


def pieces() -> dict[str, Any]:
    """Monoids and aggregators by name."""
    found: dict[str, Any] = {f"monoid {name}": m for name, m in sorted(vars(M).items()) if isinstance(m, tp.Monoid)}
    found |= {f"monoid {name}": monoid for name, monoid in _composed().items()}
    found |= {f"aggregator {name}": make(name) for name in names()}
    return found | {f"aggregator {name}": aggregator for name, aggregator in _made().items()}


def _composed() -> dict[str, tp.Monoid]:
    return {
        "struct": M.struct(top=M.ArgMax, total=M.Mean),
        "product": M.product(M.LogSumExp, M.MinMax),
        "dual": M.dual(M.AffineRecurrence),
        "optional": M.optional(jnp.minimum, commutative=True, idempotent=True),
        "lexicographic": M.lexicographic(M.Max, M.Sum),
        "map_values": M.map_values(M.Max, "a", "b"),
        "function": M.function(M.Sum),
        "segmented": M.segmented(M.AffineRecurrence),
        "runs": M.runs(M.AffineRecurrence),
        "decayed": M.decayed(2.0),
    }


def _made() -> dict[str, tp.Aggregator]:
    both = A.Mean() & A.Max()
    plain = tp.Aggregator(jnp.square, M.Sum, jnp.sqrt, name="norm")
    return {
        "pair": both,
        "plain": plain,
        "mapped": A.Sum().map(jnp.sqrt),
        "contramapped": A.Max().contramap(jnp.negative),
        "masked": both.masked(),
        "masked by a function": plain.masked(jnp.isfinite),
        "by key": both.by_key(None, 3),
        "by segment": both.by_segment(None, 3),
        "by run": A.Sum().by_run(),
        "segmented": both.segmented(),
        "moments of order 4": A.Moments(order=4),
        "dense recurrence": A.Recurrence(dense=True),
    }


def graphs() -> dict[str, tp.Graph]:
    """Traced programs by name."""
    table, layers = tp.TensorType({"row": 6, "col": 3}), tp.TensorType({"layer": 2, "col": 3, "out": 3})
    weight, key = tp.TensorType({"col": 3, "out": 2}), jax.ShapeDtypeStruct((2,), jnp.uint32)
    runs, flags = tp.TensorType({"row": 6}, jnp.int32), tp.TensorType({"row": 6}, jnp.bool_)
    q, k, v = ({"q": 4, "h": 2, "d": 2}, {"keys": 5, "h": 2, "d": 2}, {"keys": 5, "h": 2, "e": 3})
    return {
        "leaves": tp.trace(_leaves, table, weight),
        "folds": tp.trace(_folds, table, runs, flags),
        "scans": tp.trace(_scans, table, runs),
        "random": tp.trace(_random, table, key),
        "loops": tp.trace(_loops, table, layers),
        "attention": tp.trace(_attention, *map(tp.TensorType, (q, k, v))),
        "widened": _widened(tp.trace(_narrow, table, weight)),
    }


def _leaves(x: Any, w: Any) -> Any:
    y = tp.Map(jnp.tanh)(x) + 2 * x - x / 3
    z = tp.Map(jax.nn.softmax, "... [c] -> ... [c]")(y)
    return {
        "product": tp.einsum("row col, col out -> row out")(z, w),
        "reduced": tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum, pad=(0, 0))(z, w),
        "moved": tp.rearrange("(a b) col -> b (a col)", a=2)(x),
        "sliced": x[1:5],
        "cast": x.astype(jnp.bfloat16),
        "places": tp.index("row", like=x),
    }


def _folds(x: Any, labels: Any, flags: Any) -> Any:
    every = A.Moments(order=4) & A.LogSumExp()
    return {
        "every": tp.fold(every, "row col -> col")(x),
        "top": tp.fold(A.TopK(2), "row col, @row -> col")(x),
        "columns": tp.fold(A.Covariance(), "row [col] -> ")(x),
        "by key": tp.fold(A.Sum().by_key(None, 3), "row col, row -> col")(x, labels),
        "masked": tp.fold(A.Max().masked(), "row col, row -> col")(x, flags),
        "extreme": tp.fold(A.Max(), "row col -> col")(x),
        "count": tp.fold(A.HyperLogLog(4), "row -> ")(labels),
    }


def _scans(x: Any, labels: Any) -> Any:
    return {
        "running": tp.Scan(M.Sum, "... t -> ... t", over="t")(tp.rearrange("row col -> col row")(x)),
        "reverse": tp.Scan(M.Max, "t c -> t c", over="t", reverse=True, exclusive=True)(x),
        "ends": tp.Scan(M.Sum, "t c -> t c", over="t", final=True)(x),
        "moments": tp.scan(A.Moments(2) & A.Max(), "t c -> t c")(x),
        "by run": tp.scan(A.Sum().by_run(), "t c, t -> t c")(x, labels),
        "window": tp.window(A.LogSumExp(), 2, "t c -> t c", partial=False)(x),
    }


def _random(x: Any, key: Any) -> Any:
    first, second = tp.random.split(tp.random.fold_in(key, 7))
    return {
        "kept": tp.random.bernoulli(first, 0.9, like=x),
        "noise": tp.random.normal(second, like=x),
        "many": tp.random.split(key, 4, over="turn"),
    }


def _loops(x: Any, w: Any) -> Any:
    layer = tp.program(lambda c, w: tp.Map(jnp.tanh)(tp.einsum("b i, i j -> b j")(c, w)).rename(out="col"))
    return {
        "layers": tp.stack(layer, 2)(x, w),
        "turns": tp.iterate(tp.Map(jnp.sin), 3)(x),
        "total": tp.program(lambda x, s: (x + s, x + s)).feedback("row")(x, x[0]),
    }


def _attention(q: Any, k: Any, v: Any) -> Any:
    return {"plain": tp.attention(q, k, v), "causal": tp.attention(q, k, v, causal=True)}


def _narrow(x: Any, w: Any) -> Any:
    heads = x.astype(jnp.bfloat16)
    return {
        "product": tp.einsum("a k, k b -> a b")(heads, w.astype(jnp.bfloat16)),
        "attention": tp.attention(heads, heads.rename(row="keys"), heads.rename(row="keys")),
    }


def _widened(graph: tp.Graph) -> tp.Graph:
    """As a plan carries it with `accumulate=jnp.float32`."""
    return tapestry_jax.plan(graph, AbstractMesh((1,), ("d",)), accumulate=jnp.float32).schedule.graph


def stored() -> dict[str, Any]:
    """What the file holds."""
    traced = graphs()
    return {
        "pieces": {name: encode(piece) for name, piece in pieces().items()},
        "graphs": {name: graph.to_json() for name, graph in traced.items()},
        "keys": {name: graph.key for name, graph in traced.items()},
    }


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    print(json.dumps(stored(), separators=(",", ":")))
