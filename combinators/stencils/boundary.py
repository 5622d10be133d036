"""What a stencil is told of its reach, and of what answers outside of its fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators.arguments import is_whole, read_mapping, read_name
from combinators.errors import SignatureError, message
from combinators.index_space.boundary import BOUNDARIES
from combinators.stencils.neighbours import Side

SIDES = ("one-sided", "edge", "reflect", "zero")


def read_reach(reach: Any) -> tuple[tuple[str, tuple[int, int]], ...]:
    """Dimensions and their offsets.

    Raises:
      SignatureError: for a reach that is none.
    """
    found: list[tuple[str, tuple[int, int]]] = []
    for dim, span in read_mapping(reach, "the reach of tp.stencil", SignatureError).items():
        name = read_name(dim, "a dimension of tp.stencil", SignatureError)
        pair = tuple(span) if isinstance(span, tuple | list) else ()
        if len(pair) != 2 or not all(map(is_whole, pair)) or not pair[0] <= 0 <= pair[1]:
            raise SignatureError(
                message(
                    f"the reach of tp.stencil along `{name}` is no pair of offsets around 0",
                    f"got {span!r}",
                    remedy=f'Write {{"{name}": (-1, 1)}}.',
                )
            )
        found.append((name, (int(pair[0]), int(pair[1]))))
    if not found:
        raise SignatureError(message("tp.stencil has no dimension", remedy='Write its reach: {"x": (-1, 1)}.'))
    return tuple(found)


def read_boundary(boundary: Any, dims: Sequence[str]) -> tuple[tuple[Side, Side] | str, ...]:
    """For each dimension a mode of `tp.Map`, or what answers at both ends.

    Raises:
      SignatureError: for a boundary that is none.
    """
    given = boundary if isinstance(boundary, Mapping) else dict.fromkeys(dims, boundary)
    if set(given) != {*dims}:
        raise SignatureError(
            message(
                "boundary= of tp.stencil speaks of other dimensions",
                f"expected {', '.join(dims)}, got {', '.join(map(str, given))}",
                remedy="Give one boundary for all, or one for each dimension.",
            )
        )
    return tuple(_read_mode(given[dim], dim) for dim in dims)


def check_side(side: Side, dtype: Any, dim: str, name: str) -> None:
    """What answers outside has to be of the type of the cells: a number that promotes none, and is not too large.

    Raises:
      SignatureError: where it is not.
    """
    if not isinstance(side, str | None) and not _is_cell(side, dtype):
        raise SignatureError(
            message(
                f"`{name}` takes {side!r} for cells of {dtype} outside of `{dim}`",
                remedy="Give a number of this type, or cast the field.",
            )
        )


def _is_cell(number: int | float, dtype: Any) -> bool:
    if dtype == jnp.bool_:
        return number in (0, 1)
    if not jnp.issubdtype(dtype, jnp.inexact):
        return isinstance(number, int) and jnp.iinfo(dtype).min <= number <= jnp.iinfo(dtype).max
    # No number and infinities are cells of every such type.
    return number != number or abs(number) == math.inf or abs(number) <= float(jnp.finfo(dtype).max)


def _read_mode(given: Any, dim: str) -> tuple[Side, Side] | str:
    if isinstance(given, str) and given in BOUNDARIES:
        return given
    pair = tuple(given) if isinstance(given, tuple | list) else (given, given)
    pair = tuple(side.item() if isinstance(side, np.generic) else side for side in pair)
    if len(pair) != 2 or not all(_is_side(side) for side in pair):
        raise SignatureError(
            message(
                f"unknown boundary of tp.stencil along `{dim}`",
                f"got {given!r}",
                remedy=f"Use one of {', '.join(BOUNDARIES)}, one-sided, a number, or a pair of {', '.join(SIDES)} and "
                "numbers.",
            )
        )
    return _side(pair[0]), _side(pair[1])


def _is_side(given: Any) -> bool:
    return given in SIDES if isinstance(given, str) else isinstance(given, int | float) and not isinstance(given, bool)


def _side(given: Any) -> Side:
    """The block has the cells of an edge itself."""
    return {"edge": None, "zero": 0}.get(given, given) if isinstance(given, str) else given
