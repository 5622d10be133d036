"""How many elements attain an extremum that a kernel finds: read from its program.

What is read is `reduce_max` (or `reduce_min`) of anything, behind it reshapes, transpositions, wider floats, calls, and
maxima with constants, which is what `jnp.max(..., initial=)` is. A constant stands in every box and has no gradient. So
a box in which it is greater than all elements counts none of them; and where it ties with elements, the kernel's own
derivative gives the same part to those of each box as to those of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import jax.numpy as jnp
from jax import lax

from combinators.kernels.jaxprs import WRAPPERS, is_literal
from combinators.merging.extrema import Extremum, attains
from tapestry_jax.lowering.on_device.loops import run_program

_MOVING = ("reshape", "squeeze", "transpose", "expand_dims", "broadcast_in_dim", "copy")


def attaining(
    jaxpr: Any, constants: Sequence[Any], operands: Sequence[Any], place: int, kind: Extremum, axes: list[str]
) -> Any:
    """How many elements attain a result of a program; None where it is not what one reduction gives.

    Args:
      jaxpr: the program.
      constants: of the program.
      operands: arrays.
      place: of the result.
      kind: of the extremum.
      axes: mesh axes over which values may vary.

    Returns:
      int32 of the shape of the result, or None.
    """
    return _count(_Program(jaxpr, tuple(constants), tuple(operands), kind, tuple(axes)), jaxpr.outvars[place])


@final
@dataclass(frozen=True, eq=False)
class _Program:
    jaxpr: Any
    constants: tuple[Any, ...]
    operands: tuple[Any, ...]
    kind: Extremum
    axes: tuple[str, ...]
    caller: tuple[_Program, Any] | None = None

    @cached_property
    def made(self) -> dict[Any, Any]:
        """The equation that gives each variable."""
        return {out: equation for equation in self.jaxpr.eqns for out in equation.outvars}

    @cached_property
    def moving(self) -> frozenset[Any]:
        """All variables that depend on an operand."""
        found = {variable for variable in self.jaxpr.invars if not self._is_given(variable)}
        for equation in self.jaxpr.eqns:
            if any(not is_literal(atom) and atom in found for atom in equation.invars):
                found.update(equation.outvars)
        return frozenset(found)

    def is_constant(self, atom: Any) -> bool:
        return is_literal(atom) or atom not in self.moving

    def outside(self, variable: Any) -> tuple[_Program, Any] | None:
        """What an operand of a called program is where it is called; None for what is no such operand."""
        if self.caller is None or variable not in self.jaxpr.invars:
            return None
        program, equation = self.caller
        return program, equation.invars[self.jaxpr.invars.index(variable)]

    def _is_given(self, variable: Any) -> bool:
        outer = self.outside(variable)
        return outer is not None and outer[0].is_constant(outer[1])

    def values(self, wanted: Sequence[Any]) -> list[Any]:
        """What some variables hold."""
        jaxpr = self.jaxpr
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*self.constants, *self.operands), strict=True))
        if all(is_literal(atom) or atom in known for atom in wanted):
            return [atom.val if is_literal(atom) else known[atom] for atom in wanted]
        return run_program(jaxpr, self.constants, self.operands, list(self.axes), wanted, derived=False)


def _count(program: _Program, variable: Any) -> Any:
    if is_literal(variable):
        return None
    if variable not in program.made:
        outer = program.outside(variable)
        return None if outer is None else _count(*outer)
    equation = program.made[variable]
    name = equation.primitive.name
    if name == f"reduce_{program.kind}":
        return _reduced(program, equation)
    if name == program.kind:
        return _beside_constant(program, equation)
    if name in WRAPPERS:
        inner = _called(program, equation)
        return _count(inner, inner.jaxpr.outvars[equation.outvars.index(variable)])
    if name == "convert_element_type" and _is_wider(equation):
        return _count(program, equation.invars[0])
    if name in _MOVING and equation.invars[0].aval.size == variable.aval.size:
        count = _count(program, equation.invars[0])
        return None if count is None else equation.primitive.bind(count, **equation.params)
    return None


def _called(program: _Program, equation: Any) -> _Program:
    inner, given = equation.params["jaxpr"], program.values(equation.invars)
    return _Program(
        inner.jaxpr, tuple(inner.consts), tuple(given), program.kind, program.axes, caller=(program, equation)
    )


def _reduced(program: _Program, equation: Any) -> Any:
    (values,) = program.values(equation.invars)
    over = equation.params["axes"]
    if values.size == 0:
        return jnp.zeros(equation.outvars[0].aval.shape, jnp.int32)
    top = (jnp.max if program.kind == "max" else jnp.min)(values, axis=over, keepdims=True)
    count = jnp.sum(attains(values, top), axis=over, dtype=jnp.int32)
    # What no element seems to attain, since it was rounded differently here and there, counts as one.
    return jnp.maximum(count, 1)


def _beside_constant(program: _Program, equation: Any) -> Any:
    """Of `max(extremum, constant)`: the elements that attain the extremum, unless the constant is greater."""
    constants = [atom for atom in equation.invars if program.is_constant(atom)]
    others = [atom for atom in equation.invars if not program.is_constant(atom)]
    if len(constants) != 1:
        return None
    count = _count(program, others[0])
    if count is None:
        return None
    constant, found = program.values([constants[0], others[0]])
    is_beyond = lax.gt if program.kind == "max" else lax.lt
    beyond = is_beyond(jnp.broadcast_to(jnp.asarray(constant, found.dtype), found.shape), found)
    return jnp.where(beyond, 0, count)


def _is_wider(equation: Any) -> bool:
    """Whether a change of dtype leaves different numbers different."""
    narrow, wide = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
    floats = jnp.issubdtype(narrow, jnp.floating) and jnp.issubdtype(wide, jnp.floating)
    return floats and jnp.promote_types(narrow, wide) == wide
