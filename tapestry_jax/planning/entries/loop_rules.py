"""What a loop in time cannot do: refused where it is placed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from combinators.errors import PlanError, message
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.geometry.time_axis import ring_of


def check_chunks(name: str, path: str, turns: int, block: int) -> None:
    """Refuse more chunks than cells.

    Raises:
      PlanError: naming the operation and the cells of a device.
    """
    if turns > max(block, 1):
        raise PlanError(
            message(
                f"the plan takes `{name}` of `{path}` in {turns} chunks, more than it has cells",
                f"a device has {block} cells of it",
                remedy=f"Take at most {max(block, 1)} chunks, or write tp.chunks(size=...).",
            )
        )


def check_loops(shaped: Shaped, names: Mapping[str, str], path: str, placed: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse loops whose order, or whose pieces, the operation cannot keep.

    Args:
      shaped: the operation.
      names: its dimensions to their names in the program.
      path: of the operation.
      placed: the mesh axes and loops of each dimension.

    Raises:
      PlanError: for a ring under an order, two rings on an axis, rings that cross, or a ring whose axis is folded or
        scanned.
    """
    rings = {dim: ring for dim, axes in placed.items() for axis in axes if (ring := ring_of(axis)) is not None}
    for dim, ring in rings.items():
        _check_ring(shaped, names, path, placed, dim, ring)
    twice = [dim for dim, ring in rings.items() if list(rings.values()).count(ring) > 1]
    if twice:
        raise PlanError(
            message(
                f"two dimensions of `{path}` go round the mesh axis `{rings[twice[0]]}`",
                f"{', '.join(f'`{names[dim]}`' for dim in twice)}",
                remedy="Let one of them go round, and place the other on the axis or in chunks.",
            )
        )
    crossing = [(a, b) for a, b in itertools.combinations(rings, 2) if rings[a] in placed[b] and rings[b] in placed[a]]
    if crossing:
        first, second = crossing[0]
        raise PlanError(
            message(
                f"`{names[first]}` and `{names[second]}` of `{path}` go round each other's mesh axes",
                f"`{names[first]}` goes round `{rings[first]}`, on which `{names[second]}` lies, and "
                f"`{names[second]}` round `{rings[second]}`, on which `{names[first]}` lies",
                "in no turn would the devices of an axis hold pieces of one dimension in order",
                remedy=f"Let one of them go round, and take `{names[second]}` in chunks or leave it on its axis.",
            )
        )


def _check_ring(
    shaped: Shaped, names: Mapping[str, str], path: str, placed: Mapping[str, tuple[str, ...]], dim: str, ring: str
) -> None:
    name, operation, folds = names[dim], shaped.operation, shaped.signature.fold_dims
    ordered = operation.monoid is not None and not operation.monoid.commutative
    if operation.over == dim or (dim in folds and ordered):
        raise PlanError(
            message(
                f"`{name}` of `{path}` goes round a ring, which keeps no order",
                f"signature {shaped.signature}",
                "each device begins with another piece, and the monoid is not commutative",
                remedy=f'Place it on the mesh axis itself: {{"{name}": "{ring}"}}.',
            )
        )
    others = [other for other, axes in placed.items() if ring in axes]
    merged = [other for other in others if other in folds or other == operation.over]
    if dim not in folds and merged:
        is_scan = merged[0] == operation.over
        raise PlanError(
            message(
                f"`{name}` of `{path}` goes round the mesh axis `{ring}`, over which `{names[merged[0]]}` is "
                f"{'scanned' if is_scan else 'folded'}",
                f"signature {shaped.signature}",
                f"devices would {'go on from totals' if is_scan else 'add up results'} of different pieces",
                remedy=f"Place a dimension that the result carries on `{ring}`, or take `{name}` in chunks.",
            )
        )


def unused_ring(dim: str, axis: str) -> PlanError:
    """The error for a ring that no operation goes round."""
    return PlanError(
        message(
            f"the plan lets `{dim}` go round the mesh axis `{axis}`, on which nothing else is placed",
            "no operation would meet more than its own piece",
            remedy=f'Place another dimension of the operation there, as in {{"queries": "{axis}", '
            f'"{dim}": tp.ring("{axis}")}}, or write "{axis}" alone.',
        )
    )
