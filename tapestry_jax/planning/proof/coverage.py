"""Proof that the pieces of an operation cover its index space: every index once, whatever the number of devices.

The blocks of a cut are numbered by its mesh axes and loops. They follow one another without overlap, so that all
indices are there if the blocks are enough; and each is there once if every axis and every loop numbers blocks of one
dimension, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from combinators.errors import PlanError, message
from combinators.index_space.box import Box
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Run, Schedule


def verify_coverage(schedule: Schedule) -> None:
    """Check that the boxes of all devices cover the index box of every operation, without overlap or gap.

    Raises:
      PlanError: with the operation and the box that is missing or covered twice.
    """
    for step in schedule.steps:
        match step:
            case Run():
                check_covers(step.path, dict(step.cuts), schedule.graph.shaped(step.node).sizes, schedule.mesh)
            case Repeat() | Region():
                verify_coverage(step.body)
            case _:
                pass


def check_covers(path: str, cuts: Mapping[str, Cut], sizes: Mapping[str, int], mesh: MeshShape) -> None:
    """Check that the pieces of an operation cover its index space exactly.

    Args:
      path: of the operation.
      cuts: of its dimensions.
      sizes: of all of them.
      mesh: the shape of the mesh.

    Raises:
      PlanError: with the box that is missing, held twice or outside.
    """
    dims = tuple(cuts)
    whole = {dim: (0, sizes[dim]) for dim in dims}
    if not all(sizes[dim] for dim in dims):
        return
    owner: dict[str, str] = {}
    for dim, cut in cuts.items():
        size, end = sizes[dim], cut.block * mesh.size(cut.axes)
        if cut.block < 0 or end < size:
            _refuse(path, dims, f"no part holds {_box(whole | {dim: (max(end, 0), size)})}")
        for number, axis in enumerate(cut.axes):
            inner = cut.block * mesh.size(cut.axes[number + 1 :])
            if axis in owner and mesh.size((axis,)) > 1 and inner < size:
                # Its second position is the second of both, and the first of one never meets the second of the other.
                missing = {dim: (inner, min(2 * inner, size))}
                if owner[axis] != dim:
                    other = cuts[owner[axis]]
                    block = other.block * mesh.size(other.axes[other.axes.index(axis) + 1 :])
                    missing[owner[axis]] = (0, min(block, sizes[owner[axis]]))
                _refuse(path, dims, f"no part holds {_box(whole | missing)}")
            owner[axis] = dim


def _box(ranges: Mapping[str, tuple[int, int]]) -> Box:
    return Box(tuple(low for low, _ in ranges.values()), tuple(high for _, high in ranges.values()))


def _refuse(path: str, dims: tuple[str, ...], what: str) -> NoReturn:
    raise PlanError(
        message(
            f"the pieces of `{path}` do not cover its index space exactly",
            f"dimensions {', '.join(dims)}",
            what,
            remedy="Plan again: this schedule was damaged.",
        )
    )
