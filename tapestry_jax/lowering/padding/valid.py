"""Running a kernel on the indices that there are, where what lies behind them is no row that it could be given.

Padding repeats the last valid row, and a kernel that reads one row of each operand takes it for that row. A window that
reads padding makes rows that the program does not have: differences that are zero, variances of copies. Where the slope
of a kernel may be infinite on these, that times a cotangent of zero is NaN, in the gradient of all that it reads.

What nobody asks for has a cotangent of zero, and derivatives that are linear in it, as those of JAX, make zeros of it.
One that somebody wrote need not be (`g / norm(g)`): it is called for what the program has alone, rows and turns.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.kernels.jaxprs import WRITTEN, programs_inside
from combinators.operations import execute
from combinators.operations.shaped import Shaped
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.lowering.on_device.pad import pad_axis, pad_front
from tapestry_jax.lowering.on_device.read import crop_blocks
from tapestry_jax.lowering.on_device.varying import vary, varying_axes
from tapestry_jax.lowering.padding.apart import apart, shared_operands
from tapestry_jax.lowering.padding.level import is_level, multiplies
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Run, Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

Cuts = Mapping[str, Cut]
Range = tuple[int, int]
Kernels = Callable[[Mapping[str, int], list[Any]], list[Any]]
"""From the sizes of a box and its blocks to the leaves that an operation makes of them."""


def on_valid_rows(
    shaped: Shaped,
    cuts: Cuts,
    sizes: Mapping[str, int],
    here: Here,
    blocks: list[Any],
    run: Kernels,
    *,
    states: bool,
    written: bool,
) -> list[Any]:
    """What `run` makes of this device's box, called on rows that the program has; rows of padding copy the nearest.

    Args:
      shaped: the operation, with the kernel of the graph.
      cuts: of its dimensions.
      sizes: of the index box of one device.
      here: the device and turn.
      blocks: of its operands.
      run: what is called; in a condition, so that it sends nothing.
      states: whether it makes the leaves of a state, or those of the result.
      written: whether somebody wrote a derivative of the kernel.
    """
    kernel = shaped.operation.kernel
    ranges = {dim: ranges_of(cuts[dim], shaped.sizes[dim], here) for dim in sorted(_uneven(shaped, cuts, here))}
    if not ranges:
        return run(sizes, blocks)
    places = _places(shaped, ranges, sizes, states=states)
    shared = [any(each) for each in zip(*(shared_operands(shaped, blocks, dim) for dim in ranges), strict=True)]
    # Padding may not be given to a kernel whose derivative makes something of nothing, or has no bounds.
    if not (
        _is_steep(shaped, blocks, here, states=states)
        or (any(shared) and is_steep_beside(shaped, cuts, blocks, shared, states=states))
        or (written and pulls_otherwise(kernel, blocks))
    ):
        if not any(shared):
            return run(sizes, blocks)
        return apart(shaped, cuts, sizes, here, blocks, partial(run, sizes), tuple(ranges), places)
    axes = sorted(frozenset[str]().union(*(varying_axes(block) for block in blocks)))
    chosen: Any = 0
    for dim, (kinds, codes) in ranges.items():
        chosen = chosen * len(kinds) + jnp.asarray(codes, jnp.int32)[here.index(cuts[dim].axes)]

    def branch(valid: dict[str, Range]) -> Callable[[list[Any]], list[Any]]:
        inner = {**sizes, **{dim: high - low for dim, (low, high) in valid.items()}}

        def cropped(operands: list[Any]) -> list[Any]:
            if not all(inner[dim] for dim in valid):
                # Nobody has a row for them; what is not level is not called on these either.
                full = jax.eval_shape(lambda given: run(sizes, given), operands)
                found = [jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), each) for each in full]
            else:
                lows = {dim: low for dim, (low, _) in valid.items()}
                found = run(inner, crop_blocks(shaped, operands, sizes, inner, lows))
                found = [_filled(leaf, own, valid, sizes) for leaf, own in zip(found, places, strict=True)]
            return jax.tree.map(lambda leaf: vary(leaf, axes), found)

        return cropped

    cases = itertools.product(*(kinds for kinds, _ in ranges.values()))
    branches = [branch(dict(zip(ranges, case, strict=True))) for case in cases]
    return lax.switch(vary(jnp.asarray(chosen, jnp.int32), axes), branches, blocks)


def without_rows_of_nothing(shaped: Shaped, cuts: Cuts, here: Here, results: Sequence[Any]) -> list[Any]:
    """What is made of states, zeros where this device has no row that they are of.

    A state of zeros is none that the kernel makes: a mean of it is 0 / 0, which would come back times zero.
    """
    monoid = shaped.operation.monoid
    if not here.torn or monoid is None or (monoid.native is not None and shaped.operation.present is None):
        return list(results)
    found: Any = None
    for dim in sorted(_uneven(shaped, cuts, here)):
        kinds, codes = ranges_of(cuts[dim], shaped.sizes[dim], here)
        filled = np.array([high > low for low, high in kinds])[codes]
        if not filled.all():
            own = jnp.asarray(filled)[here.index(cuts[dim].axes)]
            found = own if found is None else found & own
    if found is None:
        return list(results)
    axes = sorted(frozenset[str]().union(varying_axes(found), *map(varying_axes, results)))
    return [jnp.where(vary(found, axes), vary(leaf, axes), jnp.zeros(leaf.shape, leaf.dtype)) for leaf in results]


def is_torn(schedule: Schedule) -> bool:
    """Whether windows are read along some dimension with padding, so that this is not everywhere a copy of a row."""
    for step in schedule.steps:
        if isinstance(step, Region | Repeat) and is_torn(step.body):
            return True
        if isinstance(step, Run):
            shaped = schedule.graph.shaped(step.node)
            # Few operations read windows, and to lay out ranges is dearer than to ask them.
            windowed = _windowed(shaped)
            if windowed and _uneven(shaped, dict(step.cuts), schedule.mesh) & windowed:
                return True
    return False


def _uneven(shaped: Shaped, cuts: Cuts, mesh: MeshShape) -> set[str]:
    """The cut dimensions of the results that have padding on some device, in some turn."""
    mapped = (dim for dim in cuts if dim not in shaped.signature.fold_dims and shaped.sizes[dim] and cuts[dim].extent)
    return {dim for dim in mapped if not is_full(cuts[dim], shaped.sizes[dim], mesh)}


def _made(shaped: Shaped, *, states: bool) -> Callable[..., Any]:
    """All that is computed of a row: by the kernel, of its states, and what is presented of them."""
    if shaped.operation.monoid is None:
        return shaped.operation.kernel

    def made(*blocks: Any) -> Any:
        state = execute.states(shaped, blocks)
        merges = states or shaped.operation.over is not None
        merged = execute.combine(shaped, shaped.carrier, state, state) if merges else state
        return state, merged, execute.present(shaped, merged)

    return made


def _windowed(shaped: Shaped) -> set[str]:
    """The dimensions along which some operand is read otherwise than row by row, from the first on."""
    axes = (axis for operand in shaped.signature.operands for axis in operand.axes if axis.is_window)
    return {term.name for axis in axes for term in axis.terms}


def asked_for(kernel: Callable[..., Any], blocks: list[Any], here: Here) -> list[Any]:
    """The blocks, which get no cotangent of a derivative that somebody wrote in a turn whose results nobody reads."""
    if here.asked is None or not pulls_otherwise(kernel, blocks):
        return blocks
    axes, asked = sorted(varying_axes(here.asked)), here.asked != 0
    moved = [vary(block, axes) for block in blocks]
    return [
        jnp.where(asked, block, lax.stop_gradient(block)) if jnp.issubdtype(block.dtype, jnp.inexact) else block
        for block in moved
    ]


def _is_steep(shaped: Shaped, blocks: Sequence[Any], here: Here, *, states: bool) -> bool:
    """Whether a slope of what is computed of a row may be infinite on padding that is no copy of a row."""
    program = _program(_made(shaped, states=states), blocks) if here.torn else None
    return program is not None and not is_level(program)


def is_steep_beside(shaped: Shaped, cuts: Cuts, blocks: Sequence[Any], shared: Sequence[bool], *, states: bool) -> bool:
    """Whether the slope by something that rows share may be infinite on padding: at a copy of a row, or of any number.

    Kernels in `dense=`, which may take blocks of some sizes alone, and those of softmaxes, whose slopes beside an
    infinity are NaN in any case, run on padding; so do those that a deep halo runs in front of the first index.
    """
    operation = shaped.operation
    if operation.dense or (operation.monoid is not None and operation.monoid.frame is not None):
        return False
    windows = [cut.window for cut in cuts.values() if cut.window is not None]
    if any(window.before + window.after for window in windows):
        return False
    program = _program(operation.kernel if states else _made(shaped, states=False), blocks)
    return program is not None and (not is_level(program, copies=True) or multiplies(program, shared))


def _program(kernel: Callable[..., Any], blocks: Sequence[Any]) -> Any:
    """What a kernel does with its blocks; None where it fails on them, and says so where it is run."""
    structs = [jax.ShapeDtypeStruct(block.shape, block.dtype) for block in blocks]
    try:
        return jax.make_jaxpr(lambda *blocks: jax.tree.leaves(kernel(*blocks)))(*structs)
    except Exception:  # noqa: BLE001 - it fails on its box, and says so where it is run
        return None


def has_seams(shaped: Shaped, cuts: Cuts) -> bool:
    """Whether blocks read cells of their neighbours, through windows along what is cut."""
    return any(cuts[dim].extent < shaped.sizes[dim] for dim in _windowed(shaped) & cuts.keys())


def is_repeated(cuts: Cuts, here: Here) -> bool:
    """Whether cells are computed several times: in turns that do not cut them, or by neighbours behind a deep halo."""
    own = {axis for cut in cuts.values() for axis in cut.axes}
    windows = [cut.window for cut in cuts.values() if cut.window is not None]
    return not own.issuperset(here.loops) or any(window.before + window.after for window in windows)


def pulls_otherwise(kernel: Callable[..., Any], blocks: Sequence[Any]) -> bool:
    """Whether somebody wrote a derivative of a kernel that is not linear in what it pulls back, as far as it tells."""
    return _pulls_otherwise(_program(kernel, blocks), kernel, blocks)


def _pulls_otherwise(program: Any, kernel: Callable[..., Any], blocks: Sequence[Any]) -> bool:
    if program is None or not _pulls(program):
        return False
    # Few kernels have a derivative that somebody wrote.
    from tapestry_jax.planning.derivatives.linear import pulls_linearly

    try:
        return not pulls_linearly(kernel, [jax.ShapeDtypeStruct(block.shape, block.dtype) for block in blocks])
    except Exception:  # noqa: BLE001 - its author's derivative fails, and says so where it is taken
        return False


def _pulls(program: Any) -> bool:
    """Whether somebody wrote how a program, or one inside of it, pulls cotangents back."""
    equations = getattr(program, "jaxpr", program).eqns
    inside = (inner for equation in equations for inner in programs_inside(equation))
    return any(equation.primitive.name in WRITTEN for equation in equations) or any(map(_pulls, inside))


def is_full(cut: Cut, size: int, mesh: MeshShape) -> bool:
    """Whether every place of every device holds an index, in every turn: no device has padding.

    Blocks ascend, so the first and the last device tell it of all. It is asked of every operation, and most are full.
    """
    least, end = _bounds(cut, size)
    return cut.low >= least and (mesh.size(cut.axes) - 1) * cut.block + cut.low + cut.extent <= end


def ranges_of(cut: Cut, size: int, mesh: MeshShape) -> tuple[list[Range], NDArray[np.int32]]:
    """The ranges of places that hold indices, on some device in some turn, and which of them each has."""
    least, end = _bounds(cut, size)
    start = np.arange(mesh.size(cut.axes), dtype=np.int64) * cut.block + cut.low
    low = np.clip(least - start, 0, cut.extent)
    found = np.stack([low, np.maximum(np.clip(end - start, 0, cut.extent), low)], 1)
    found[found[:, 0] == found[:, 1]] = 0
    kinds, codes = np.unique(found, axis=0, return_inverse=True)
    return [(low, high) for low, high in kinds.tolist()], codes.reshape(-1).astype(np.int32)


def _bounds(cut: Cut, size: int) -> Range:
    """The first index that there is, and the one behind the last."""
    window = cut.window
    return (-window.before, size + window.after) if window is not None and window.wraps else (0, size)


def _places(
    shaped: Shaped, dims: Mapping[str, Any], sizes: Mapping[str, int], *, states: bool
) -> list[dict[str, tuple[int, int]]]:
    """For every leaf and dimension, which of its axes that is, and how many cells belong to one index."""
    if states:
        return [{dim: (axes.index(dim), 1) for dim in dims if dim in axes} for axes in shaped.carrier]
    return [
        {
            axis.terms[0].name: (number, math.prod(sizes[term.name] for term in axis.terms[1:]))
            for number, axis in enumerate(axes)
            if axis.terms and axis.terms[0].name in dims
        }
        for axes in shaped.result_axes
    ]


def _filled(
    leaf: Any, places: Mapping[str, tuple[int, int]], valid: Mapping[str, Range], sizes: Mapping[str, int]
) -> Any:
    """The leaf with its first and last rows repeated to the size that it has on a device."""
    for dim, (axis, unit) in places.items():
        low, size = valid[dim][0], sizes[dim]
        leaf = jax.tree.map(partial(_repeated, axis=axis, unit=unit, end=size - low, size=size), leaf)
    return leaf


def _repeated(leaf: Any, *, axis: int, unit: int, end: int, size: int) -> Any:
    """The leaf as `size` rows of `unit` cells: its last row up to `end` of them, then its first one in front."""
    shape = leaf.shape
    rows = leaf.reshape(*shape[:axis], shape[axis] // max(unit, 1), unit, *shape[axis + 1 :])
    rows = pad_front(pad_axis(rows, axis, end), axis, size)
    return rows.reshape(*shape[:axis], size * unit, *shape[axis + 1 :])
