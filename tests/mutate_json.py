"""Damage for stored JSON: mutations that know its structure, so that they get past the first check."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 64, 65, 2**16, 2**31, 2**40, 2**63, 2**64 - 1, 0.5, -0.0, 1e308,
    "", "*", "a", "x y", "\x1b[2J", "é", "a" * 5000, "i k, k n -> i n", "(99999999999*y) -> y", "... -> ...", "@q -> q",
    [], {}, [[]], [0], [0, 0], [[0, 0]], {"$tuple": []}, {"$tuple": [0]}, {"$tuple": ["a", "a"]}, {"$dict": []},
    {"$float": "nan"}, {"$float": "inf"}, {"$dtype": "float32"}, {"$dtype": "V8"}, {"$function": "os:system"},
    *({"$function": f"jax.numpy:{name}"} for name in ("save", "add", "sum", "reshape", "float32", "full_like")),
    {"$function": "operator:add"}, {"$function": "combinators.monoid:Monoid"},
    {"$function": "combinators.aggregator:OnHost"}, {"$dataclass": "jax.numpy:add", "fields": {}},
    {"$dataclass": "combinators.monoid:Leafwise", "fields": {"function": {"$function": "jax.numpy:add"}}},
    {"$dataclass": "combinators.monoid:Leafwise", "fields": {}},
    {"$partial": {"function": {"$function": "jax.numpy:sum"}, "arguments": [], "keywords": {"axis": 2**40}}},
    {"$partial": {"function": {"$function": "jax.numpy:tile"}, "arguments": [], "keywords": {"reps": 2**40}}},
    {"name": "Sum"}, {"name": "AffineRecurrence"}, {"tuple": ["*", "*"]}, {"dict": [["a", "*"], [1, "*"]]},
    {"chunks": 2**40}, {"chunks": 0}, {"chunk_size": 1}, {"ring": "data"}, {"halo": 2**40},
    {"striped": ["data", "data"]},
)  # fmt: skip


def mutated(content: Any, random: random.Random, pool: list[Any] | None = None) -> Any:
    """A copy with one to three mutations.

    Args:
      content: parsed JSON.
      random: draws them.
      pool: parts of other files, which may be put in.
    """
    content = copy.deepcopy(content)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        places = list(_places(content))
        if not places:
            return content
        parent, key = random.choice(places)
        _change(parent, key, places, random, pool or [])
    return content


def parts(content: Any) -> list[Any]:
    """Every part of a content, to put into another."""
    return [parent[key] for parent, key in _places(content)]


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    waiting = [content]
    while waiting:
        part = waiting.pop()
        keys = list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
        for key in keys:
            yield part, key
            waiting.append(part[key])


def _change(parent: Any, key: Any, places: list[tuple[Any, Any]], random: random.Random, pool: list[Any]) -> None:
    value = parent[key]
    other, place = random.choice(places)
    match random.randrange(9):
        case 0:
            parent[key] = copy.deepcopy(random.choice(HOSTILE))
        case 1 if pool:
            parent[key] = copy.deepcopy(random.choice(pool))
        case 2:
            parent[key] = copy.deepcopy(other[place])
        case 3:
            del parent[key]
        case 4 if isinstance(parent, list):
            parent.insert(key, copy.deepcopy(value))
        case 5 if isinstance(parent, dict):
            parent[random.choice(("", "kind", "$function", f"{key}_"))] = parent.pop(key)
        case 6:
            for _ in range(random.choice((1, 3, 130))):
                value = [value] if random.random() < 0.5 else {"$tuple": [value]}
            parent[key] = value
        case 7 if type(value) is int:
            parent[key] = random.choice(
                (value + 1, value - 1, -value, 2 * value, value * 2**33, float(value), str(value))
            )
        case _:
            # A copy: a part that stands in two places, or in HOSTILE, would be changed there too by what comes next.
            parent[key] = copy.deepcopy(_edited(value, random))


def _edited(value: Any, random: random.Random) -> Any:
    if isinstance(value, str) and value:
        at = random.randrange(len(value))
        return value[:at] + random.choice(("", value[at] * 2, "(", "]", ",", "0", ":", " ", "\ud800")) + value[at + 1 :]
    if isinstance(value, list):
        return random.choice((value[::-1], value * 2, value[1:], value[:-1], dict(enumerate(map(str, value)))))
    if isinstance(value, dict):
        return random.choice((list(value), dict(list(value.items())[:-1]), list(value.values())))
    return random.choice(HOSTILE)
