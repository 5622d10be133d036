"""Functions whose authors wrote their derivatives: kept where they act cell by cell, with the derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from combinators.errors import GraphError, message
from combinators.kernels.fingerprint import is_traced
from combinators.kernels.jaxprs import WRAPPERS, is_literal, programs_inside
from tapestry_jax.lifting.constants import scalar_of
from tapestry_jax.lifting.kernels.cells import ITSELF, Instruction, Program, Rule
from tapestry_jax.lifting.kernels.equations import function_of
from tapestry_jax.lifting.rules.cellwise import NEUTRAL, instruction_of
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, types_of

HIDDEN = "call_hi_primitive"
"""Primitives of JAX 0.12 that hold no program and say what they compute when they are asked, and their derivative."""

_TANGENTS = frozenset({"custom_jvp_call", "custom_jvp_call_jaxpr"})
# Hidden ones too: a derivative that is linear by a hidden one, as `ldexp` is, is not turned around once it is inlined.
_PULLED = frozenset({"custom_vjp_call", "custom_vjp_call_jaxpr", HIDDEN})


def custom(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """A rule cell by cell; what mixes cells is left to whom it may concern."""
    outs = types_of(equation)
    rule = rule_of(equation, (), walk.place)
    shapes = {walk.shape(atom) for atom in atoms} - {()}
    results = {tuple(out.shape) for out in outs}
    if rule is None or len(results) > 1 or not shapes <= results:
        return None
    return walk.elementwise(Instruction(_name(equation), (), tuple(atoms), rule), atoms, outs)


def rule_of(equation: Any, outer: tuple[str, ...], place: str = "") -> Rule | None:
    """The rule of an equation that acts cell by cell, derivatives too; None where it does not.

    Args:
      equation: of a function with a derivative of its own.
      outer: texts of the functions whose derivatives this one stands in, the outermost first.
      place: where it is called.

    Raises:
      GraphError: when its derivative holds a value of the function that is lifted, which is gone once that was traced.
    """
    parts = parts_of(equation, place)
    if parts is None:
        return None
    program, derivative, floats = parts
    inside = (*outer, text_of(equation))
    value = program_of(program, inside)
    moved = None if value is None else program_of(derivative, inside)
    if value is None or moved is None:
        return None
    pushed = is_pushed(equation)
    return Rule(value, moved if pushed else None, None if pushed else moved, floats)


def is_pushed(equation: Any) -> bool:
    """Whether a derivative takes tangents forwards, and does not pull cotangents back."""
    return equation.primitive.name in _TANGENTS


def parts_of(equation: Any, place: str = "") -> tuple[Any, Any, tuple[bool, ...]] | None:
    """The closed jaxprs of a function and of its derivative, and which operands have one; None where it refuses.

    Raises:
      GraphError: when its derivative holds a value of the function that is lifted, which is gone once that was traced.
    """
    program = program_inside(equation)
    function = function_of(equation, program)
    types = [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in equation.invars]
    floats = tuple(bool(jnp.issubdtype(kind.dtype, jnp.inexact)) for kind in types)
    moving = [kind for kind, moves in zip(types, floats, strict=True) if moves]
    pulling = [kind for kind in types_of(equation) if jnp.issubdtype(kind.dtype, jnp.inexact)]
    how, given = (_pushed, moving) if is_pushed(equation) else (_pulled, pulling)
    try:
        derivative = jax.make_jaxpr(how(function, floats, len(types)))(*types, *given)
    except Exception:  # noqa: BLE001 - it is the author's, and may refuse to be taken by some operand
        return None
    if any(map(is_traced, derivative.consts)):
        raise GraphError(
            message(
                f"the derivative of `{_name(equation)}` holds a value that the lifted function computes",
                *([f"called at {place}"] if place else []),
                remedy=f"Pass the value to `{_name(equation)}` as an argument.",
            )
        )
    return program, derivative, floats


def hidden(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """A primitive that says what it computes: kept with its derivative cell by cell, inlined where it has none."""
    found = custom(walk, equation, atoms)
    if found is None and not any(jnp.issubdtype(kind.dtype, jnp.inexact) for kind in types_of(equation)):
        program = program_inside(equation)
        return walk.run(program.jaxpr, program.consts, atoms)
    return found


def program_inside(equation: Any) -> Any:
    """The closed jaxpr of what an equation computes."""
    if equation.primitive.name != HIDDEN:
        return next(programs_inside(equation))
    (primitive,) = equation.params.values()
    types = [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in equation.invars]
    return jax.make_jaxpr(lambda *flat: primitive.expand(*jax.tree.unflatten(primitive.in_tree, flat)))(*types)


def program_of(closed: Any, outer: tuple[str, ...] = ()) -> Program | None:
    """A jaxpr as a program cell by cell; None where one of its equations is none."""
    shape = max((v.aval.shape for v in closed.jaxpr.invars), key=len, default=())
    writer = _Writer(shape, len(closed.jaxpr.invars), outer)
    if any(np.ndim(constant) for constant in closed.consts):
        return None
    inputs = [*range(len(closed.jaxpr.invars))]
    outputs = writer.run(closed.jaxpr, closed.consts, inputs)
    return None if outputs is None else Program(tuple(writer.instructions), tuple(outputs))


class _Writer:
    """Writes the instructions of a jaxpr and of those inside."""

    def __init__(self, shape: Sequence[int], inputs: int, outer: tuple[str, ...]) -> None:
        self.instructions, self._shape, self._next, self._outer = list[Instruction](), tuple(shape), inputs, outer
        self._even = set[Any]()  # values whose cells are one number, of whatever shape: under `vmap` zeros have some

    def run(self, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Any]) -> list[Any] | None:
        known = dict(zip(jaxpr.invars, inputs, strict=True))
        known |= {v: scalar_of(c, v.aval.dtype) for v, c in zip(jaxpr.constvars, constants, strict=True)}

        def read(atom: Any) -> Any:
            return scalar_of(atom.val, atom.aval.dtype) if is_literal(atom) else known[atom]

        for equation in jaxpr.eqns:
            found = self._equation(equation, [read(atom) for atom in equation.invars])
            if found is None:
                return None
            known |= dict(zip(equation.outvars, found, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, inputs: list[Any]) -> list[Any] | None:
        name = equation.primitive.name
        shapes = {tuple(var.aval.shape) for var in equation.outvars}
        if name in WRAPPERS:
            inner = next(programs_inside(equation))
            return self.run(inner.jaxpr, inner.consts, inputs)
        is_even = all(is_literal(atom) or not atom.aval.shape or atom in self._even for atom in equation.invars)
        if is_even:
            self._even.update(equation.outvars)
        if name in NEUTRAL or (name == "broadcast_in_dim" and is_even):
            return inputs[:1] if name == "broadcast_in_dim" else inputs  # numbers spread by themselves
        if not is_even and not shapes <= {self._shape, ()}:
            return None
        if name in _TANGENTS | _PULLED:
            return self._rule(equation, inputs)
        instruction = instruction_of(equation, inputs)
        return None if instruction is None else self._add(instruction, equation)

    def _rule(self, equation: Any, inputs: list[Any]) -> list[Any] | None:
        """A rule inside; a derivative that calls its own function does it by how far outside that stands."""
        text = text_of(equation)
        if text in self._outer:
            params = (("above", len(self._outer) - 1 - self._outer.index(text)), ("results", len(equation.outvars)))
            return self._add(Instruction(ITSELF, params, tuple(inputs)), equation)
        rule = rule_of(equation, self._outer)
        return None if rule is None else self._add(Instruction(_name(equation), (), tuple(inputs), rule), equation)

    def _add(self, instruction: Instruction, equation: Any) -> list[Any]:
        self.instructions.append(instruction)
        self._next += len(equation.outvars)
        return [*range(self._next - len(equation.outvars), self._next)]


def text_of(equation: Any) -> str:
    """What tells a function with a derivative of its own from others: its program and where it was written."""
    inner = program_inside(equation)
    return f"{equation.primitive.name} {inner} {getattr(inner.jaxpr, 'debug_info', None)}"


def _pushed(function: Any, floats: Sequence[bool], count: int) -> Any:
    def pushed(*given: Any) -> list[Any]:
        primals, moving = given[:count], iter(given[count:])
        tangents = [
            next(moving) if moves else np.zeros(np.shape(primal), jax.dtypes.float0)
            for primal, moves in zip(primals, floats, strict=True)
        ]
        out, moved = jax.jvp(function, primals, tuple(tangents))
        return [*out, *(m for m in moved if m.dtype != jax.dtypes.float0)]

    return pushed


def _pulled(function: Any, floats: Sequence[bool], count: int) -> Any:
    def pulled(*given: Any) -> list[Any]:
        primals, cotangents = given[:count], iter(given[count:])
        out, pull = jax.vjp(function, *primals)
        full = [
            next(cotangents) if jnp.issubdtype(leaf.dtype, jnp.inexact) else np.zeros(np.shape(leaf), jax.dtypes.float0)
            for leaf in out
        ]
        return [found for found, moves in zip(pull(full), floats, strict=True) if moves]

    return pulled


def _name(equation: Any) -> str:
    if equation.primitive.name == HIDDEN:
        return type(next(iter(equation.params.values()))).__name__.lower()
    inner = next(programs_inside(equation))
    named = getattr(getattr(getattr(inner, "jaxpr", inner), "debug_info", None), "func_name", None)
    return str(named).split(" ")[0].split(".")[-1].strip("<>") if named else "custom"


WRITTEN = tuple(sorted((_TANGENTS | _PULLED) - {HIDDEN}))
"""Primitives whose derivative somebody wrote."""

TABLE = {**dict.fromkeys(WRITTEN, custom), HIDDEN: hidden}
