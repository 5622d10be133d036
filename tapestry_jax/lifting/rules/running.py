"""Running totals: scans with a monoid."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators import monoids
from combinators.leaves.scan import Steps
from combinators.merging.extrema import EXTREMA
from tapestry_jax.lifting.kernels.primitives import Bound, plain
from tapestry_jax.lifting.rules.named import apply, plain_names
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, types_of

_MONOIDS = {"cumsum": monoids.Sum, "cumprod": monoids.Prod, "cummax": monoids.Max, "cummin": monoids.Min}


def running(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """The axis is scanned."""
    params, (out,), name = plain(equation.params), types_of(equation), equation.primitive.name
    names, over = plain_names(len(out.shape)), f"d{int(equation.params['axis'])}"
    if params is None or out.dtype == jnp.bool_:
        return None
    return apply(
        walk,
        name,
        Steps(),
        [(atoms[0], names)],
        [(out, names)],
        monoid=_MONOIDS[name],
        over=over,
        reverse=bool(equation.params["reverse"]),
        # At ties the slopes of JAX's own are those of its tree; where steps are cut the first has them.
        dense=() if _MONOIDS[name].native in EXTREMA else (Bound(name, params),),
    )


TABLE = dict.fromkeys(_MONOIDS, running)
