"""Scans: a body that is repeated, lifted itself."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from combinators.kernels.jaxprs import as_function, programs_inside, scan_parts
from tapestry_jax.lifting.kernels.primitives import Bound
from tapestry_jax.lifting.rules.named import apply, plain_names
from tapestry_jax.lifting.values import Atom, LoopStep
from tapestry_jax.lifting.walk import Walk, types_of, words


def scan(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Carries, slices along the first axis, constants; a scan from the end is one of turned operands."""
    body, length = equation.params["jaxpr"], int(equation.params["length"])
    constants, carries = scan_parts(equation)
    if length == 0:
        return None
    if walk.maps and not carries and (found := _mapped(walk, equation, atoms, constants)) is not None:
        return found
    is_reversed = bool(equation.params["reverse"])
    values = [walk.value(atom) for atom in atoms]
    fixed, carried, stacked = values[:constants], values[constants : constants + carries], values[constants + carries :]
    if is_reversed:
        stacked = [_turned(walk, value) for value in stacked]
    inner = walk.inner()
    inputs = [walk.values.new(kind.shape, kind.dtype) for kind in (words(var.aval) for var in body.jaxpr.invars)]
    outputs = inner.run(body.jaxpr, body.consts, inputs)
    steps = inner.finish([*inputs[constants:], *inputs[:constants]], outputs)
    results = [walk.values.new(kind.shape, kind.dtype) for kind in types_of(equation)]
    operands = [*carried, *stacked, *fixed]
    walk.loop(LoopStep(steps, operands, carries, len(stacked), length, list(results), "scan", walk.place))
    if is_reversed:
        return [*results[:carries], *(_turned(walk, value) for value in results[carries:])]
    return list(results)


def _mapped(walk: Walk, equation: Any, atoms: list[Atom], constants: int) -> list[Atom] | None:
    """All turns of a loop that hands nothing on at once; None where the program would be another one.

    JAX takes every branch of a `cond` whose choice differs from turn to turn, and so do slopes: one that is infinite in
    a branch that was not taken would be NaN. Generators of the machine's own draw other numbers for many keys than for
    each. What JAX maps by a loop stays the loop that it was, and so does what it cannot map.
    """
    body = equation.params["jaxpr"]
    if _draws_otherwise(body):
        return None
    kinds = [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in equation.invars]
    axes = [None if at < constants else 0 for at in range(len(kinds))]
    every = jax.vmap(as_function(body), axes, axis_size=int(equation.params["length"]))
    try:
        program = jax.make_jaxpr(every)(*kinds)
    except NotImplementedError:
        return None
    if _count(program, "cond") < _count(body, "cond") or _count(program, "scan") > _count(body, "scan"):
        return None
    return walk.run(program.jaxpr, program.consts, atoms)


def _count(program: Any, name: str) -> int:
    """How many equations of a program, and of those inside, are of one primitive."""
    equations = getattr(program, "jaxpr", program).eqns
    inside = sum(_count(inner, name) for equation in equations for inner in programs_inside(equation))
    return inside + sum(equation.primitive.name == name for equation in equations)


def _draws_otherwise(program: Any) -> bool:
    """Whether a program draws numbers that `jax.vmap` does not draw: all but Threefry's may be others."""
    for equation in getattr(program, "jaxpr", program).eqns:
        keys = [var.aval.dtype for var in equation.invars if jnp.issubdtype(var.aval.dtype, jax.dtypes.prng_key)]
        if equation.primitive.name in _GENERATORS or any(_THREEFRY not in str(key) for key in keys):
            return True
        if any(map(_draws_otherwise, programs_inside(equation))):
            return True
    return False


_GENERATORS = frozenset(("rng_bit_generator", "rng_uniform"))
_THREEFRY = "fry"
"""In the names of its keys' types."""


def _turned(walk: Walk, value: int) -> int:
    names = plain_names(len(walk.shape(value)))
    kind = walk.values.type_of(value)
    kernel = Bound("rev", (("dimensions", (0,)),))
    (found,) = apply(walk, "rev", kernel, [(value, names)], [(kind, names)], whole={"d0"})
    return walk.value(found)


TABLE = {"scan": scan}
