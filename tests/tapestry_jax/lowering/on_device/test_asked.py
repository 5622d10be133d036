"""Who is asked for numbers: kernels of others, and none of those by which this library folds.

At the sizes of models a kernel of Pallas takes minutes to run on a host, and a plan would take them to lower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax import lax

import tapestry_jax as tp
from combinators.operations import boxes
from tapestry_jax.nnx.experts.capacity import Collect
from tapestry_jax.nnx.rows import Entry, EntryOfBlock, RowsOfBlock

LOGITS, TARGETS = tp.TensorType({"seq": 6, "vocab": 11}), tp.TensorType({"seq": 6}, jnp.int32)
ROWS = tp.TensorType({"row": 8, "embed": 4})
SIZES = jax.ShapeDtypeStruct((3,), jnp.int32)
QUERIES = tp.TensorType({"heads": 2, "queries": 4096, "d": 128})
KEYS = tp.TensorType({"heads": 2, "keys": 4096, "d": 128})
VALUES = tp.TensorType({"heads": 2, "keys": 4096, "e": 128})


@tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
def attended(q: Any, k: Any, v: Any) -> Any:
    return tp.attention(q, k, v)


def in_groups(x: Any, w: Any, sizes: Any) -> Any:
    return lax.ragged_dot(x, w, sizes)


def largest(x: Any) -> Any:
    return jnp.argmax(x, axis=0)


def lifted(function: Callable[..., Any], types: list[Any], names: dict[str, str]) -> tp.Graph:
    return tp.lift(function, *types, names=names)


PLANS: dict[str, tuple[Callable[[], tp.Graph], dict[str, Any], str]] = {
    "attention of Pallas, in a ring": (
        lambda: tp.trace(attended, QUERIES, KEYS, VALUES),
        {"queries": "data", "keys": tp.ring("data")},
        "tpu",
    ),
    "rows of a table": (
        lambda: tp.trace(tp.Reduce(RowsOfBlock(8), "seq, row embed, @row -> seq embed", tp.monoids.Sum), TARGETS, ROWS),
        {"row": "data"},
        "cpu",
    ),
    "experts": (
        lambda: tp.trace(
            tp.Reduce(Collect(2), "choice [slot] e, [s] [k], [s] [k], @choice -> [s] e", tp.monoids.Sum),
            tp.TensorType({"choice": 4, "slot": 2, "e": 3}),
            tp.TensorType({"s": 5, "k": 2}, jnp.int32),
            tp.TensorType({"s": 5, "k": 2}),
        ),
        {"choice": "data"},
        "cpu",
    ),
    "entries of logits": (
        lambda: tp.trace(tp.Reduce(EntryOfBlock(11), "seq vocab, seq, @vocab -> seq", tp.monoids.Sum), LOGITS, TARGETS),
        {"vocab": "data"},
        "cpu",
    ),
    "a norm": (lambda: tp.trace(tp.nnx.LayerNorm(4, rngs=nnx.Rngs(0)), ROWS), {"embed": "data"}, "cpu"),
    "products in groups": (
        lambda: lifted(
            in_groups,
            [jax.ShapeDtypeStruct((8, 6), jnp.float32), jax.ShapeDtypeStruct((3, 6, 4), jnp.float32), SIZES],
            {"x": "row in", "w": "expert in out"},
        ),
        {"row": tp.chunks(2), "expert": "data"},
        "cpu",
    ),
    "the largest": (
        lambda: lifted(largest, [jax.ShapeDtypeStruct((8, 4), jnp.float32)], {"x": "row embed"}),
        {"row": "data"},
        "cpu",
    ),
}


@pytest.fixture
def _nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> Any:
        raise AssertionError("something is asked")

    monkeypatch.setattr(boxes, "_differs", asked)


@pytest.mark.usefixtures("_nobody_is_asked")
@pytest.mark.parametrize("name", PLANS)
def test_kernels_of_this_library_are_asked_nothing(name: str) -> None:
    traced, entries, platform = PLANS[name]
    lower(traced(), entries, platform)


@pytest.mark.usefixtures("_nobody_is_asked")
def test_those_of_others_are() -> None:
    fold = tp.Reduce(lambda x: x.max(0), "row embed -> embed", tp.monoids.Max)
    with pytest.raises(AssertionError, match="something is asked"):
        lower(tp.trace(fold, ROWS), {"row": "data"}, "cpu")


@pytest.mark.usefixtures("_nobody_is_asked")
def test_so_are_those_of_this_library_that_say_nothing_of_how_they_fold() -> None:
    fold = tp.Reduce(Entry(), "seq vocab, seq -> seq", tp.monoids.Sum)
    with pytest.raises(AssertionError, match="something is asked"):
        lower(tp.trace(fold, LOGITS, TARGETS), {"vocab": "data"}, "cpu")


def test_those_that_fold_by_another_monoid_are_refused() -> None:
    with pytest.raises(tp.SignatureError, match="merged by another monoid"):
        tp.trace(tp.Reduce(EntryOfBlock(11), "seq vocab, seq, @vocab -> seq", tp.monoids.Max), LOGITS, TARGETS)


def lower(graph: tp.Graph, entries: dict[str, Any], platform: str) -> None:
    plan = tp.plan(graph, tp.mesh(data=2), entries, platforms=platform)
    structs = [node.results[0].struct for node in graph.inputs]
    # Traced, and no more: a kernel of Pallas for TPUs is lowered nowhere else.
    jax.make_jaxpr(plan.compile().jitted)(*jax.tree.unflatten(graph.in_tree, structs))
