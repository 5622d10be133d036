"""Every cell of a result is made of the cells of the arguments that the program makes it of; no array is made."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.errors import PlanError, message
from combinators.frozen import dataclass
from combinators.graphs.evaluate import evaluate
from combinators.graphs.graph import Graph
from combinators.kernels.jaxprs import programs_inside
from tapestry_jax.shards.lowered.exact import check_exact
from tapestry_jax.shards.lowered.made_of import ANYTHING, MadeOf, cells, is_cells
from tapestry_jax.shards.lowered.moved import refuse
from tapestry_jax.shards.numeric.devices import DivergenceError
from tapestry_jax.shards.numeric.simulated import DisagreementError, Simulation

_NUMBERS = jnp.floating, jnp.integer
MOST = 2**14
"""Cells of arguments and results that are followed: some seconds on eight devices."""


def check_cells(graph: Graph, closed: Any, *, is_wider: bool = False) -> None:
    """Hold what the results of a lowered program are made of against the program.

    Args:
      graph: the program.
      closed: the lowered program, traced.
      is_wider: whether blocks carry wider floats than the program, which they make narrow again.

    Raises:
      PlanError: with the first cell of a result that is made of other cells of the arguments; or where numbers are made
        narrower than the program makes them; or for more cells than can be followed.
    """
    types = [node.results[0] for node in graph.inputs]
    _check_size(graph, types)
    traced = jax.make_jaxpr(lambda *leaves: evaluate(graph, leaves))(*(kind.struct for kind in types))
    if not is_wider and (narrower := {*_narrowings(closed.jaxpr)} - {*_narrowings(traced.jaxpr)}):
        refuse(graph.name, "makes numbers narrower than the program does", ", ".join(sorted(narrower)))
    arguments = _Arguments(tuple(node.name for node in graph.inputs), tuple(tuple(kind.shape) for kind in types))
    wanted = _made(traced, arguments.given)
    shapes = [variable.aval.shape for variable in closed.jaxpr.invars]
    try:
        # Padded storage holds copies of the last cells.
        got = _made(closed, [_padded(sets, shape) for sets, shape in zip(arguments.given, shapes, strict=True)])
        for (name, _), want, have in zip(graph.outputs, wanted, got, strict=True):
            _check(name, want, have[(*map(slice, want.shape), ...)], arguments)
        # Constants of wider floats are others, by a rounding.
        if not is_wider:
            check_exact(graph, traced, closed, shapes)
    except DivergenceError as error:
        refuse(graph.name, "has a collective that only some devices reach", str(error)[:80])
    except DisagreementError:
        refuse(graph.name, "leaves different copies of one piece on different devices")


@dataclass(frozen=True)
class _Arguments:
    """Names and shapes of the arguments, whose cells are numbered through."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def firsts(self) -> list[int]:
        """The number of the first cell of each."""
        return [0, *itertools.accumulate(map(math.prod, self.shapes))]

    @property
    def given(self) -> list[Any]:
        """Each argument, whose cells are made of themselves."""
        return [cells(shape, first) for shape, first in zip(self.shapes, self.firsts, strict=False)]

    @property
    def masks(self) -> list[int]:
        """Of each argument all cells."""
        return [(1 << last) - (1 << first) for first, last in itertools.pairwise(self.firsts)]

    def told(self, bits: int) -> str:
        """Cells by name and index, the first four of them."""
        listed = [
            f"{name}{[int(i) for i in np.unravel_index(number, shape)]}"
            for name, shape, first in zip(self.names, self.shapes, self.firsts, strict=False)
            for number in range(math.prod(shape))
            if bits >> (first + number) & 1
        ]
        return ", ".join(listed[:4]) + (f" and {len(listed) - 4} more" if len(listed) > 4 else "")


def _check_size(graph: Graph, types: Sequence[Any]) -> None:
    kinds = [*types, *(graph.type_of(ref) for _, ref in graph.outputs)]
    count = sum(math.prod(kind.shape) for kind in kinds)
    if count > MOST:
        remedy = "Plan the same program at smaller sizes, or leave out cells=True."
        told = f"`{graph.name}` has {count} cells of arguments and results, more than {MOST}"
        raise PlanError(message("cells are followed one by one", told, remedy=remedy))


def _made(closed: Any, given: Sequence[Any]) -> list[Any]:
    with np.errstate(all="ignore"):
        return [lanes[0] for lanes in Simulation(MadeOf()).closed(closed, [[each] for each in given])]


def _padded(sets: Any, shape: Sequence[int]) -> Any:
    widths = [(0, size - own) for size, own in zip(shape, sets.shape, strict=True)]
    if not sets.size:
        return np.zeros(shape, object)
    return np.pad(sets, widths, mode="edge") if any(width for _, width in widths) else sets


def _check(name: str, want: Any, have: Any, arguments: _Arguments) -> None:
    sides = [side if is_cells(side) else np.zeros(side.shape, object) for side in (want, have)]
    for place in np.ndindex(want.shape):
        one, other = int(sides[0][place]), int(sides[1][place])
        if one == other or ANYTHING in (one, other):
            continue
        # Merging with an identity asks for all leaves of a state, also for those that the result is not made of.
        has = sum(other & ~one & own for own in arguments.masks if one & own)
        listed = ("lacks", one & ~other), ("has", has)
        if told := [f"{what} {arguments.told(bits)}" for what, bits in listed if bits]:
            refuse(f"output {name}", f"is made of other cells at {list(place)}", *told)


def _narrowings(jaxpr: Any) -> Iterator[str]:
    """The floats and integers that are made narrower, as text; a number of Python's takes the type of what it meets."""
    for equation in jaxpr.eqns:
        for inner in programs_inside(equation):
            yield from _narrowings(getattr(inner, "jaxpr", inner))
        if equation.primitive.name == "convert_element_type" and not equation.invars[0].aval.weak_type:
            before, after = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
            alike = any(all(jnp.issubdtype(each, kind) for each in (before, after)) for kind in _NUMBERS)
            if alike and after.itemsize < before.itemsize:
                yield f"{before} to {after}"
