"""The kernels of an operation as the SPMD program runs them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax

from combinators.errors import TapestryError
from combinators.kernels.coordinates import consecutive, unskipped
from combinators.operations.boxes import check_box, check_numbers, not_of_any_size
from combinators.operations.dense import Dense
from combinators.operations.ready import ready
from combinators.operations.shaped import Shaped
from tapestry_jax.lowering.on_device.untyped import states_on_device, where_types_are_missing
from tapestry_jax.lowering.on_device.varying import vary
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.time_axis import in_time, ring_of


def device_kernels(
    shaped: Shaped,
    cuts: Mapping[str, Cut],
    sizes: Mapping[str, int],
    axes: frozenset[str],
    platforms: tuple[str, ...] = (),
    *,
    is_written: bool = False,
    around: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> Shaped:
    """The operation with the kernels that run where dimensions are cut so, over the mesh or in time.

    Loops and calls of Pallas in kernels pass the check of varying axes, and kernels for several platforms vary over the
    same ones. What a kernel gives is held against the box, where not all of the index space is in it.

    Args:
      shaped: the operation.
      cuts: of its dimensions.
      sizes: of the index box of one device.
      axes: mesh axes over which blocks vary.
      platforms: of the devices; empty where they are not known.
      is_written: whether somebody wrote a derivative of the kernel.
      around: what is done to the kernel behind that, where something is cut; not to those that may stand in for it.
    """
    operation = shaped.operation

    def on_device(kernel: Callable[..., Any], written: Any = None, *, is_state: bool) -> Callable[..., Any]:
        looped = where_types_are_missing(kernel, axes, is_written=is_written, known=shaped.known)
        if not cuts:
            return looped
        if around is not None and written is not None:
            looped = around(looped)
        held = _held_to_box(looped, kernel if written is None else written, shaped, sizes, is_state=is_state)
        return functools.update_wrapper(held, kernel, (), ())

    own = consecutive(operation.kernel) if _follow(shaped, cuts) else operation.kernel
    own = own if _all_may_skip(shaped, cuts) or "cpu" in (platforms or ("cpu",)) else unskipped(own)
    kernel = on_device(own, operation.kernel, is_state=operation.kind != "map")
    dense = tuple(
        replace(entry, kernel=on_device(entry.kernel, is_state=entry.gives == "state" and operation.kind != "map"))
        if isinstance(entry, Dense)
        else on_device(entry, is_state=False)
        for entry in operation.dense
    )

    def varied(leaves: list[Any]) -> list[Any]:
        return [vary(leaf, sorted(axes)) for leaf in leaves]

    looped = replace(shaped, operation=replace(states_on_device(shaped).operation, kernel=kernel, dense=dense))
    return ready(looped, cuts, by_platform=True, finish=varied)


def _held_to_box(
    looped: Callable[..., Any], written: Callable[..., Any], shaped: Shaped, sizes: Mapping[str, int], *, is_state: bool
) -> Callable[..., Any]:
    """The kernel as devices run it, refused where it fails on its box, or gives another shape or other numbers."""

    def run(*blocks: Any) -> Any:
        try:
            found = looped(*blocks)
        except TapestryError:
            raise
        except Exception as error:
            # The kernel ran on the whole index space when the program was traced.
            raise not_of_any_size(
                shaped, sizes, f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.200}"
            ) from error
        check_box(shaped, jax.tree.leaves(found), sizes, is_state=is_state)
        check_numbers(shaped, written, blocks, sizes, is_state=is_state)
        return found

    return run


def _follow(shaped: Shaped, cuts: Mapping[str, Cut]) -> bool:
    """Whether all coordinates of a block follow one another: folds run on their valid cells alone.

    Not so in stripes; nor where padding is run as well, whose coordinates repeat: behind a dimension that is no fold,
    or that neutral values fill.
    """
    folds, read = shaped.signature.fold_dims, _read(shaped)
    blocks = all(not cuts[dim].striped and cuts[dim].window is None for dim in read & cuts.keys())
    return blocks and shaped.operation.pad is None and read <= set(folds)


def _all_may_skip(shaped: Shaped, cuts: Mapping[str, Cut]) -> bool:
    """Whether there are turns in which every device may skip its block: of loops over all that is compared.

    Otherwise some device computes in every turn, and is waited for. In a causal ring that is the last one; what the
    others save is nobody's time, but where devices are threads that share the cores of a CPU.
    """
    loops = {dim: [axis for axis in in_time(cut.axes) if ring_of(axis) is None] for dim, cut in cuts.items()}
    return all(loops.get(dim) for dim in _read(shaped))


def _read(shaped: Shaped) -> set[str]:
    """The dimensions whose coordinates the kernel reads."""
    return {operand.coordinate for operand in shaped.signature.operands if operand.coordinate is not None}
