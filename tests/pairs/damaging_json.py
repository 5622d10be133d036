"""Sharded graphs damaged at random as files are: one field of their JSON changed, to what could stand there."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

from tapestry_jax.shards.sharded_graph import ShardedGraph

ALLOWED = ("tests", "examples", "gallery", "laws")
"""Packages whose kernels the files may name."""
_LEFT_OUT: dict[str, tuple[Any, ...]] = {
    "before": (1, 2),
    "after": (1, 2),
    "wraps": (True,),
    "offset": (1, -1),
    "stride": (2,),
    "width": (2, 0),
    "deal": (1, 2),
    "mode": ("zero", "periodic", "edge"),
}
"""Fields of a range that files leave out where they say nothing, and what else they could say."""

Place = tuple[Any, Any]


def damaged(text: str, rng: Random) -> tuple[str, str]:
    """One random change to the JSON of a sharded graph; which, and the text. The change may say the same as before."""
    stored = json.loads(text)
    del stored["sha256"]
    content = stored["content"]
    places = [*_places(content["program"], "program")]
    if rng.random() < 0.1:
        places = [*_places(content["coordinates"], "coordinates"), *_places(content["operations"], "operations")]
    where, parent, key = rng.choice(places)
    before = json.dumps(parent[key])[:160]
    alike = [other[place] for _, other, place in places if place == key and isinstance(key, str)]
    told = _change(parent, key, alike or [other[place] for _, other, place in places if other is parent], rng)
    return f"{where}: {before} -> {told}", json.dumps(stored)


def read(text: str) -> ShardedGraph:
    """The sharded graph that a file says."""
    return ShardedGraph.from_json(text, allow=ALLOWED)


def _places(part: Any, where: str) -> Iterator[tuple[str, Any, Any]]:
    keys = list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
    for key in keys:
        yield f"{where}/{key}", part, key
        yield from _places(part[key], f"{where}/{key}")


def _change(parent: Any, key: Any, alike: list[Any], rng: Random) -> str:
    value = parent[key]
    if isinstance(value, dict) and "limit" in value and rng.random() < 0.5:
        name = rng.choice(list(_LEFT_OUT))
        value[name] = rng.choice(_LEFT_OUT[name])
        return f"{name} {value[name]}"
    parent[key] = copy.deepcopy(rng.choice(alike) if rng.random() < 0.5 else _another(value, rng))
    return json.dumps(parent[key])[:160]


def _another(value: Any, rng: Random) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return rng.choice((value + 1, value - 1, 0, 2 * value, -value))
        case str():
            return rng.choice((value + "'", value[:-1]))
        case list() if value:
            at = rng.randrange(len(value))
            return rng.choice((value[::-1], value[:at] + value[at + 1 :], [*value[: at + 1], *value[at:]]))
        case dict() if value:
            gone = rng.choice(list(value))
            return {name: each for name, each in value.items() if name != gone}
        case _:
            return rng.choice(([], 0, 1, None))
