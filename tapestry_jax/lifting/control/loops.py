"""Scans: a body that is repeated, lifted itself."""

from __future__ import annotations

from typing import Any

from combinators.kernels.jaxprs import scan_parts
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


def _turned(walk: Walk, value: int) -> int:
    names = plain_names(len(walk.shape(value)))
    kind = walk.values.type_of(value)
    kernel = Bound("rev", (("dimensions", (0,)),))
    (found,) = apply(walk, "rev", kernel, [(value, names)], [(kind, names)], whole={"d0"})
    return walk.value(found)


TABLE = {"scan": scan}
