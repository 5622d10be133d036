"""Gather and scatter: what is taken whole is mapped. What is looked up in is a fold of a gather, mapped by a scatter.

Numbers are mapped by a gather, and a fold of a scatter that adds, or takes what is more or less.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.monoids import Sum
from tapestry_jax.lifting.kernels.lookup import OfBlock, Whole
from tapestry_jax.lifting.kernels.primitives import plain
from tapestry_jax.lifting.kernels.resized import Resized
from tapestry_jax.lifting.kernels.scatter import FOLDS, SCATTERS, OfUpdates, Scatter, neutral
from tapestry_jax.lifting.rules.named import apply
from tapestry_jax.lifting.values import Atom
from tapestry_jax.lifting.walk import Walk, types_of


def gather(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """A lookup by one number is a fold of the axis that it is in; by several, their axes are whole."""
    params, (out,), numbers = plain(equation.params), types_of(equation), equation.params["dimension_numbers"]
    table, places = walk.shape(atoms[0]), walk.shape(atoms[1])
    if params is None or not places:
        return None
    slices = [int(size) for size in equation.params["slice_sizes"]]
    indexed, offsets = [int(a) for a in numbers.start_index_map], [int(a) for a in numbers.offset_dims]
    batch = dict(
        zip(map(int, numbers.operand_batching_dims), map(int, numbers.start_indices_batching_dims), strict=True)
    )
    gone = {*map(int, numbers.collapsed_slice_dims), *batch}
    free = [a for a in range(len(table)) if a not in gone and a not in indexed and slices[a] == table[a]]
    own = [f"i{batch[a]}" if a in batch else f"o{a}" if a in free else f"v{a}" for a in range(len(table))]
    told = [*(f"i{axis}" for axis in range(len(places) - 1)), "k"]
    taken, listed = iter([a for a in range(len(table)) if a not in gone]), iter(told[:-1])
    result = [
        (f"o{a}" if (a := next(taken)) in free else f"s{a}") if axis in offsets else next(listed)
        for axis in range(len(out.shape))
    ]
    kernel = Resized("gather", params, "slice_sizes", 0, tuple(free))
    whole = {name for name in (*own, *result) if name[0] in "vs"} | {"k"}
    pairs = [(atoms[0], own), (atoms[1], told)]
    at = indexed[0] if len(indexed) == 1 and slices[indexed[0]] == 1 else None
    if at is None or out.dtype == jnp.bool_ or table[at] < 2:
        return apply(walk, "gather", kernel, pairs, [(out, result)], whole=whole)
    trusting = dict(params) | {"mode": lax.GatherScatterMode.PROMISE_IN_BOUNDS, "fill_value": None}
    block = Resized("gather", tuple(sorted(trusting.items())), "slice_sizes", 0, tuple(free))
    part = OfBlock(block, table[at], _fill(equation, out.dtype), tuple(offsets))
    return apply(
        walk,
        "gather",
        part,
        pairs,
        [(out, result)],
        whole=whole - {f"v{at}"},
        at=[f"v{at}"],
        monoid=Sum,
        dense=(Whole(kernel),),
    )


def scatter(walk: Walk, equation: Any, atoms: list[Atom]) -> list[Atom] | None:
    """Axes of which every update has all cells are mapped, and one that single cells are numbered along.

    Updates are folded where a monoid merges what they make, and its gradients; the other axes are whole.
    """
    (out,), numbers, name = types_of(equation), equation.params["dimension_numbers"], equation.primitive.name
    operand, places, updates = (walk.shape(atom) for atom in atoms)
    if not places or SCATTERS[name] is None:
        return None
    windows = [int(a) for a in numbers.update_window_dims]
    batch = dict(
        zip(map(int, numbers.operand_batching_dims), map(int, numbers.scatter_indices_batching_dims), strict=True)
    )
    inserted = {*map(int, numbers.inserted_window_dims)}
    gone = {*inserted, *batch}
    indexed = {int(a) for a in numbers.scatter_dims_to_operand_dims}
    kept = dict(zip(windows, (a for a in range(len(operand)) if a not in gone), strict=True))
    free = {a for axis, a in kept.items() if a not in indexed and updates[axis] == operand[a]}
    own = [f"i{batch[a]}" if a in batch else f"o{a}" if a in free else f"v{a}" for a in range(len(operand))]
    told = [*(f"i{axis}" for axis in range(len(places) - 1)), "k"]
    listed = iter(told[:-1])
    updated = [
        (f"o{kept[axis]}" if kept[axis] in free else f"u{axis}") if axis in kept else next(listed)
        for axis in range(len(updates))
    ]
    mapped = {f"i{axis}" for axis in batch.values()} | {f"o{a}" for a in free}
    flags = (bool(equation.params["indices_are_sorted"]), bool(equation.params["unique_indices"]))
    alone = {a for a in indexed if len(indexed) == 1 and a in inserted and operand[a] > 1}
    at = next(iter(alone), None)
    monoid = FOLDS.get(name)
    if out.dtype == jnp.bool_ or (monoid is not Sum and jnp.issubdtype(out.dtype, jnp.inexact)):
        # Equal extrema share a gradient, and a block tells the others nothing of how many of its updates attain it.
        monoid = None
    folded = [dim for dim in told[:-1] if monoid is not None and dim not in mapped and 0 not in updates]
    kernel = OfUpdates(
        Scatter(name, numbers, equation.params["mode"], flags), at, 0 if at is None else operand[at], len(folded)
    )
    pairs = [(atoms[0], own), (atoms[1], told), (atoms[2], updated)]
    whole = {dim for _, dims in pairs for dim in dims} - mapped - {f"v{a}" for a in alone} - {*folded}
    numbered = [*(f"v{a}" for a in alone), *folded]
    options: dict[str, Any] = {}
    if monoid is not None and folded:
        pad = (None, None, neutral(name, out.dtype), *(None for _ in numbered))
        options = {"monoid": monoid, "dense": (kernel.whole,), "pad": pad}
    return apply(walk, name, kernel, pairs, [(out, own)], whole=whole, at=numbered, **options)


def _fill(equation: Any, dtype: Any) -> Any:
    """What numbers outside give; None where they are clipped."""
    if equation.params["mode"] != lax.GatherScatterMode.FILL_OR_DROP:
        return None
    fill = equation.params["fill_value"]
    if fill is None:
        info = None if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype)
        fill = np.nan if info is None else info.min if jnp.issubdtype(dtype, jnp.signedinteger) else info.max
    return np.asarray(fill).astype(dtype)[()]


TABLE = {"gather": gather} | dict.fromkeys(SCATTERS, scatter)
