"""What no rule knows: an operation on whole tensors."""

from __future__ import annotations

from typing import Any

from combinators.errors import GraphError, message
from combinators.operations.operation import Operation
from tapestry_jax.lifting.kernels.equations import Function, Opaque, function_of, text_of
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, axes, signature, types_of


def unknown(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom]:
    """Every axis is whole.

    Raises:
      GraphError: for an equation with side effects, or with values that are no arrays.
    """
    name = equation.primitive.name
    check(equation, walk.place)
    outs = types_of(equation)
    at = iter(range(1 << 30))
    operands = [axes(s, [f"d{next(at)}" for _ in s], range(len(s))) for s in map(walk.shape, atoms)]
    results = [axes(out.shape, [f"d{next(at)}" for _ in out.shape], range(len(out.shape))) for out in outs]
    sizes = {
        t.name: s
        for o, r in zip(outs, results, strict=True)
        for s, a in zip(o.shape, r.axes, strict=True)
        for t in a.terms
    }
    kernel = Opaque(name, Function(function_of(equation, walk.within), text_of(equation)), walk.place)
    told = signature(operands, results)
    return walk.leaf(Operation(told, kernel, sizes=tuple(sorted(sizes.items())), name=name), atoms, outs)


def check(equation: Any, place: str) -> None:
    """Refuse what cannot be an operation.

    Raises:
      GraphError: with the primitive, and where it was written.
    """
    where = [f"written at {place}"] if place else []
    name = equation.primitive.name
    if equation.effects:
        raise GraphError(
            message(
                f"tp.lift cannot take `{name}`, which has side effects",
                *where,
                remedy="Leave it out, or call it outside of what is lifted: a graph is a pure program.",
            )
        )
    for var in (*equation.invars, *equation.outvars):
        if not hasattr(var.aval, "shape") or not hasattr(var.aval, "dtype"):
            raise GraphError(
                message(
                    f"tp.lift cannot take `{name}`: one of its values is no array but {var.aval}",
                    *where,
                    remedy="Keep what is not an array outside of what is lifted.",
                )
            )
