"""Changes of layout: the named steps that lead from one layout to another, each with its price."""

from __future__ import annotations

from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.drift import Drift, drifts
from tapestry_jax.planning.geometry.drifting import drifting
from tapestry_jax.planning.geometry.halo import NeighbourExchange, neighbour_exchange
from tapestry_jax.planning.geometry.layout import Cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape


@dataclass(frozen=True)
class Cast:
    """Equal copies become values of their own. Free forwards; backwards their gradients are added up (all-reduce).

    Attributes:
      axes: of the mesh.
      order: of the value's axes while gradients are added up; empty where they stand as they are.
    """

    axes: tuple[str, ...]
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Slice:
    """Every device keeps its block of one axis. Free.

    Of a value that is `alike` on all devices of the cut, the gradients of the blocks are put together (all-gather)
    where a cast before the slice would add up whole arrays that are zero but for a block (all-reduce).
    """

    axis: int
    cut: Cut
    size: int
    alike: bool = False


@dataclass(frozen=True)
class Gather:
    """All-gather of one axis over mesh axes; `size` cells remain. `varying` results transpose to a reduce-scatter."""

    axis: int
    axes: tuple[str, ...]
    size: int
    varying: bool


@dataclass(frozen=True)
class Exchange:
    """All-to-all: the cut moves from the axis `source` (of `size` cells) to the axis `target`."""

    source: int
    target: int
    size: int
    target_size: int
    cut: Cut


@dataclass(frozen=True)
class Deal:
    """All-to-all along one axis: from blocks to the stripes of `cut`, or from stripes to its blocks."""

    axis: int
    cut: Cut


@dataclass(frozen=True)
class Reorder:
    """An axis that every device holds whole, in the order of the stripes of `cut`, gets its own order back. Free."""

    axis: int
    cut: Cut
    size: int


@dataclass(frozen=True)
class Overlap:
    """Neighbour exchange along one axis of `size` cells: from the cut `source`, or whole, to `cut`. Free if no hops."""

    axis: int
    source: Cut | None
    cut: Cut
    size: int

    def exchange(self, mesh: MeshShape) -> NeighbourExchange | Drift:
        """Who sends what to whom."""
        devices = mesh.size(self.cut.axes)
        if self.source is not None and drifts(self.source, self.cut):
            return drifting(self.source, self.cut, self.size, devices)
        return neighbour_exchange(self.source, self.cut, self.size, devices)


@dataclass(frozen=True)
class Share:
    """What the last device along `axes` holds becomes a copy on all of them (all-reduce). Free backwards."""

    axes: tuple[str, ...]


Change = Cast | Slice | Gather | Exchange | Deal | Reorder | Overlap | Share


def changed_shape(shape: tuple[int, ...], change: Change, mesh: MeshShape) -> tuple[int, ...]:
    """The local shape after a change."""
    sizes = list(shape)
    match change:
        case Cast() | Deal() | Reorder() | Share():
            pass
        case Slice(axis, cut):
            sizes[axis] = cut.extent
        case Gather(axis, axes, size, _):
            sizes[axis] = min(shape[axis] * mesh.size(axes), size)
        case Exchange(source, target, size, _, cut):
            sizes[source] = size
            sizes[target] = cut.block
        case Overlap(axis, _, cut, _):
            sizes[axis] = cut.extent
    return tuple(sizes)
