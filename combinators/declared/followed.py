"""Where the dimensions of a signature go in a kernel: followed through its jaxpr, axis by axis.

Every value of the program is told what each of its axes is: a dimension whose cells lie along it in order, cells that
differ by their position in the block, or nothing that matters. So a kernel that sums over a dimension which its
signature carries, turns it round, or numbers its cells is seen without running it. What a primitive does that is not
known here is `lost`, and nothing is said of it: what is found is certain, what is not found is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from combinators.declared.flow import OTHER, POSITION, Flow, Tag, joined
from combinators.declared.numbers import branches_of, number_of, said
from combinators.declared.rules import RULES
from combinators.kernels.elementwise import CALLS, CELLWISE
from combinators.kernels.jaxprs import is_literal, programs_inside

# The most cells of a constant that are looked at.
_LARGEST = 1 << 16
# What leaves how many cells there are where it is.
_KEEPING = frozenset(("broadcast_in_dim", "iota", "squeeze", "transpose"))


def followed(closed: Any, operands: Sequence[Sequence[Tag] | Flow], dims: frozenset[str]) -> list[Flow]:
    """Follow dimensions through a program.

    Args:
      closed: a closed jaxpr.
      operands: for every operand what lies along its axes, or all that is known of it.
      dims: the dimensions that are followed, each of more than one cell.

    Returns:
      What is known of each of its results.
    """
    return _run(closed, [each if isinstance(each, Flow) else Flow(tuple(each)) for each in operands], dims)


def _run(program: Any, operands: Sequence[Flow], dims: frozenset[str]) -> list[Flow]:
    jaxpr, constants = getattr(program, "jaxpr", program), getattr(program, "consts", ())
    known: dict[Any, Flow] = dict(zip(jaxpr.invars, operands, strict=True))
    known.update(zip(jaxpr.constvars, map(of_constant, constants), strict=False))

    def flow(atom: Any) -> Flow:
        if is_literal(atom):
            return Flow((None,) * atom.aval.ndim)
        return known.get(atom) or _nothing_known([atom], dims)[0]

    numbers = said(jaxpr, {})
    for equation in jaxpr.eqns:
        flows = list(map(flow, equation.invars))
        known.update(zip(equation.outvars, step(equation, flows, dims, numbers), strict=True))
    return list(map(flow, jaxpr.outvars))


def step(equation: Any, flows: list[Flow], dims: frozenset[str], numbers: Mapping[Any, Any]) -> list[Flow]:
    """What is known of the results of an equation.

    Args:
      equation: of a jaxpr.
      flows: what is known of its operands.
      dims: the dimensions that are followed.
      numbers: those that the program says, by their variables.
    """
    found = _step(equation, flows, dims, numbers)
    name = equation.primitive.name
    if name in CELLWISE or name in CALLS or name in _KEEPING:
        return found
    # What is summed, sliced or merged along an axis that the program made tells how long that is.
    made = any(
        tag in (None, POSITION) and size > 1
        for atom, flow in zip(equation.invars, flows, strict=True)
        for tag, size in zip(flow.axes, getattr(atom.aval, "shape", ()), strict=False)
    )
    return [flow.counting() for flow in found] if made else found


def _step(equation: Any, flows: list[Flow], dims: frozenset[str], numbers: Mapping[Any, Any]) -> list[Flow]:
    name: str = equation.primitive.name
    shapes = [tuple(getattr(out.aval, "shape", ())) for out in equation.outvars]
    inner = list(programs_inside(equation))
    if name in CALLS and inner and len(getattr(inner[0], "jaxpr", inner[0]).invars) == len(flows):
        return _run(inner[0], flows, dims)
    if name == "cond" and (found := _of_any(equation, flows, dims, numbers)) is not None:
        return found
    if name in CELLWISE and len(shapes) == len(flows) > 1:  # it hands on each by itself: `optimization_barrier`
        return flows
    if name in CELLWISE and all(len(flow.axes) in (0, len(shapes[0])) for flow in flows):
        return [joined(flows, len(shape), name) for shape in shapes]
    rule = RULES.get(name)
    found = None if rule is None else rule(equation, flows)
    return _nothing_known(equation.outvars, dims, all(flow.told for flow in flows)) if found is None else found


def _of_any(equation: Any, flows: list[Flow], dims: frozenset[str], numbers: Mapping[Any, Any]) -> list[Flow] | None:
    """What comes of branches of which one is taken; None where that is up to places."""
    # Where the program runs chooses among all of them, alike for all cells, and so does a number that it says.
    says = number_of(equation.invars[0], numbers) is not None or equation.params.get("branches_platforms")
    if not says and flows[0].told:
        return None
    branches = [_run(branch, flows[1:], dims) for branch in branches_of(equation, numbers)]
    # What numbers of operands choose enters as it does into a `select_n`.
    chooses = [] if says else flows[:1]
    return [joined([*chooses, *each], len(each[0].axes), "cond") for each in zip(*branches, strict=True)]


def _nothing_known(atoms: Iterable[Any], dims: frozenset[str], told: bool = True) -> list[Flow]:
    return [Flow((None,) * len(getattr(atom.aval, "shape", ())), lost=dims, told=told) for atom in atoms]


def of_constant(constant: Any) -> Flow:
    """What is known of an array that a program holds."""
    shape = np.shape(constant)
    if not isinstance(constant, (np.ndarray, np.generic)) or not 0 < constant.size <= _LARGEST:
        return Flow((OTHER,) * len(shape))
    return Flow(tuple(POSITION if _differs(constant, axis) else None for axis in range(len(shape))))


def _differs(constant: Any, axis: int) -> bool:
    """Whether cells differ along an axis; NaN is no other cell than NaN."""
    first = constant.take([0], axis)
    return bool(((constant != first) & ~((constant != constant) & (first != first))).any())
