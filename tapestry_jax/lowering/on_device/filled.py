"""Which pieces of a fold hold anything: of five cells on four devices the last one holds none.

The state of such a piece is the identity, and nothing is merged with it: by the law `e + a ~ a`, but beside an infinity
`e + a` may be NaN, as `inf * 0` is in a product of matrices. Where a piece lies tells whether it holds anything, so
that no flag is carried or sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from combinators.operations.shaped import Shaped
from tapestry_jax.lowering.on_device.here import Here
from tapestry_jax.planning.folding.traffic import uneven_folds
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.geometry.time_axis import is_time, ring_of, turns_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

Cuts = Mapping[str, Cut]


def is_filled(shaped: Shaped, cuts: Cuts, here: Here) -> Any:
    """Whether the piece of this device in this turn holds a cell; True where every piece does.

    Of loops that `here` is not inside of all turns count: the piece is what they come to.
    """
    short = _short(shaped, cuts, here)
    if not short:
        return True
    # A loop that is not entered meets the first cells of a device in its turn 0, a ring in the turn of the device.
    loops = [axis for dim in short for axis in cuts[dim].axes if is_time(axis) and axis not in here.counters]
    inside = here.at({**{axis: _first_of(axis) for axis in loops}, **here.counters})
    return _holds(shaped, cuts, short, inside.index)


def filled_devices(shaped: Shaped, cuts: Cuts, axes: tuple[str, ...], mesh: MeshShape) -> NDArray[np.bool_] | None:
    """For every device along `axes`, outermost first, whether all its turns together hold a cell; None if all do."""
    short = _short(shaped, cuts, mesh)
    if not short:
        return None
    count, sizes = mesh.size(axes), [mesh.size((axis,)) for axis in axes]
    places = dict(zip(axes, np.unravel_index(np.arange(count), sizes), strict=True))

    def index(along: Sequence[str]) -> Any:
        found: Any = 0
        for axis in along:
            found = found * mesh.size((axis,)) + (0 if is_time(axis) else places[axis])
        return found

    filled = np.broadcast_to(_holds(shaped, cuts, short, index), (count,))
    return None if filled.all() else filled


def met_before(loop: str, number: Any, since: Any, *, reverse: bool) -> tuple[Any, Any]:
    """Whether a loop has turned before a turn, and the turn of those before it that meets the first cells.

    Args:
      loop: the loop.
      number: of the turn.
      since: the first of the turns that count, in the order in which they run.
      reverse: whether the last chunk comes first.
    """
    ring = ring_of(loop)
    if ring is not None:
        # A device meets its own piece first, and then those of the devices before it, down to the first one's.
        return number > since, jnp.minimum(lax.axis_index(ring), number - 1)
    return (number < since, number + 1) if reverse else (number > since, since)


def first_turn(loop: str, *, reverse: bool) -> int:
    """The turn that runs first."""
    return turns_of(loop) - 1 if reverse else 0


def _first_of(loop: str) -> Any:
    ring = ring_of(loop)
    return jnp.int32(0) if ring is None else lax.axis_index(ring)


def _short(shaped: Shaped, cuts: Cuts, mesh: MeshShape) -> list[str]:
    """The fold dimensions of which some piece holds no cell."""
    uneven = uneven_folds(shaped, dict(cuts), mesh)
    return [dim for dim in uneven if (mesh.size(cuts[dim].axes) - 1) * cuts[dim].block >= shaped.sizes[dim]]


def _holds(shaped: Shaped, cuts: Cuts, short: Sequence[str], index: Callable[[Sequence[str]], Any]) -> Any:
    holds: Any = True
    for dim in short:
        holds = (index(cuts[dim].axes) * cuts[dim].block < shaped.sizes[dim]) & holds
    return holds
