"""Reductions along axes, each with its monoid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators import monoids
from combinators.frozen import dataclass
from combinators.merging.monoid import Monoid
from combinators.operations.operation import Operation
from tapestry_jax.lifting.kernels.bits import BITS_AND, BITS_OR, BITS_XOR
from tapestry_jax.lifting.kernels.cells import Program
from tapestry_jax.lifting.kernels.primitives import Bound, Params, plain, run
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, axes, coordinates, signature, types_of

_MONOIDS: dict[str, tuple[Monoid, float | None]] = {
    "reduce_sum": (monoids.Sum, 0),
    "reduce_max": (monoids.Max, None),
    "reduce_min": (monoids.Min, None),
    "reduce_prod": (monoids.Prod, 1),
    "reduce_or": (monoids.Any, None),
    "reduce_and": (monoids.All, None),
    "reduce_xor": (BITS_XOR, 0),
}
_BITS: dict[str, tuple[Monoid, float | None]] = {"reduce_or": (BITS_OR, 0), "reduce_and": (BITS_AND, None)}
"""Of whole numbers; of truths they are `Any` and `All`."""
_EXTREMA = {"argmax": monoids.ArgMax, "argmin": monoids.ArgMin}


_OF_TRUTHS = frozenset({*_BITS, "reduce_xor"})


def reduce(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """The axes that go are folded."""
    (out,), params, name = types_of(equation), plain(equation.params), equation.primitive.name
    is_truth = walk.dtype(atoms[0]) == jnp.bool_
    if params is None or (is_truth and name not in _OF_TRUTHS):
        return None
    return walk.leaf(fold_of(name, params, walk.shape(atoms[0]), out.shape, is_truth), atoms, [out])


def fold_of(name: str, params: Params, shape: Sequence[int], out: Sequence[int], is_truth: bool) -> Operation:
    """A reduction of a tensor of this shape."""
    monoid, neutral = _MONOIDS[name] if is_truth else (_MONOIDS | _BITS)[name]
    gone = {int(axis) for axis in dict(params)["axes"]}
    names = [f"d{axis}" for axis in range(len(shape))]
    kept = [name for axis, name in enumerate(names) if axis not in gone]
    told = signature([axes(shape, names, bare=kept)], [axes(out, kept, bare=kept)])
    folds = bool(told.fold_dims)
    pad = (neutral,) if folds and neutral is not None else None
    return Operation(told, Bound(name, params), monoid if folds else None, pad=pad, name=name)


@dataclass(frozen=True)
class Extremum:
    """The extreme value of a block along an axis, and its coordinate.

    Attributes:
      primitive: `argmax` or `argmin`.
      params: its parameters.
      axis: that goes.
    """

    primitive: str
    params: Params
    axis: int

    @property
    def merged_by(self) -> tuple[Monoid, ...]:
        """The monoid of the states that it gives."""
        return (_EXTREMA[self.primitive],)

    def __call__(self, block: Any, at: Any) -> Any:
        """The state of `monoids.ArgMax`: value and coordinate."""
        if block.dtype == jnp.bool_:
            block = block.astype(jnp.int8)  # states of monoids are numbers
        place = run(self.primitive, self.params, (block,))[0]
        cell = jnp.expand_dims(place, self.axis)
        return jnp.take_along_axis(block, cell, self.axis).squeeze(self.axis), at[place].astype(place.dtype)


@dataclass(frozen=True)
class Coordinate:
    """The coordinate in a state of `monoids.ArgMax`."""

    def __call__(self, state: Any) -> Any:
        """The second leaf."""
        return state[1]


def arg_extremum(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """The axis that goes is folded with values and coordinates; the lower coordinate wins, NaN above all."""
    (out,), params, name = types_of(equation), plain(equation.params), equation.primitive.name
    listed = [int(axis) for axis in equation.params["axes"]]
    shape = walk.shape(atoms[0])
    if params is None or len(listed) != 1:
        return None
    axis = listed[0]
    if shape[axis] == 1:
        # The one cell that there is; of none, JAX refuses it.
        return [walk.cells(name, [], Program((), (np.zeros((), out.dtype)[()],)), out.shape, out.dtype)]
    names = [f"d{at}" for at in range(len(shape))]
    kept = names[:axis] + names[axis + 1 :]
    told = signature([axes(shape, names, bare=kept), *coordinates(names[axis])], [axes(out.shape, kept, bare=kept)])
    monoid = _EXTREMA[name]
    carrier = (tuple(kept), tuple(kept))
    kernel = Extremum(name, params, axis)
    return walk.leaf(Operation(told, kernel, monoid, carrier, Coordinate(), name=name), atoms, [out])


FOLDS = frozenset(_MONOIDS)
"""Primitives that fold axes by a monoid."""


_OVER_MAPPED: dict[str, Any] = {"psum": lax.reduce_sum, "pmax": lax.reduce_max, "pmin": lax.reduce_min}


def over_mapped(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """A collective over the axis of a `jax.vmap(..., axis_name=)`, which is an axis of the array by then."""
    listed, reduced = equation.params["axes"], _OVER_MAPPED[equation.primitive.name]
    if equation.params.get("axis_index_groups") is not None or not all(isinstance(axis, int) for axis in listed):
        return None
    kinds = [jax.ShapeDtypeStruct(walk.shape(atom), walk.dtype(atom)) for atom in atoms]
    program = jax.make_jaxpr(lambda *blocks: [reduced(block, listed) for block in blocks])(*kinds)
    return walk.run(program.jaxpr, program.consts, atoms)


TABLE = (
    dict.fromkeys(_MONOIDS, reduce)
    | dict.fromkeys(("argmax", "argmin"), arg_extremum)
    | dict.fromkeys(_OVER_MAPPED, over_mapped)
)
