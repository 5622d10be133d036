"""Graph files whose operations say something else: refused, or a program that is the same under every plan."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from tests.combinators.hostile_parts import signed
from tests.combinators.stored_pieces import graphs
from tests.edited_operations import edited
from tests.thoroughly import thoroughly

A, M = tp.aggregators, tp.monoids
_SQUARE = tp.TensorType({"a": 4, "b": 4})


@cache
def _programs() -> dict[str, tp.Graph]:
    found = {name: graph for name, graph in graphs().items() if name not in ("random", "widened")}
    q, k, v = ({"h": 4, "q": 4, "d": 4}, {"h": 4, "keys": 4, "d": 4}, {"h": 4, "keys": 4, "e": 4})
    return found | {
        "fold": tp.trace(tp.fold(A.Max(), "a b -> b"), _SQUARE),
        "cells": tp.trace(lambda x: x * 2, _SQUARE),
        "scan": tp.trace(tp.scan(A.Max(), "a b -> a b", over="a"), _SQUARE),
        "window": tp.trace(tp.window(A.Sum(), 2, "a b -> a b", over="a"), _SQUARE),
        "product": tp.trace(
            tp.einsum("a k, k b -> a b"), tp.TensorType({"a": 4, "k": 4}), tp.TensorType({"k": 4, "b": 4})
        ),
        "heads": tp.trace(tp.attention, *map(tp.TensorType, (q, k, v))),
    }


def _arguments(graph: tp.Graph) -> Any:
    drawn, found = np.random.default_rng(0), []
    for node in graph.inputs:
        kind = node.results[0]
        numbers = drawn.integers(0, 4, kind.shape) if kind.dtype.kind in "biu" else drawn.standard_normal(kind.shape)
        found.append(np.asarray(numbers).astype(kind.dtype))
    return jax.tree.unflatten(graph.in_tree, found)


def _is_same(got: Any, wanted: Any) -> bool:
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True)
    return all(np.allclose(*map(_wide, pair), rtol=1e-3, atol=1e-4, equal_nan=True) for pair in pairs)


def _wide(leaf: Any) -> Any:
    return np.asarray(leaf, np.float64)


def _wrong_under(text: str, mesh: Any) -> str:
    """The entries of a plan that gives other values than the graph; empty where none does, or it is refused."""
    try:
        graph = tp.Graph.from_json(text)
    except tp.FormatError:
        return ""
    arguments = _arguments(graph)
    wanted = graph(*arguments)
    dims = {name for node in graph.nodes for kind in node.results for name in kind.names if name}
    for entries in ({}, *({dim: entry} for dim in sorted(dims) for entry in ("data", tp.chunks(2)))):
        try:
            plan = tp.plan(graph, mesh, entries)
            plan.verify()
        except tp.TapestryError:
            continue
        if not _comes_to(plan, arguments, wanted):
            return f"{entries}"
    return ""


def _comes_to(plan: tp.Plan, arguments: Any, wanted: Any) -> bool:
    """Blocks are run one by one, which is fast; what they give is compiled before it is called wrong."""
    try:
        if _is_same(plan.shards().run(*arguments), wanted):
            return True
    except Exception:  # noqa: BLE001 - what compiled plans refuse may raise anything in blocks
        pass
    try:
        return _is_same(plan.compile()(*arguments), wanted)
    except tp.TapestryError:
        return True


@pytest.mark.parametrize("name", _programs())
def test_edited_operations_are_refused_or_the_same_under_every_plan(name: str) -> None:
    content = json.loads(_programs()[name].to_json())["graph"]
    found = list(edited(content))
    mesh = tp.mesh(data=2)
    chosen = random.Random(7).sample(found, len(found) if thoroughly() else min(len(found), 12))
    wrong = {what: entries for what, changed in chosen if (entries := _wrong_under(signed(changed), mesh))}
    assert wrong == {}


def _edit(name: str, **fields: Any) -> str:
    content = json.loads(_programs()[name].to_json())["graph"]
    content["operations"][0] |= fields
    return signed(content)


@pytest.mark.parametrize(
    ("name", "fields", "told"),
    [
        ("fold", {"over": "b"}, "cannot scan over `b`"),
        ("fold", {"reverse": True}, "is a fold, which has no `reverse`"),
        ("fold", {"monoid": {"name": "Min"}}, "is merged by another monoid"),
        ("fold", {"monoid": None}, "a map, which has no `present`"),
        ("fold", {"carrier": {"$tuple": [{"$tuple": ["a"]}]}}, "has the axis `a`, which is folded"),
        ("fold", {"carrier": {"$tuple": [{"$tuple": ["b", "b"]}]}}, "has the axis `b` twice"),
        ("cells", {"over": "d1"}, "is a map, which has no `over`"),
        ("cells", {"reverse": True}, "is a map, which has no `reverse`"),
        ("cells", {"exclusive": True}, "is a map, which has no `exclusive`"),
        ("cells", {"carrier": {"$tuple": [{"$tuple": ["d0"]}]}}, "is a map, which has no `carrier`"),
        ("fold", {"exclusive": True}, "is a fold, which has no `exclusive`"),
        ("scan", {"pad": {"$tuple": [0]}}, "is a scan, which has no `pad`"),
        ("cells", {"pad": {"$tuple": [0, 0]}}, "declares 2 neutral values for 1 operands"),
        ("cells", {"boundary": "own"}, "has the unknown boundary 'own'"),
        ("cells", {"signature": "d0 d1 -> d0"}, "folds `d1` without a monoid"),
        ("scan", {"monoid": None}, "is a map, which has no `over`"),
        ("scan", {"boundary": "zero"}, "is a scan, which has no `boundary`"),
        ("window", {"sizes": {"$tuple": [{"$tuple": ["a_window", 2]}] * 2}}, "has two sizes of a dimension"),
        ("heads", {"over": "d0"}, "cannot scan over `d0`"),
        ("heads", {"monoid": {"name": "Sum"}}, "is merged by another monoid"),
    ],
)
def test_what_no_leaf_takes_no_file_says(name: str, fields: Any, told: str) -> None:
    with pytest.raises(tp.FormatError) as error:
        tp.Graph.from_json(_edit(name, **fields))
    assert told in str(error.value)


def _shortened(dense: Any, number: int) -> Any:
    changed = json.loads(json.dumps(dense))
    keys = [place for place in _dicts(changed) if isinstance(place.get("key"), dict)]
    keys[number]["key"]["$tuple"].pop()
    return changed


def _dicts(part: Any) -> list[Any]:
    inner = list(part.values()) if isinstance(part, dict) else part if isinstance(part, list) else []
    return [part] * isinstance(part, dict) + [each for one in inner for each in _dicts(one)]


def test_damaged_dense_kernels_are_refused() -> None:
    dense = json.loads(_programs()["heads"].to_json())["graph"]["operations"][0]["dense"]
    count = sum(isinstance(place.get("key"), dict) for place in _dicts(dense))
    for number in range(count):
        with pytest.raises(tp.FormatError, match="dense= holds a kernel that computes something else"):
            tp.Graph.from_json(_edit("heads", dense=_shortened(dense, number)))
    assert count == 7


@pytest.mark.parametrize("kernel", ["jax.numpy:sum", "jax.numpy:matmul", "jax.numpy:isnan"])
def test_dense_kernels_that_give_something_else_are_refused(kernel: str) -> None:
    with pytest.raises(tp.FormatError, match="a kernel in dense= of `multiply` does not do what"):
        tp.Graph.from_json(_edit("cells", dense={"$tuple": [{"$function": kernel}]}))
