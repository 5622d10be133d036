"""Sharded graphs as files: data alone, read back the same, or refused with what is wrong."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.shards.sharded_graph import ShardedGraph
from tests.tapestry_jax.shards.examples import PLANS, plan_of, shards_of
from tests.tapestry_jax.shards.test_run import arguments

HERE = ("tests.tapestry_jax.shards.examples", "tests.pairs.kernels")


@pytest.mark.parametrize("name", PLANS)
def test_a_sharded_graph_is_read_back_as_it_was(name: str) -> None:
    shards = shards_of(name)
    found = ShardedGraph.from_json(shards.to_json(), allow=HERE)
    assert found == shards
    found.verify(plan_of(name).graph)
    assert found.to_json() == shards.to_json()


def test_a_file_may_be_written_by_hand() -> None:
    """Rows in halves, and their sum: no checksum, and only what is not the default."""
    double = {"step": "block", "path": "negative", "operation": 0, "runs": 0, "names": [["d0", "n"]]}
    rows = {"low": 0, "count": 4, "steps": [["data", 4]], "limit": [0, 8]}
    stored = json.loads(tp.trace(tp.Map(_negative()), tp.TensorType({"n": 8})).to_json())["graph"]
    kind = {"dtype": "float32", "dims": [["n", 8]]}
    program = {
        "name": stored["name"],
        "values": [{"type": kind, "path": "x"}, {"type": kind, "path": "negative"}],
        "pieces": [{"value": 0, "box": [rows]}, {"value": 1, "box": [rows]}],
        "steps": [
            {"step": "take", "name": "x", "result": 0},
            double
            | {
                "box": [["d0", rows]],
                "loops": [],
                "reads": [{"piece": 0, "box": [rows]}],
                "makes": [1],
                "results": [1],
            },
        ],
        "outputs": [["y", 1]],
        "named": [],
        "suggested": [],
        "in_tree": stored["in_tree"],
        "out_tree": stored["out_tree"],
    }
    content = {"coordinates": [{"name": "data", "count": 2}], "operations": stored["operations"], "program": program}
    text = json.dumps({"format": "tapestry-shards", "version": 1, "content": content})
    shards = ShardedGraph.from_json(text)
    shards.verify(tp.trace(tp.Map(_negative()), tp.TensorType({"n": 8})))
    assert [dict(block.box) for block in shards.blocks()] == [{"d0": (0, 4)}, {"d0": (4, 8)}]


def _negative() -> Any:
    import jax.numpy as jnp

    return jnp.negative


def _edited(change: Callable[[dict[str, Any]], object]) -> str:
    stored = json.loads(shards_of("megatron").to_json())
    change(stored["content"])
    del stored["sha256"]
    return json.dumps(stored)


def _set(*route: str | int, value: Any) -> Callable[[dict[str, Any]], object]:
    def change(content: Any) -> None:
        for part in route[:-1]:
            content = content[part]
        content[route[-1]] = value

    return change


BAD = {
    "no text": (lambda: 3, "the file is no text"),
    "truncated": (lambda: shards_of("megatron").to_json()[:-20], "is no JSON"),
    "edited": (lambda: shards_of("megatron").to_json().replace('"count":4', '"count":5'), "`content` was edited"),
    "newer": (lambda: shards_of("megatron").to_json().replace('"version":1', '"version":2'), "of this version"),
    "a piece that is not there": (lambda: _edited(_set("program", "steps", 0, "result", value=99)), "piece 99 of"),
    "a tensor that is not there": (lambda: _edited(_set("program", "pieces", 0, "value", value=99)), "tensor 99 of"),
    "a negative number": (lambda: _edited(_set("program", "outputs", 0, 1, value=-1)), "piece -1 of"),
    "an axis that is not there": (
        lambda: _edited(_set("program", "pieces", 0, "box", 0, "steps", value=[["nowhere", 1]])),
        "the coordinate 'nowhere'",
    ),
    "a path that steers a terminal": (
        lambda: _edited(_set("program", "values", 0, "path", value="\x1b[2J")),
        "the file, content, program, values[0], path holds line breaks or control characters",
    ),
    "another rank": (lambda: _edited(_set("program", "pieces", 0, "box", value=[])), "0 axes of a tensor"),
    "another step": (lambda: _edited(_set("program", "steps", 0, "step", value="jump")), "a step: take, block"),
    "another kind": (lambda: _edited(_set("program", "steps", 0, "result", value="0")), "an integer below"),
    "one field more": (lambda: _edited(_set("program", "steps", 0, "more", value=1)), "an object of"),
    "a kernel that is not allowed": (
        lambda: _edited(_set("operations", 0, "kernel", value={"$function": "os:system"})),
        "operation 0",
    ),
    "cells without end": (
        lambda: _edited(
            _set("program", "pieces", 0, "box", 0, value={"low": 0, "count": 1, "mode": "edge", "offset": -(2**60)})
        ),
        "cells outside of a tensor",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_damaged_files_are_refused(name: str) -> None:
    make, told = BAD[name]
    with pytest.raises(tp.FormatError) as found:
        ShardedGraph.from_json(make())  # pyright: ignore[reportArgumentType]
    assert told in str(found.value)


def test_random_damage_is_read_proved_or_refused() -> None:
    """No other error than ours, whatever a file says."""
    rng, refused = Random(3), 0
    for name in ("megatron", "ring", "pipeline", "deep"):
        text, graph = shards_of(name).to_json(), plan_of(name).graph
        for _ in range(30):
            stored = json.loads(text)
            del stored["sha256"]
            _damage(stored["content"], rng)
            try:
                ShardedGraph.from_json(json.dumps(stored), allow=HERE).verify(graph)
            except tp.TapestryError:
                refused += 1
    assert refused > 60


def test_blocks_that_nobody_has_proved_are_run_and_priced_or_refused() -> None:
    """What a file says is proved before numbers are given; a price needs no proof. No error is another than ours."""
    rng, refused = Random(5), 0
    for name in ("megatron", "scan", "periodic", "pipeline"):
        stored, graph = json.loads(shards_of(name).to_json()), plan_of(name).graph
        args = arguments(graph)
        del stored["sha256"]
        for _ in range(25):
            damaged = copy.deepcopy(stored)
            _damage(damaged["content"], rng)
            try:
                shards = ShardedGraph.from_json(json.dumps(damaged), allow=HERE)
            except tp.FormatError:
                continue
            with contextlib.suppress(tp.PlanError):
                shards.cost("H100")
            try:
                got = shards.run(*args)
            except (tp.PlanError, tp.GraphError, tp.SignatureError):
                refused += 1
                continue
            if shards.abstract() == graph:
                np.testing.assert_allclose(*map(jax.tree.leaves, (got, graph(*args))), rtol=1e-4, atol=1e-5)
    assert refused > 20


def test_a_piece_that_is_made_of_itself_has_no_price() -> None:
    """A move along which a price would be looked for without an end."""
    stored = json.loads(shards_of("scan").to_json())
    del stored["sha256"]
    steps = stored["content"]["program"]["steps"]
    move = next(step for step in steps if step["step"] == "move" and step["path"] == "scan")
    move["source"] = move["result"]
    shards = ShardedGraph.from_json(json.dumps(stored), allow=HERE)
    with pytest.raises(tp.PlanError, match="have no price\n  ValueError: `scan` reads what is not made before it"):
        shards.cost("H100")
    with pytest.raises(tp.PlanError):
        shards.run(*arguments(plan_of("scan").graph))


def _damage(content: Any, rng: Random) -> None:
    routes = list(_routes(content))
    part, key = rng.choice([route for route in routes if route[1] not in ("in_tree", "out_tree", "path", "how")])
    old = part[key]
    part[key] = rng.choice([old - 1, old + 1, -old, 2**40]) if type(old) is int else rng.choice([None, [], 0, "x", {}])


def _routes(part: Any) -> Any:
    for key in part if isinstance(part, dict) else range(len(part)):
        yield part, key
        if isinstance(part[key], dict | list):
            yield from _routes(part[key])


@pytest.mark.parametrize("number", [2**63, -(2**63)])
def test_numbers_that_no_index_reaches_are_refused(number: int) -> None:
    stored = json.loads(shards_of("halo").to_json())
    stored["content"]["program"]["pieces"][0]["box"][0]["low"] = number
    del stored["sha256"]
    with pytest.raises(tp.FormatError, match=r"an integer below 2\*\*63"):
        ShardedGraph.from_json(json.dumps(stored), allow=HERE)


def test_more_turns_than_are_counted_are_refused() -> None:
    graph = tp.trace(tp.iterate(tp.Map(jnp.sin), 3), tp.TensorType({"x": 4}))
    stored = json.loads(tp.plan(graph, tp.mesh(d=1), {"x": "d"}).shards().to_json())
    (loop,) = (step for step in stored["content"]["program"]["steps"] if step["step"] == "repeat")
    loop["turns"] = 2**31
    del stored["sha256"]
    with pytest.raises(tp.FormatError, match="2147483648 turns of 1, and JAX counts 2147483647"):
        ShardedGraph.from_json(json.dumps(stored))
