"""What no rule knows: an operation on whole tensors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from combinators.errors import GraphError, message
from combinators.kernels.fingerprint import is_traced
from combinators.operations.operation import Operation
from tapestry_jax.lifting.kernels.equations import Function, Opaque, function_of, text_of
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, axes, signature, types_of, words


def unknown(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom]:
    """Every axis is whole; but what another library implements by functions of JAX, and has no derivative, is those.

    Raises:
      GraphError: for an equation with side effects, or with values that are no arrays.
    """
    name = equation.primitive.name
    check(equation, walk.place)
    found = implemented(walk, equation, atoms)
    if found is not None:
        return found
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


def implemented(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """What a primitive of another library runs outside of `jit`, where no result of it can have a derivative.

    Such a derivative could be another one than that of what it runs.
    """
    primitive, outs = equation.primitive, types_of(equation)
    run: Any = getattr(primitive, "impl", None)
    owner = str(getattr(getattr(run, "func", run), "__module__", "jax")).partition(".")[0]
    if owner in ("jax", "jaxlib") or any(jnp.issubdtype(out.dtype, jnp.inexact) for out in outs):
        return None
    types = [words(var.aval) for var in equation.invars]
    try:
        closed, made = jax.make_jaxpr(lambda *given: run(*given, **equation.params), return_shape=True)(*types)
    except Exception:  # noqa: BLE001 - it is another library's, and may want arrays
        return None
    told = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(made)]
    if any(inner.primitive is primitive for inner in closed.jaxpr.eqns) or any(map(is_traced, closed.consts)):
        return None
    return walk.run(closed.jaxpr, closed.consts, atoms) if told == [(out.shape, out.dtype) for out in outs] else None


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
    if name == "shard_map":
        raise GraphError(
            message(
                "tp.lift cannot take a `shard_map`: what is in it runs on blocks of a mesh of its own",
                *where,
                remedy="Lift the function of whole arrays, without it and its collectives: a plan says where they lie.",
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
