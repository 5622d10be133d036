"""What is known of a value of a kernel's program: what lies along each of its axes, and what has entered it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from combinators.frozen import dataclass

# Cells differ by their position in the block: what `iota` makes, and constant arrays.
POSITION = "#position"
# Along another dimension, or several: nothing is asked of it, and it lines up with none that is followed.
OTHER = "#other"
# Among pieced dimensions: how many cells something has that the program made, which may be as many as its block has.
COUNT = "#count"
_ONE = "one cell for all"


@dataclass(frozen=True)
class Order:
    """Some cells of a dimension, or all of them in another order.

    Attributes:
      dim: the dimension.
      cells: the numbers of those that lie along an axis.
      size: how many the dimension has.
    """

    dim: str
    cells: tuple[int, ...]
    size: int


Tag = str | Order | None


def dim_of(tag: Tag) -> str | None:
    """The dimension that lies along an axis, whatever its order."""
    if isinstance(tag, Order):
        return tag.dim
    return None if tag in (POSITION, OTHER) else tag


def ordered(dim: str, cells: Iterable[int], size: int) -> Tag:
    """Cells of a dimension of this size; the dimension itself where they are all of them, in their order."""
    found = Order(dim, tuple(cells), size)
    return dim if found.cells == tuple(range(size)) else found


def dims_of(tags: Iterable[Tag]) -> frozenset[str]:
    """The dimensions that lie along axes."""
    return frozenset(dim for dim in map(dim_of, tags) if dim is not None)


@dataclass(frozen=True)
class Flow:
    """What is known of one value.

    Attributes:
      axes: for each axis what lies along it: a dimension, `POSITION`, `OTHER`, a part of a dimension, or None where
        the cells do not differ for any reason that is known.
      reads: dimensions of which other cells enter, or the position in the block, each with what does so.
      lost: dimensions that may enter in a way that is not known.
      picked: dimensions of which one cell enters everywhere, with that cell: it may be put beside the others again.
      pieced: dimensions whose cells were put together of pieces, of which one may have been treated in another way.
      told: whether what it chooses is known of each box: it is made of places alone, or nobody asks.
    """

    axes: tuple[Tag, ...]
    reads: Mapping[str, str] = field(default_factory=dict[str, str])
    lost: frozenset[str] = frozenset()
    picked: Mapping[str, Order] = field(default_factory=dict[str, Order])
    pieced: frozenset[str] = frozenset()
    told: bool = True

    def along(self, axes: Iterable[Tag]) -> Flow:
        """The same with other axes."""
        return replace(self, axes=tuple(axes))

    def reading(self, tags: Iterable[Tag], how: str) -> Flow:
        """The same, where the cells along these axes have been mixed; axes of no dimension count for nothing."""
        return replace(self, reads={**dict.fromkeys(dims_of(tags), how), **self.reads})

    def picking(self, tags: Iterable[Tag]) -> Flow:
        """The same without these axes, along which one cell lies."""
        found = self
        for tag in tags:
            if isinstance(tag, Order) and len(tag.cells) == 1 and self.picked.get(tag.dim, tag) == tag:
                found = replace(found, picked={**found.picked, tag.dim: tag})
            else:
                found = found.reading([tag], _ONE)
        return found

    def unpicked(self, dim: str) -> Flow:
        """The same, where the cell that was picked lies beside the others."""
        return replace(self, picked={each: order for each, order in self.picked.items() if each != dim})

    def one_of(self, dim: str) -> str | None:
        """What reads one cell of a dimension for all; None where nothing does."""
        return _ONE if dim in self.picked else None

    def losing(self, tags: Iterable[Tag]) -> Flow:
        """The same, where what lies along these axes enters in a way that is not known."""
        return replace(self, lost=self.lost | dims_of(tags))

    def counting(self) -> Flow:
        """The same, where how many cells something has may have entered that the program made, as `jnp.ones` does."""
        return replace(self, pieced=self.pieced | {COUNT})

    def piecing(self, tags: Iterable[Tag]) -> Flow:
        """The same, where what lies along these axes is put together of pieces."""
        return replace(self, pieced=self.pieced | dims_of(tags))


def joined(flows: Sequence[Flow], rank: int, name: str) -> Flow:
    """What comes of values that meet cell by cell; scalars meet every cell."""
    found = together(flows, (None,) * rank)
    for axis in range(rank):
        tags = {flow.axes[axis] for flow in flows if flow.axes} - {None}
        found = _met(found, axis, tags, name)
    return found


def together(flows: Sequence[Flow], axes: Sequence[Tag]) -> Flow:
    """Axes with all that entered the values so far."""
    reads = {dim: how for flow in flows for dim, how in flow.reads.items()}
    picked = {dim: order for flow in flows for dim, order in flow.picked.items()}
    reads |= {dim: _ONE for flow in flows for dim, order in flow.picked.items() if picked[dim] != order}
    lost = frozenset[str]().union(*(flow.lost for flow in flows))
    pieced = frozenset[str]().union(*(flow.pieced for flow in flows))
    return Flow(tuple(axes), reads, lost, picked, pieced, all(flow.told for flow in flows))


def _met(found: Flow, axis: int, tags: set[Tag], name: str) -> Flow:
    dims = dims_of(tags)
    tag: Tag = OTHER
    if len(tags) <= 1:
        tag = next(iter(tags), None)
    elif len(dims) == 1 and OTHER not in tags:
        # Cells of one dimension, in two orders or beside numbers of their places.
        tag = next(iter(dims))
        found = found.reading(
            [tag], "the position in the block" if POSITION in tags else f"{name} of cells in two orders"
        )
    else:
        found = found.losing(tags)
    return found.along((*found.axes[:axis], tag, *found.axes[axis + 1 :]))
