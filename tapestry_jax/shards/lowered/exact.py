"""Every cell of a result comes to what the program makes of it, in numbers of finite fields: nothing is rounded.

Where cells are made of the right cells, a copy may still be counted twice, a factor be wrong, or an order. The lowered
program and the program are followed with the same arguments, whose floats are drawn of finite fields (`residues`): sums
agree there whatever their order, so one number that differs is a fault. Integers and masks are themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from combinators.equations.primitives import run_primitive
from combinators.graphs.graph import Graph
from tapestry_jax.shards.lowered import residues
from tapestry_jax.shards.lowered.in_fields import MERGES, UnfollowedError, found_by, in_pairs, is_float, typed
from tapestry_jax.shards.lowered.in_floats import has_laws_of_reals, holds_in_floats, padded
from tapestry_jax.shards.lowered.moved import refuse
from tapestry_jax.shards.numeric.devices import COLLECTIVES, Devices, Lanes
from tapestry_jax.shards.numeric.simulated import DisagreementError, EndlessError, Meaning, Simulation

_ENDLESS = 2**31 - 2
"""The first number of infinity, as bits."""


def check_exact(graph: Graph, traced: Any, closed: Any, shapes: Sequence[Sequence[int]]) -> None:
    """Hold what a lowered program computes against the program; what cannot be followed is not compared.

    Orders and functions have laws that no field knows: `max(x + z, y + z) = max(x, y) + z`, and a sum of logarithms is
    that of the product. Where a program has any, what differs in the fields has to differ in floats as well.

    Args:
      graph: the program.
      traced: unplanned.
      closed: the lowered program, traced.
      shapes: in which the arguments are stored, padding included.

    Raises:
      PlanError: with the first cell of a result that comes to something else.
      DisagreementError: where devices that hold copies of one piece hold different ones.
    """
    try:
        found = _first_difference(graph, traced, closed, shapes)
    except (UnfollowedError, EndlessError):
        return
    except DisagreementError:
        if _holds_in_floats(graph, traced, closed, shapes):
            return
        raise
    if found is not None and not _holds_in_floats(graph, traced, closed, shapes):
        name, place, told = found
        refuse(f"output {name}", f"comes to something else at {place}", told)


def _first_difference(
    graph: Graph, traced: Any, closed: Any, shapes: Sequence[Sequence[int]]
) -> tuple[str, list[int], str] | None:
    rng = np.random.default_rng(0)
    # The largest of many numbers is a positive one: how negative ones are ordered is seen where there are no others.
    for is_below in (False, True) if has_laws_of_reals(traced.jaxpr, lambda dtype: True) else (False,):
        given = [_drawn(node.results[0], rng, is_below) for node in graph.inputs]
        wanted = _made(traced, given)
        got = _made(closed, [padded(each, shape) for each, shape in zip(given, shapes, strict=True)])
        for (name, ref), want, have in zip(graph.outputs, wanted, got, strict=True):
            cut = have[(*map(slice, want.shape), ...)]
            differ = np.argwhere(_differ(want, cut) if is_float(graph.type_of(ref).dtype) else want != cut)
            if len(differ):
                place = [int(each) for each in differ[0]]
                return name, place, f"{len(differ)} of {want.size} cells are made of the right cells in another way"
    return None


def _holds_in_floats(graph: Graph, traced: Any, closed: Any, shapes: Sequence[Sequence[int]]) -> bool:
    """Whether a program has laws of real numbers, and floats show no difference."""
    return has_laws_of_reals(traced.jaxpr) and holds_in_floats(graph, traced, closed, shapes)


def _drawn(kind: Any, rng: np.random.Generator, is_below: bool) -> Any:
    dtype = np.dtype(kind.dtype) if not jnp.issubdtype(kind.dtype, jax.dtypes.extended) else None
    if dtype is None or jnp.issubdtype(dtype, jnp.complexfloating):
        raise UnfollowedError
    if is_float(dtype):
        found = residues.drawn(kind.shape, rng)
        return residues.negative(residues.absolute(found)) if is_below else found
    below = -4 if is_below and jnp.issubdtype(dtype, jnp.signedinteger) else 0
    return rng.integers(below, 2 if dtype == np.bool_ else below + 4, kind.shape).astype(dtype)


def _made(closed: Any, given: Sequence[Any]) -> list[Any]:
    with np.errstate(all="ignore"):
        found = Simulation(Exact()).closed(closed, [[each] for each in given])
    return [np.asarray(in_pairs(lanes[0], aval)) for lanes, aval in zip(found, closed.out_avals, strict=True)]


def _differ(one: Any, other: Any) -> Any:
    """Which pairs are not the same; what is not known may be."""
    known = (one != residues.UNKNOWN) & (other != residues.UNKNOWN)
    return known & (residues.first(one) != residues.first(other))


@final
class Exact(Meaning):
    """Floats as numbers of finite fields; all else as it is."""

    def __init__(self) -> None:
        # What floats had those bits.
        self._floats: dict[int, int] = {}

    def run(self, equation: Any, row: Sequence[Any]) -> list[Any]:
        """The results of one equation on one device."""
        read = [is_float(variable.aval.dtype) for variable in equation.invars]
        avals = [variable.aval for variable in equation.outvars]
        made = [is_float(aval.dtype) for aval in avals]
        if not any((*read, *made)):
            return run_primitive(equation, row)
        given = [in_pairs(value, variable.aval) for value, variable in zip(row, equation.invars, strict=True)]
        if equation.primitive.name == "bitcast_convert_type":
            return [self._bits(given[0], equation.invars[0].aval.dtype, avals[0].dtype)]
        found = found_by(equation, avals, given)
        if found is None:
            if not all(made):
                raise UnfollowedError(equation.primitive.name)
            return [np.full(aval.shape, residues.UNKNOWN) for aval in avals]
        return [typed(each, aval) for each, aval in zip(found, avals, strict=True)]

    def collective(self, equation: Any, devices: Devices, operands: Sequence[Lanes]) -> list[Lanes]:
        """Sums and extrema of fields; what is sent is sent as it is."""
        name = equation.primitive.name
        avals = [variable.aval for variable in equation.outvars]
        lanes = [
            [in_pairs(value, variable.aval) for value in devices.spread(each)]
            for each, variable in zip(operands, equation.invars, strict=True)
        ]
        floats = any(is_float(aval.dtype) for aval in avals)
        made = (MERGES if floats and name in MERGES else COLLECTIVES)[name](devices, equation.params, lanes)
        return [[typed(value, aval) for value in each] for each, aval in zip(made, avals, strict=True)]

    def _bits(self, x: Any, before: Any, after: Any) -> Any:
        """The bits of floats: the first number and its sign, as those of floats, so that they have the same order."""
        if (before, after) == (np.float32, np.int32):
            if residues.is_unknown(x):
                raise UnfollowedError("bitcast_convert_type")
            own = np.clip(residues.first(x), -_ENDLESS, _ENDLESS)
            made = np.where(own < 0, -own - 2**31, own)
            self._floats.update(zip(made.ravel().tolist(), x.ravel().tolist(), strict=True))
            return made.astype(np.int32)
        if (before, after) == (np.uint32, np.float32):
            # Random numbers are made of their bits, which are not those of a float that was drawn here.
            return residues.residues(np.ascontiguousarray(x).view(np.float32))
        if (before, after) == (np.int32, np.float32) and all(each in self._floats for each in x.ravel().tolist()):
            return np.array([self._floats[each] for each in x.ravel().tolist()], np.int64).reshape(x.shape)
        raise UnfollowedError("bitcast_convert_type")

    def number(self, value: Any) -> int | None:
        """What it is."""
        return int(value)

    def alike(self, arrays: Sequence[Any]) -> list[Any]:
        """Floats of the program beside pairs."""
        return [residues.residues(each) if is_float(each.dtype) else each for each in arrays]

    def either(self, cases: Sequence[Any], chosen: Any) -> Any:
        """Never asked."""
        raise AssertionError(chosen)

    def agree(self, one: Any, other: Any, aval: Any) -> bool:
        """By what is known."""
        return not np.any(_differ(one, other)) if is_float(aval.dtype) else np.array_equal(one, other)
