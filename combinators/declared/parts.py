"""Whether what a derivative gives adds up: of the parts of a dimension that is cut, to what it gives of the whole.

An operand without a dimension gets the sum of what its cells pull back. A plan sums what each part of them does, which
is the same where nothing but a sum was taken along the dimension: not of an extremum, nor of a sum that was clipped,
nor of what every part would add once more. What a primitive does that is not known here is lost, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from combinators.declared.flow import COUNT, POSITION, Flow, dims_of
from combinators.declared.followed import of_constant, step
from combinators.declared.rules import REDUCTIONS
from combinators.frozen import dataclass
from combinators.kernels.elementwise import CALLS, CELLWISE
from combinators.kernels.jaxprs import is_literal, programs_inside

_FIRST = """
    broadcast_in_dim conj convert_element_type copy copy_p cumsum imag neg optimization_barrier pcast pvary real
    reduce_precision reduce_sum reshape rev slice split squeeze stop_gradient transpose
"""
_MOVED, _ADDED = frozenset(_FIRST.split()), frozenset(("add", "add_any", "concatenate", "sub"))
# What leaves every number as it is.
_ALIKE = frozenset(
    ("broadcast_in_dim", "copy", "optimization_barrier", "pcast", "pvary", "reshape", "squeeze", "transpose")
)

_WHOLE, _ENOUGH = 1, 4

FREE, ZERO, CELLS, SUM, MIXED, LOST = "free", "zero", "cells", "sum", "mixed", "lost"


@dataclass(frozen=True)
class Part:
    """A value of the program.

    Attributes:
      flow: what lies along its axes.
      state: `FREE` of the dimension, `ZERO`, one of its `CELLS` each, a `SUM` over them, cells that were `MIXED`, or
        `LOST`; else what was done that does not add up.
    """

    flow: Flow
    state: str

    @property
    def problem(self) -> str | None:
        """Why parts do not add up; None where nothing is known."""
        if self.state == FREE:
            return "it gives something that depends on no cell, so every part adds it once more"
        return None if self.state in (ZERO, CELLS, SUM, MIXED, LOST) else self.state


def parts(
    closed: Any,
    operands: Sequence[Flow],
    dim: str,
    dims: frozenset[str],
    merges: str = "reduce_sum",
    *,
    whole: bool = False,
) -> list[Part]:
    """Follow one dimension through a program.

    Args:
      closed: a closed jaxpr.
      operands: of every operand what lies along its axes.
      dim: the dimension.
      dims: all that are followed.
      merges: the reduction by which parts are merged; where it is no sum, `SUM` says the same of it.
      whole: whether `CELLS` are all cells of the dimension, once and as they came; what is not is `LOST`.

    Returns:
      What is known of each result.
    """
    known = [Part(flow, CELLS if dim in dims_of(flow.axes) else FREE) for flow in operands]
    return _run(closed, known, _Asked(dim, dims, merges, whole))


@dataclass(frozen=True)
class _Asked:
    """What `parts` is asked."""

    dim: str
    dims: frozenset[str]
    merges: str
    whole: bool

    def follows(self, flow: Flow) -> bool:
        """Whether what is known of the dimension in a value is enough."""
        if self.dim in flow.lost:
            return False
        along = [tag for tag in flow.axes if self.dim in dims_of([tag])]
        return not self.whole or (along in ([], [self.dim]) and flow.pieced.isdisjoint((self.dim, COUNT)))


def _run(program: Any, operands: Sequence[Part], asked: _Asked) -> list[Part]:
    jaxpr, constants = getattr(program, "jaxpr", program), getattr(program, "consts", ())
    known: dict[Any, Part] = dict(zip(jaxpr.invars, operands, strict=True))
    known.update((atom, _constant(value)) for atom, value in zip(jaxpr.constvars, constants, strict=False))

    def part(atom: Any) -> Part:
        if is_literal(atom):
            return Part(Flow((None,) * atom.aval.ndim), _of_number(atom.val))
        return known.get(atom) or Part(Flow((None,) * len(atom.aval.shape), lost=asked.dims), LOST)

    for equation in jaxpr.eqns:
        found = _step(equation, list(map(part, equation.invars)), asked)
        known.update(zip(equation.outvars, found, strict=True))
    return list(map(part, jaxpr.outvars))


def _constant(value: Any) -> Part:
    return Part(of_constant(value), _of_number(value) if isinstance(value, (np.ndarray, np.generic)) else FREE)


def _of_number(value: Any) -> str:
    return FREE if np.any(value) else ZERO


def _step(equation: Any, operands: list[Part], asked: _Asked) -> list[Part]:
    inner = list(programs_inside(equation))
    if equation.primitive.name in CALLS - {"cond"} and inner:
        if len(getattr(inner[0], "jaxpr", inner[0]).invars) == len(operands):
            return _run(inner[0], operands, asked)
    flows = step(equation, [operand.flow for operand in operands], asked.dims, {})
    # It hands on each by itself: `optimization_barrier`. A loop has as many, and does what it likes with them.
    if equation.primitive.name in CELLWISE and len(flows) == len(operands) > 1:
        return [Part(flow, operand.state) for flow, operand in zip(flows, operands, strict=True)]
    return [
        Part(flow, _state(equation, operands, flow, asked.dim, asked.merges) if asked.follows(flow) else LOST)
        for flow in flows
    ]


def _state(equation: Any, operands: list[Part], flow: Flow, dim: str, merges: str) -> str:
    name, states = equation.primitive.name, [operand.state for operand in operands]
    wrong = [state for state in states if state not in (FREE, ZERO, CELLS, SUM, MIXED, LOST)]
    carries = dim in dims_of(flow.axes)
    if name == "cond" and not operands[0].flow.told and states[0] not in (FREE, ZERO, LOST):
        return f"it chooses by cells of `{dim}` together"
    if LOST in states or dim in flow.picked or any(programs_inside(equation)):
        return LOST
    if name in ("mul", "dot_general") and ZERO in states:
        return ZERO
    if wrong:
        return wrong[0]
    if carries:
        return CELLS if dim not in flow.reads else MIXED
    if MIXED in states:
        return f"it sums what {flow.reads.get(dim, name)} has mixed" if name in REDUCTIONS | {"dot_general"} else LOST
    if CELLS in states:
        return _merged(equation, operands, dim, merges)
    if SUM in states:
        return _of_sum(equation, states) if merges == "reduce_sum" else SUM if name in _ALIKE else LOST
    return ZERO if name in _MOVED | _ADDED and set(states) == {ZERO} else FREE


def _merged(equation: Any, operands: list[Part], dim: str, merges: str) -> str:
    """What comes of cells that are merged along the dimension."""
    name = equation.primitive.name
    if name == merges:
        return SUM
    if merges != "reduce_sum":
        return LOST
    if name == "dot_general" and SUM not in [operand.state for operand in operands]:
        pairs = zip(*equation.params["dimension_numbers"][0], strict=True)
        met = [{operands[0].flow.axes[left], operands[1].flow.axes[right]} for left, right in pairs]
        along = [tags for tags in met if dim in dims_of(tags)]
        return SUM if len(along) == 1 and along[0] <= {dim, None} and POSITION not in along[0] else LOST
    return f"it takes {name} along `{dim}`" if name in REDUCTIONS else LOST


def _of_sum(equation: Any, states: list[str]) -> str:
    """What comes of sums over the dimension, and of values that it does not enter."""
    name, sums = equation.primitive.name, states.count(SUM)
    if name == "convert_element_type":
        return _converted(equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype)
    if name in _MOVED:
        return SUM
    if name in _ADDED:
        return SUM if FREE not in states else "it adds something to the sum, which every part adds once more"
    if name in ("mul", "dot_general"):
        return SUM if sums == 1 else "it multiplies sums with each other"
    if name == "div":
        return SUM if states[1] != SUM else "it divides by a sum"
    if name == "select_n" and states[0] != SUM and FREE not in states[1:]:
        return SUM
    return f"it takes {name} of the sum" if name in CELLWISE | REDUCTIONS else LOST


def _converted(given: Any, made: Any) -> str:
    """What comes of sums in another dtype: of those that lose what lies between whole numbers parts lose more."""
    if _rank(given) > _rank(made):
        return "it makes whole numbers of the sum"
    # Whole numbers of few bits begin again at their least one, where wider ones go on.
    wraps = _rank(given) == _WHOLE and np.dtype(given).itemsize < _ENOUGH
    return LOST if wraps and np.dtype(made).itemsize > np.dtype(given).itemsize else SUM


def _rank(dtype: Any) -> int:
    return 0 if jnp.issubdtype(dtype, jnp.bool_) else _WHOLE if jnp.issubdtype(dtype, jnp.integer) else _WHOLE + 1
