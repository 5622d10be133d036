"""Values of a wrong kind, and values that cannot be shown: typed errors, whatever their class does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.errors import spelt

GRAPH = tp.trace(lambda x: x * 2, tp.TensorType({"a": 4, "b": 4}))


class _Bad:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def _endless() -> list[Any]:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


_UNSHOWN = {"fails": _Bad(), "nested": _endless(), "digits": 10**5000}


def _planned() -> tp.Plan:
    return tp.plan(GRAPH, tp.mesh(data=2), {})


@pytest.mark.parametrize("value", _UNSHOWN.values(), ids=_UNSHOWN)
@pytest.mark.parametrize(
    "call",
    [
        lambda value: tp.plan(GRAPH, tp.mesh(data=2), {"a": value}),
        lambda value: tp.plan(GRAPH, tp.mesh(data=2), value),
        lambda value: tp.plan(value, tp.mesh(data=2), {}),
        tp.chunks,
        lambda value: tp.unchanged(atol=value),
        lambda value: tp.Plan.from_json(value, GRAPH),
        tp.Graph.from_json,
        lambda value: tp.Map(jnp.sin, name=value),
    ],
)
def test_values_that_cannot_be_shown_are_typed_errors(call: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(tp.TapestryError) as error:
        call(value)
    assert "one that cannot be shown" in str(error.value) or "an integer of 16610 bits" in str(error.value)


def test_what_is_shown_is_short() -> None:
    assert spelt("a" * 1000, 10) == "'" + "a" * 9
    assert spelt(_Bad()) == "one that cannot be shown (RuntimeError)"
    assert spelt(10**5000) == "an integer of 16610 bits"


@pytest.mark.parametrize(
    "path", ["nope", 2.7, float("nan"), object(), {}, 0, None], ids=lambda each: type(each).__name__
)
def test_blocks_are_asked_for_by_paths(path: Any) -> None:
    shards = _planned().shards()
    for ask in (shards.count, shards.cells_read, lambda path: list(shards.blocks(path))):
        with pytest.raises(tp.PlanError, match=r"no operation at or below|the path of blocks"):
            ask(path)
    assert shards.count() == 1


@pytest.mark.parametrize("index", [0, 99, -1, 10**30, None, [], True], ids=lambda each: type(each).__name__)
def test_operations_of_a_graph_are_asked_for_by_their_place(index: Any) -> None:
    with pytest.raises(tp.GraphError, match="no such place of an operation"):
        GRAPH.shaped(index)


@pytest.mark.parametrize("ref", [None, (0, 0), "x"], ids=lambda each: type(each).__name__)
def test_values_of_a_graph_are_asked_for_by_reference(ref: Any) -> None:
    with pytest.raises(tp.GraphError, match="no such place of a value"):
        GRAPH.type_of(ref)


@pytest.mark.parametrize(
    "call",
    [
        lambda: tp.TensorType.make(None, (2,), "float32"),  # pyright: ignore[reportArgumentType]
        lambda: tp.TensorType.make({"a", "b"}, (2, 3), "float32"),
        lambda: tp.TensorType.make(("a",), (2, 3), "float32"),
        lambda: tp.TensorType(np.array(2)),
        lambda: tp.TensorType({2, 3}),
        lambda: tp.iterate(jnp.sin, 3, derivative=np.ones(2)),  # pyright: ignore[reportCallIssue, reportArgumentType]
        lambda: tp.iterate(jnp.sin, until=tp.unchanged(), at_most=3, derivative=np.ones(2)),  # pyright: ignore[reportCallIssue, reportArgumentType]
        lambda: tp.planned(_planned(), int, object()),
        lambda: tp.prune_cache("x" * 1000),
        lambda: tp.einsum("a b -> a", name="\ud800"),
        lambda: tp.Map(jnp.sin, name="a\udfff"),
    ],
)
def test_values_of_a_wrong_kind_are_typed_errors(call: Callable[[], Any]) -> None:
    with pytest.raises(tp.TapestryError):
        call()


@pytest.mark.parametrize("plan", [0, "", [], False], ids=lambda each: type(each).__name__)
def test_a_fabric_applies_by_plans_alone(plan: Any, tmp_path: Path) -> None:
    fabric = tp.Fabric(tmp_path / "fabric")
    fabric.allocate("x", tp.TensorType({"a": 4}))
    fabric.write("x", np.ones(4, np.float32))
    with pytest.raises(tp.TapestryError, match="plan= is no plan"):
        fabric.apply(tp.Map(jnp.sin, "a -> a"), "x", out="y", plan=plan)
