"""Fields of our own dataclasses as files may fill them: of the annotated types, and within bounds.

What the constructors of users check (`Moments(order=)`, `Bloom(hashes=)`) is checked before a kernel is made. A file
makes kernels directly, so the same has to hold for it: 2**40 hash functions would be unrolled one by one.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from combinators.errors import FormatError, message, spelt
from combinators.stored.json import REMEDY

_LARGEST = 2**40
"""Of integers that sizes are made of, which cost nothing while types are checked."""
_BOUNDS: dict[str, tuple[int, int]] = {
    "Aligned.rank": (0, 64),
    "Bins.bits": (1, 24),
    "Bits.hashes": (1, 1024),
    "CountTable.depth": (1, 1024),
    "Fork.counts": (1, 64),
    "ForkMany.counts": (1, 64),
    "MomentsMany.order": (0, 16),
    "Powers.order": (0, 16),
    "ReferenceMoments.order": (0, 16),
    "Registers.precision": (1, 24),
    "Signature.size": (1, 2**20),
}
"""Of what is unrolled, or written out as a table; least and largest, by class and field."""
_UNBOUNDED = frozenset({"seed", "numbers"})


def check_fields(cls: type, values: Mapping[str, Any], where: str) -> None:
    """Hold the values of fields against their annotations and bounds.

    Args:
      cls: a dataclass of this library.
      values: by name; defaults may be left out.
      where: the place in the file, as an error names it.

    Raises:
      FormatError: for a value of another type, an integer out of bounds, or operands that are all numbers.
    """
    hints = _hints(cls)
    for name, value in values.items():
        hint = hints[name]
        if not _fits(value, hint):
            expected = str(getattr(hint, "__name__", hint)) if isinstance(hint, type) else str(hint)
            raise _refused(cls, name, where, f"expected {expected}", value)
        least, most = _BOUNDS.get(f"{cls.__name__}.{name}", (-_LARGEST, _LARGEST))
        outside = [number for number in _integers(value) if not least <= number <= most]
        if outside and name not in _UNBOUNDED:
            raise _refused(cls, name, where, f"expected {least} to {most}", outside[0])
    positions = values.get("positions")
    if positions is not None and all(position is None for position in positions):
        # Numbers alone would be computed with at once, not traced.
        raise _refused(cls, "positions", where, "expected an operand that is no number", positions)


@cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in arguments)
    if origin is typing.Literal:
        return any(value is each or (type(value) is str and value == each) for each in arguments)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        items = cast("tuple[Any, ...]", value)
        if arguments[1:] == (...,):
            return all(_fits(item, arguments[0]) for item in items)
        return len(items) == len(arguments) and all(map(_fits, items, arguments))
    kind: Any = origin or hint
    if kind is float:
        return type(value) in (int, float)
    if kind in (int, bool, str):
        return type(value) is kind
    return isinstance(value, kind)


def _integers(value: Any) -> list[int]:
    """The integers of a field; those inside other dataclasses were checked as theirs."""
    if isinstance(value, tuple | list):
        return [number for item in cast("tuple[Any, ...]", value) for number in _integers(item)]
    return [value] if type(value) is int else []


def _refused(cls: type, name: str, where: str, expected: str, got: object) -> FormatError:
    headline = f"{where}: `{name}` of `{cls.__name__}` has a wrong value."
    return FormatError(message(headline, expected.replace("collections.abc.", ""), f"got {spelt(got)}", remedy=REMEDY))
