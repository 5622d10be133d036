"""Names in files: every kernel of ours has a public one, they outlive our layout, and old files are read."""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators as tp
from combinators.kernels import public_names
from combinators.kernels.names import public_name, resolve
from combinators.kernels.public_names import KERNELS, REFERENCES, place_of
from combinators.operations.compositions import Rearrangement
from combinators.operations.json import operation_from_json, operation_to_json
from combinators.operations.operation import Operation
from combinators.recording.reorder import Cast
from combinators.stored.array_functions import ARRAY_FUNCTIONS
from combinators.stored.codec import decode, encode
from combinators.stored.readable import Readable
from laws.shipped import pieces

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(__file__).parents[1] / "data"
# What was published stays: a line leaves this list when the format gets a new version.
PUBLISHED = (DATA / "names_1.txt").read_text().split()
# Dataclasses that can be called and that no operation holds: a graph, and what is made while a kernel runs.
NO_KERNELS = {"combinators.graphs.graph:Graph", "combinators.reductions:_Joined", "combinators.reductions:_Merge"}
NO_KERNELS |= {"combinators.reductions:_Reduce", "tapestry_jax.nnx.training.program:LossProgram"}
NO_KERNELS |= {"combinators.merging.careful:Careful"}  # made where something merges, and held by nothing


def named_in(stored: Any) -> set[str]:
    if isinstance(stored, list):
        return {name for item in stored for name in named_in(item)}
    if not isinstance(stored, dict):
        return set()
    own = {stored[tag] for tag in ("$function", "$dataclass") if tag in stored}
    return own | {name for item in stored.values() for name in named_in(item)}


def test_every_published_name_is_still_read() -> None:
    assert sorted(set(PUBLISHED) - KERNELS - REFERENCES) == []


def test_every_name_of_ours_stands_for_what_bears_it() -> None:
    for name in KERNELS | REFERENCES:
        module, _, qualified = place_of(name).partition(":")
        assert public_name(resolve(module, qualified)) == name


def test_every_name_of_the_list_is_in_jax() -> None:
    places = [(name, *name.split(":")) for name in ARRAY_FUNCTIONS]
    assert [name for name, module, own in places if not hasattr(importlib.import_module(module), own)] == []


def kernels_in(path: Path) -> list[str]:
    """The frozen dataclasses of a module that can be called."""
    found: list[str] = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            frozen = any("frozen=True" in ast.unparse(item) for item in node.decorator_list)
            called = any(isinstance(item, ast.FunctionDef) and item.name == "__call__" for item in node.body)
            if frozen and called:
                found.append(node.name)
    return found


