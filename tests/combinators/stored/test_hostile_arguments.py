"""A sample of the attack on what files may name: array functions by argument, our own kernels by field."""

from __future__ import annotations

import json
import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import combinators as tp
from combinators.stored.array_functions import ARRAY_FUNCTIONS
from tests.combinators.hostile_parts import BASE, named, partial, signed
from tests.mutate_json import HOSTILE

PIECES = Path(__file__).parents[1] / "data" / "pieces_2.json"
ARGUMENTS: list[Any] = [
    None, True, 0, -1, 7, 2**31, -(2**40), 2**40, 2**64 - 1, 0.5, {"$float": "inf"}, {"$float": "nan"}, "", "clip",
    "ij,jk->ik", "a" * 2000, [], [-1, 2**40], [2**31] * 2, [1] * 300, {"$tuple": []}, {"$tuple": [2**40, 2**40]},
    {"$tuple": [{"$tuple": [0, 2**31]}] * 2}, {"a": 2**40}, {"$dict": [[0, 2**31]]}, {"$dtype": "int8"},
    named("jax.numpy:float32"), named("jax.numpy:sin"), "S9999999999",
]  # fmt: skip


@pytest.fixture(autouse=True)
def within_bounds() -> Iterator[None]:
    jax.eval_shape(jnp.sin, 1.0)
    start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - start < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500 * 1024


def outcome(content: Any) -> str:
    try:
        tp.Graph.from_json(signed(content))
    except tp.FormatError as error:
        text = str(error)
        assert max(map(len, text.split("\n"))) <= 400 and text.replace("\n", "").isprintable()
        return "refused"
    return "read"


def test_array_functions_take_hostile_arguments() -> None:
    draws = random.Random(0)
    names = draws.sample(sorted(ARRAY_FUNCTIONS), 40) + ["jax.numpy:tile", "jax.numpy:repeat", "jax.lax:broadcast"]
    told: list[str] = []
    for name in names:
        keywords = {draws.choice(("axis", "shape", "dtype", "axes", "reps")): draws.choice(ARGUMENTS)}
        for kernel in (partial(name, draws.choice(ARGUMENTS)), partial(name, **keywords)):
            content = json.loads(json.dumps(BASE))
            content["operations"][0]["kernel"] = kernel
            for node in content["nodes"]:
                node["types"][0]["dims"][0][1] = draws.choice((4, 2**31, 2**40))
            told.append(outcome(content))
    assert told.count("refused") > 60


def test_kernels_take_hostile_fields() -> None:
    graphs = json.loads(PIECES.read_text())["graphs"]
    draws, told = random.Random(0), list[str]()
    for name in ("random", "attention", "loops", "leaves"):
        for _ in range(15):
            content = json.loads(graphs[name])["graph"]
            fields = draws.choice(list(_dataclasses(content)))["fields"]
            if fields:
                fields[draws.choice(sorted(fields))] = draws.choice((*HOSTILE, *ARGUMENTS))
            told.append(outcome(content))
    assert told.count("refused") > 30


def _dataclasses(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict) and "$dataclass" in part:
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _dataclasses(inner)
