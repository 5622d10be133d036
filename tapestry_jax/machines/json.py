"""Machines as JSON text: data alone, which may be written by hand."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from combinators.stored.json import entries, integer, listed, malformed, text_of
from combinators.stored.sealed import Sealed
from tapestry_jax.machines.figures import Figure, Link, Table

_FILE = Sealed("machine", "tapestry-machine", 1, "machine", "write it again: machine.to_json()", by_hand=True)
_FIGURES = ("vector", "memory", "bandwidth", "cache", "start")
_LINKS = ("inside", "between")
_TEXTS = ("name", "platform")
_COUNTS = ("group", "torus", "closes")
_LISTS = ("matmul", "shape", "tables")
_LATER: dict[str, Any] = {"hides": [], "reached": None}
"""What came to the format later, and what older files mean."""


def machine_to_json(fields: Mapping[str, Any]) -> str:
    """The fields of a machine as text."""
    return json.dumps(_FILE.seal(_written(dict(fields))), indent=1)


def machine_from_json(text: object) -> dict[str, Any]:
    """Read the fields of a machine; what figures may be is for the machine to say.

    Raises:
      FormatError: when the text is truncated, edited, of another version or no machine.
    """
    read = entries(_FILE.open(text), (*_TEXTS, *_FIGURES, *_LINKS, *_COUNTS, *_LISTS), "the machine", _LATER)
    found: dict[str, Any] = {name: text_of(read[name], name) for name in _TEXTS}
    found |= {name: _figure(read[name], name) for name in _FIGURES}
    found |= {name: _link(read[name], name) for name in _LINKS}
    found |= {name: integer(read[name], name) for name in _COUNTS}
    found["shape"] = tuple(integer(size, "shape") for size in listed(read["shape"], "shape"))
    found["matmul"] = tuple(_named(pair, "matmul", "dtype") for pair in listed(read["matmul"], "matmul"))
    found["hides"] = tuple(_named(pair, "hides", "kind") for pair in listed(read["hides"], "hides"))
    found["reached"] = None if read["reached"] is None else _figure(read["reached"], "reached")
    found["tables"] = tuple(_table(table, f"table {at}") for at, table in enumerate(listed(read["tables"], "tables")))
    return found


def _written(part: Any) -> Any:
    if isinstance(part, Figure | Link | Table):
        return {item.name: _written(getattr(part, item.name)) for item in dataclasses.fields(part)}
    if isinstance(part, dict):
        return {name: _written(value) for name, value in part.items()}  # pyright: ignore[reportUnknownVariableType]
    return [_written(each) for each in part] if isinstance(part, tuple) else part  # pyright: ignore[reportUnknownVariableType]


def _figure(stored: Any, where: str) -> Figure:
    read = entries(stored, ("value", "source"), where, {"estimate": False})
    if type(read["estimate"]) is not bool:
        raise malformed(f"{where}, estimate", "true or false", read["estimate"])
    return Figure(
        _number(read["value"], f"{where}, value"), text_of(read["source"], f"{where}, source"), read["estimate"]
    )


def _link(stored: Any, where: str) -> Link:
    read = entries(stored, ("kind", "bandwidth", "latency"), where)
    if read["kind"] not in ("torus", "switch"):
        raise malformed(f"{where}, kind", "torus or switch", read["kind"])
    figures = (_figure(read[name], f"{where}, {name}") for name in ("bandwidth", "latency"))
    return Link(read["kind"], *figures)


def _named(stored: Any, where: str, name: str) -> tuple[str, Figure]:
    pair = listed(stored, where)
    if len(pair) != 2:
        raise malformed(where, f"pairs of a {name} and a figure", stored)
    named = text_of(pair[0], f"{where}, {name}")
    return named, _figure(pair[1], f"{where}, {named:.40}")


def _table(stored: Any, where: str) -> Table:
    read = entries(stored, ("kind", "axes", "points"), where)
    axes = tuple(text_of(axis, f"{where}, axes") for axis in listed(read["axes"], f"{where}, axes"))
    points = tuple(_point(point, f"{where}, points") for point in listed(read["points"], f"{where}, points"))
    return Table(text_of(read["kind"], f"{where}, kind"), axes, points)


def _point(stored: Any, where: str) -> tuple[float, float]:
    pair = listed(stored, where)
    if len(pair) != 2:
        raise malformed(where, "pairs of bytes and seconds", stored)
    return _number(pair[0], where), _number(pair[1], where)


def _number(stored: Any, where: str) -> float:
    if type(stored) not in (int, float):
        raise malformed(where, "a number", stored)
    return float(stored)