def test_every_callable_dataclass_of_ours_has_a_public_name() -> None:
    unknown: list[str | None] = []
    for root in ("combinators", "tapestry_jax/nnx"):
        for path in sorted((ROOT / root).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            unknown += [public_name(getattr(importlib.import_module(module), name)) for name in kernels_in(path)]
    assert set(unknown) - KERNELS - REFERENCES - NO_KERNELS == set(), "add them to combinators/kernels/public_names.py"


MAKERS = ("Aggregator", "Map", "Monoid", "Operation", "Reduce", "Scan")


def handed_over(text: str, module: str) -> set[str]:
    """The functions of ours, as `module:name`, that a file hands to what is made of kernels, under their own names."""
    tree = ast.parse(text)
    places = {node.name: f"{module}:{node.name}" for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in (
            "combinators",
            "tapestry_jax",
        ):
            places |= {alias.asname or alias.name: f"{node.module}:{alias.name}" for alias in node.names}
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    given = (
        value.id
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in MAKERS
        for value in (*call.args, *(keyword.value for keyword in call.keywords))
        if isinstance(value, ast.Name)
    )
    return {places[name] for name in given if name in places}


def test_every_function_of_ours_that_is_a_kernel_has_a_public_name() -> None:
    found: set[str] = set()
    for root in ("combinators", "tapestry_jax/nnx"):
        for path in sorted((ROOT / root).rglob("*.py")):
            found |= handed_over(path.read_text(), ".".join(path.relative_to(ROOT).with_suffix("").parts))
    functions = {place for place in found if isinstance(resolve(*place.split(":")), FunctionType)}
    assert len(functions) > 60
    assert {public_names.published(place) for place in functions} - KERNELS - REFERENCES == set()


def test_functions_that_are_kernels_are_found() -> None:
    text = "from combinators.sums import total\ndef bent(x): ...\nMap(bent, 'a -> a')\nReduce(f, kernel=total)"
    assert handed_over(text, "here") == {"here:bent", "combinators.sums:total"}


def test_what_we_ship_is_read_without_leave() -> None:
    names, read = Readable.of(("laws",)), 0
    for given in pieces().values():
        piece: Any = getattr(given, "piece", given)
        part = getattr(piece, "operation", piece)
        if not isinstance(part, tp.Monoid | tp.Aggregator | Operation):
            continue  # a program; its operations are pieces themselves
        is_operation = isinstance(part, Operation)
        stored = json.loads(json.dumps(operation_to_json(part) if is_operation else encode(part)))
        ours = {found for found in named_in(stored) if not found.startswith("laws.")}
        assert ours <= KERNELS | REFERENCES | ARRAY_FUNCTIONS
        assert (operation_from_json(stored, "it", names) if is_operation else decode(stored, "it", names)) == part
        read += 1
    assert read > 80


def test_a_cast_keeps_the_name_that_it_had_among_the_layers() -> None:
    cast = Cast(jnp.dtype(jnp.bfloat16))
    stored = encode(cast)
    assert stored["$dataclass"] == "tapestry_jax.nnx.cast:Cast"
    assert decode(stored) == cast


def test_a_kernel_that_moved_keeps_its_name_and_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = tp.trace(tp.rearrange("(a b) -> b a", a=2), tp.TensorType({"n": 6}))
    text = graph.to_json()
    # As if it had been published elsewhere: where it lives is its new place.
    old, now = "combinators.layout:Reshuffle", f"{Rearrangement.__module__}:Rearrangement"
    monkeypatch.setattr(public_names, "MOVED", {old: now})
    monkeypatch.setattr(public_names, "_PUBLISHED", {now: old})
    monkeypatch.setattr("combinators.stored.readable.KERNELS", KERNELS | {old})
    monkeypatch.setattr("combinators.stored.codec.KERNELS", KERNELS | {old})
    moved = tp.trace(tp.rearrange("(a b) -> b a", a=2), tp.TensorType({"n": 6}))
    assert moved.to_json() != text
    assert old in moved.to_json() and now not in moved.to_json()
    assert old in moved.nodes[1].operation.fingerprint  # pyright: ignore[reportAttributeAccessIssue]
    assert tp.Graph.from_json(moved.to_json()).key == moved.key
    monkeypatch.setattr(public_names, "MOVED", {"combinators.layout": Rearrangement.__module__})
    assert place_of("combinators.layout:Rearrangement") == now


def test_a_graph_that_an_earlier_release_wrote_is_read_and_runs() -> None:
    graph = tp.Graph.from_json((DATA / "graph_1.json").read_text())
    rng = np.random.default_rng(0)
    arrays = [
        jnp.asarray(rng.integers(0, 9, kind.shape), kind.dtype)
        if kind.dtype.kind in "iu"
        else jnp.asarray(rng.standard_normal(kind.shape), kind.dtype)
        for kind in (node.results[0] for node in graph.inputs)
    ]
    given = jax.tree.unflatten(graph.in_tree, arrays)
    found = graph(*given)
    assert found.keys() >= {"y", "attended", "kept", "moved", "top", "lse", "sketch", "table", "run", "seen", "mean"}
    y = found["sums"][0]
    np.testing.assert_allclose(found["both"][0], y, rtol=1e-5)
    np.testing.assert_allclose(found["stats"]["mean"], y / 4, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["places"], np.arange(4))
