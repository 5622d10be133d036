"""The kernels of an operation as the SPMD program runs them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from combinators.operations.dense import Dense
from combinators.operations.ready import ready
from combinators.operations.shaped import Shaped
from tapestry_jax.lowering.on_device.loops import with_varying_loops
from tapestry_jax.lowering.on_device.varying import vary


def device_kernels(shaped: Shaped, cut: Collection[str], axes: frozenset[str]) -> Shaped:
    """The operation with the kernels that run where `cut` are the dimensions that are cut, over the mesh or in time.

    Loops in kernels pass the check of varying axes, and kernels for several platforms vary over the same ones.
    """
    operation = shaped.operation
    kernel = with_varying_loops(operation.kernel, axes)
    dense = tuple(
        replace(entry, kernel=with_varying_loops(entry.kernel, axes))
        if isinstance(entry, Dense)
        else with_varying_loops(entry, axes)
        for entry in operation.dense
    )

    def varied(leaves: list[Any]) -> list[Any]:
        return [vary(leaf, sorted(axes)) for leaf in leaves]

    looped = replace(shaped, operation=replace(operation, kernel=kernel, dense=dense))
    return ready(looped, cut, by_platform=True, finish=varied)
