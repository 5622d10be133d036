"""Parts of files that were made to do harm."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import jax.numpy as jnp

import combinators as tp

BASE = json.loads(tp.trace(tp.Map(jnp.sin, "a b -> a b"), tp.TensorType({"a": 4, "b": 3})).to_json())["graph"]
FOLD = json.loads(tp.trace(tp.fold(tp.aggregators.Moments(), "a b -> b"), tp.TensorType({"a": 4, "b": 3})).to_json())


def signed(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({"format": "tapestry-graph", "version": 1, "sha256": digest, "graph": content})


def graph(**fields: Any) -> str:
    """The base graph, other fields of its one operation."""
    content = json.loads(json.dumps(BASE))
    content["operations"][0] |= fields
    return signed(content)


def edited(*path: Any, value: Any, content: Any = BASE) -> str:
    content = json.loads(json.dumps(content))
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return signed(content)


def named(name: str) -> dict[str, Any]:
    return {"$function": name}


def partial(name: str, *arguments: Any, **keywords: Any) -> dict[str, Any]:
    return {"$partial": {"function": named(name), "arguments": list(arguments), "keywords": keywords}}


def dataclass(name: str, **fields: Any) -> dict[str, Any]:
    return {"$dataclass": name, "fields": fields}


def monoid(combine: Any) -> dict[str, Any]:
    return {"fields": {"identity": 0.0, "combine": combine}}


def sized(size: int, **fields: Any) -> str:
    """The base graph on arrays of `size` rows."""
    content = json.loads(graph(**fields))["graph"]
    for node in content["nodes"]:
        node["types"][0]["dims"][0][1] = size
    return signed(content)
