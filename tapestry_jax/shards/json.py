"""Sharded graphs as JSON text: data alone, with a checksum that may be left out by who writes one by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, cast

from combinators.errors import FormatError, PlanError, TapestryError, message
from combinators.graphs.json import type_from_json, type_to_json
from combinators.operations.json import operation_from_json, operation_to_json
from combinators.stored.json import REMEDY, check_length, entries, listed, malformed, readable_errors, text_of
from combinators.stored.readable import Readable
from combinators.stored.sealed import Sealed
from combinators.stored.trees import tree_from_json, tree_to_json
from tapestry_jax.shards import parts
from tapestry_jax.shards.parts import Coordinate, Piece, Program, Read, Shared, Value
from tapestry_jax.shards.ranges import Range
from tapestry_jax.shards.references import check_references

_FILE = Sealed(
    "sharded graph", "tapestry-shards", 1, "content", "write it again: plan.shards().to_json()", by_hand=True
)
_DEEPEST = 24
_STEPS: dict[str, type] = {
    each.__name__.lower(): each
    for each in (parts.Take, parts.Block, parts.Move, parts.Merge, parts.Present, parts.View, parts.Next, parts.Repeat)
}


def shards_to_json(shared: Shared, program: Program) -> str:
    """Store a sharded graph as one line of JSON: format, version, checksum and content.

    Raises:
      KernelError: where a kernel has no public name.
      GraphError: where a name is not printable or too long, or something is nested too deeply.
      PlanError: when no file may be as large.
    """
    content = {
        "coordinates": [_written(each) for each in shared.coordinates],
        "operations": [operation_to_json(operation) for operation in shared.operations],
        "program": _program(program),
    }
    return check_length(json.dumps(_FILE.seal(content), separators=(",", ":")), "the sharded graph", PlanError)


def shards_from_json(text: str, allow: Sequence[str] = ()) -> tuple[Shared, Program]:
    """Read a sharded graph back; nothing is called.

    Raises:
      FormatError: when the text is truncated, edited or of another version, names what is not allowed, or refers to
        what it does not hold.
    """
    names = Readable.of(allow)
    with readable_errors():
        content = entries(_FILE.open(text), ("coordinates", "operations", "program"), "the sharded graph")
        try:
            coordinates = [
                _object(Coordinate, each, f"coordinate {number}", 0)
                for number, each in enumerate(listed(content["coordinates"], "coordinates"))
            ]
            operations = [
                operation_from_json(each, f"operation {number}", names)
                for number, each in enumerate(listed(content["operations"], "operations"))
            ]
            shared = Shared(tuple(coordinates), tuple(operations))
            program = _read_program(content["program"], "program", 0)
            check_references(shared, program)
        except FormatError:
            raise
        except (TapestryError, RecursionError) as error:
            raise FormatError(message("the file says no sharded graph.", str(error)[:300], remedy=REMEDY)) from error
    return shared, program


# Writing


def _written(part: Any) -> Any:
    """A dataclass as an object of the fields that differ from their defaults."""
    if isinstance(part, tuple):
        return [_written(each) for each in cast("tuple[Any, ...]", part)]
    if isinstance(part, Program):
        return _program(part)
    if isinstance(part, Value):
        kept = {"type": type_to_json(part.type), "path": part.path}
        return {**kept, "state": True} if part.state else kept
    if not isinstance(part, Range | Piece | Read | Coordinate) and type(part).__name__.lower() not in _STEPS:
        return part
    found: dict[str, Any] = {}
    if type(part).__name__.lower() in _STEPS and not isinstance(part, Read):
        found["step"] = type(part).__name__.lower()
    for item in fields(part):
        value = getattr(part, item.name)
        if item.default is MISSING or value != item.default:
            found[item.name] = _written(value)
    return found


def _program(program: Program) -> dict[str, Any]:
    return {
        "name": program.name,
        "values": _written(program.values),
        "pieces": _written(program.pieces),
        "steps": _written(program.steps),
        "outputs": _written(program.outputs),
        "named": _written(program.named),
        "suggested": sorted(program.suggested),
        "in_tree": tree_to_json(program.in_tree),
        "out_tree": tree_to_json(program.out_tree),
    }


# Reading


def _int(stored: Any, where: str, depth: int) -> int:
    del depth
    if type(stored) is not int or not -(2**63) < stored < 2**63:
        raise malformed(where, "an integer below 2**63", stored)
    return stored


def _bool(stored: Any, where: str, depth: int) -> bool:
    del depth
    if type(stored) is not bool:
        raise malformed(where, "true or false", stored)
    return stored


def _text(stored: Any, where: str, depth: int) -> str:
    del depth
    return text_of(stored, where)


Reader = Callable[[Any, str, int], Any]


def _many(one: Reader) -> Reader:
    def read(stored: Any, where: str, depth: int) -> tuple[Any, ...]:
        return tuple(one(each, f"{where}[{number}]", depth) for number, each in enumerate(listed(stored, where)))

    return read


def _pair(first: Reader, second: Reader) -> Reader:
    def read(stored: Any, where: str, depth: int) -> tuple[Any, Any]:
        pair = listed(stored, where)
        if len(pair) != 2:
            raise malformed(where, "a pair", stored)
        return first(pair[0], where, depth), second(pair[1], where, depth)

    return read


def _of(kind: type) -> Reader:
    return lambda stored, where, depth: _object(kind, stored, where, depth)


def _or_none(one: Reader) -> Reader:
    return lambda stored, where, depth: None if stored is None else one(stored, where, depth)


def _body(stored: Any, where: str, depth: int) -> Program:
    return _read_program(stored, where, depth + 1)


_BOX, _TEXTS, _INTS = _many(_of(Range)), _many(_text), _many(_int)
_PAIRS = _many(_pair(_text, _text))
_READERS: dict[type, Mapping[str, Reader]] = {
    Range: {
        **dict.fromkeys(("low", "count", "before", "after", "offset", "stride", "width", "deal"), _int),
        "steps": _many(_pair(_text, _int)),
        "limit": _pair(_int, _int),
        "wraps": _bool,
        "mode": _text,
    },
    Coordinate: {"name": _text, "count": _int, "kind": _text, "along": _TEXTS},
    Piece: {
        "value": _int,
        "box": _BOX,
        "loops": _TEXTS,
        "partial": _TEXTS,
        "substep": _int,
        "only": _many(_pair(_text, _int)),
    },
    Read: {"piece": _int, "box": _BOX},
    parts.Take: {"name": _text, "result": _int},
    parts.Block: {
        **dict.fromkeys(("operation", "runs", "substep"), _int),
        **dict.fromkeys(("loops", "chain"), _TEXTS),
        **dict.fromkeys(("makes", "results"), _INTS),
        "path": _text,
        "names": _PAIRS,
        "box": _many(_pair(_text, _of(Range))),
        "reads": _many(_of(Read)),
    },
    parts.Move: {"path": _text, "source": _int, "result": _int, "over": _TEXTS, "how": _TEXTS},
    parts.Merge: {"path": _text, "sources": _INTS, "results": _INTS, "over": _TEXTS, "how": _text},
    parts.Present: {"path": _text, "sources": _INTS, "results": _INTS},
    parts.View: {"path": _text, "source": _int, "result": _int, "names": _PAIRS},
    parts.Next: {"source": _int, "result": _int},
    parts.Repeat: {
        **dict.fromkeys(("loop", "first", "turns", "depth", "carries"), _int),
        **dict.fromkeys(("path", "turn"), _text),
        "loops": _TEXTS,
        **dict.fromkeys(("axes", "operands", "makes", "results"), _INTS),
        "over": _or_none(_text),
        "stage": _or_none(_of(Range)),
        "until": _bool,
        "body": _body,
    },
}


def _object(kind: type, stored: Any, where: str, depth: int) -> Any:
    """A dataclass from an object of its fields; those with defaults may be left out."""
    later = {item.name: None for item in fields(kind) if item.default is not MISSING}
    needed = [item.name for item in fields(kind) if item.default is MISSING]
    given = cast("dict[str, Any]", stored) if isinstance(stored, dict) else stored
    entries(given, needed, where, later)
    readers = _READERS[kind]
    return kind(**{name: readers[name](value, f"{where}, {name}", depth) for name, value in given.items()})


def _step(stored: Any, where: str, depth: int) -> parts.Step:
    given = cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}
    name = given.get("step")
    if not isinstance(name, str) or name not in _STEPS:
        raise malformed(where, f"a step: {', '.join(_STEPS)}", stored)
    return _object(_STEPS[name], {key: value for key, value in given.items() if key != "step"}, where, depth)


def _value(stored: Any, where: str, depth: int) -> Value:
    found = entries(stored, ("type", "path"), where, {"state": False})
    state = _bool(found["state"], f"{where}, state", depth)
    return Value(type_from_json(found["type"], f"{where}, type"), text_of(found["path"], f"{where}, path"), state)


_PROGRAM = ("name", "values", "pieces", "steps", "outputs", "named", "suggested", "in_tree", "out_tree")


def _read_program(stored: Any, where: str, depth: int) -> Program:
    if depth > _DEEPEST:
        raise malformed(where, f"at most {_DEEPEST} loops inside each other", "one more")
    found = entries(stored, _PROGRAM, where)
    pairs = _many(_pair(_text, _int))
    return Program(
        text_of(found["name"], f"{where}, name"),
        _many(_value)(found["values"], f"{where}, values", depth),
        _many(_of(Piece))(found["pieces"], f"{where}, pieces", depth),
        _many(_step)(found["steps"], f"{where}, steps", depth),
        pairs(found["outputs"], f"{where}, outputs", depth),
        pairs(found["named"], f"{where}, named", depth),
        frozenset(_TEXTS(found["suggested"], f"{where}, suggested", depth)),
        tree_from_json(found["in_tree"], f"{where}, in_tree"),
        tree_from_json(found["out_tree"], f"{where}, out_tree"),
    )
