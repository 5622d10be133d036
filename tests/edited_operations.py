"""Every field of every operation of a graph file, changed to what else it could be."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

_NAME = re.compile(r"[A-Za-z_]\w*")
_MONOIDS = ("Max", "Sum", "Min", "Mean", "LogSumExp", "Any", "ArgMax")
_BOUNDARIES = ("valid", "zero", "periodic", "reflect", "edge", "own")


def edited(content: Any) -> Iterator[tuple[str, Any]]:
    """What was changed, and the content of the file with that change alone.

    Args:
      content: of the file of a graph, parsed.
    """
    operations = content["operations"]
    for number, operation in enumerate(operations):
        for key, value in operation.items():
            tried: list[Any] = [value]
            for other in _others(operations, number, key):
                if other not in tried:
                    tried.append(other)
                    changed = copy.deepcopy(content)
                    changed["operations"][number][key] = copy.deepcopy(other)
                    yield f"operation {number} ({operation['signature']}), {key}: {other!r:.200}", changed


def _others(operations: list[Any], number: int, key: str) -> list[Any]:
    signature = operations[number]["signature"]
    dims = sorted(set(_NAME.findall(signature)))
    return [
        *(None, True, False),
        *dims,
        *(operation[key] for operation in operations),
        *_OWN.get(key, _nothing)(operations[number], dims),
    ]


def _nothing(operation: Any, dims: list[str]) -> list[Any]:
    return []


def _carriers(operation: Any, dims: list[str]) -> list[Any]:
    leaves = (operation["carrier"] or {"$tuple": []})["$tuple"]
    turned = [_tuple(*(_tuple(*leaf["$tuple"][::step]) for leaf in leaves)) for step in (-1, 2)]
    pairs = [(one, other) for one in dims for other in dims]
    return [*turned, *(_tuple(_tuple(dim)) for dim in dims), *(_tuple(_tuple(*pair)) for pair in pairs)]


def _sizes(operation: Any, dims: list[str]) -> list[Any]:
    return [_tuple(_tuple(dim, size)) for dim in dims for size in (1, 2, 4)]


def _pads(operation: Any, dims: list[str]) -> list[Any]:
    count = operation["signature"].partition("->")[0].count(",") + 1
    return [_tuple(*[value] * number) for value in (0, 1, -1, None, True) for number in (count, count + 1)]


def _signatures(operation: Any, dims: list[str]) -> list[Any]:
    text = operation["signature"]
    left, _, right = text.partition("->")
    found: list[str] = []
    for dim in dims:
        name = rf"\b{dim}\b"
        found += [re.sub(rf"\[{dim}\]", dim, text), re.sub(name, f"[{dim}]", text)]
        found += [left + "->" + re.sub(name, "", right), re.sub(name, "", left) + "->" + right]
        for other in dims:
            swap = {dim: other, other: dim}
            found.append(_NAME.sub(lambda told, swap=swap: swap.get(told[0], told[0]), text))
            found.append(left + "->" + re.sub(name, other, right))
    return found


_OWN: dict[str, Any] = {
    "carrier": _carriers,
    "sizes": _sizes,
    "pad": _pads,
    "signature": _signatures,
    "monoid": lambda operation, dims: [{"name": name} for name in _MONOIDS],
    "boundary": lambda operation, dims: list(_BOUNDARIES),
    "rank": lambda operation, dims: [0, 1, 2],
    "dense": lambda operation, dims: [_tuple(operation["kernel"])],
}


def _tuple(*parts: Any) -> Any:
    return {"$tuple": list(parts)}
