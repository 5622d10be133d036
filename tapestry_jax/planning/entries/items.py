"""What may stand in a plan besides mesh axes: stripes over them, chunks in time, rings, halos, and padded storage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from combinators.arguments import is_whole
from combinators.errors import PlanError, message, spelt
from combinators.frozen import dataclass


@dataclass(frozen=True)
class Chunks:
    """A loop on the device over pieces of a dimension; made by `chunks`."""

    count: int | None = None
    size: int | None = None

    def __str__(self) -> str:
        return f"chunks({self.count})" if self.count is not None else f"chunks(size={self.size})"


@dataclass(frozen=True)
class Striped:
    """Mesh axes whose devices are dealt the cells of a dimension in turn; made by `striped`."""

    axes: tuple[str, ...]

    def __str__(self) -> str:
        return f"striped({', '.join(map(repr, self.axes))})"


@dataclass(frozen=True)
class Ring:
    """A loop in which the pieces of a dimension go round a mesh axis; made by `ring`."""

    axis: str

    def __str__(self) -> str:
        return f"ring({self.axis!r})"


@dataclass(frozen=True)
class Halo:
    """How many turns of an iteration one exchange of the overlap serves; made by `halo`."""

    depth: int

    def __str__(self) -> str:
        return f"halo(depth={self.depth})"


@dataclass(frozen=True)
class Padded:
    """Mesh axes over which an argument or a result is stored in padded pieces; made by `padded`."""

    axes: tuple[str, ...]

    def __str__(self) -> str:
        return f"padded({', '.join(map(repr, self.axes))})"


Item = str | Striped | Chunks | Ring | Halo | Padded


def axes_of(items: Iterable[Item]) -> tuple[str, ...]:
    """The mesh axes that cut a dimension, in blocks or in stripes."""
    found: list[str] = []
    for item in items:
        found += [item] if isinstance(item, str) else item.axes if isinstance(item, Striped) else []
    return tuple(found)


def chunks(count: int | None = None, *, size: int | None = None) -> Chunks:
    """Take a dimension in chunks, one after the other, in a loop on every device.

    Args:
      count: the number of chunks of a device's piece.
      size: instead, the most cells that a chunk may have; chunks are made equal.

    Returns:
      An entry of a plan: `{"batch": tp.chunks(4)}`, or behind mesh axes `{"batch": ("data", tp.chunks(4))}`.

    Raises:
      PlanError: unless exactly one of them is given, a positive integer.
    """
    given = [value for value in (count, size) if value is not None]
    if len(given) != 1 or not _is_count(given[0]) or given[0] >= _MOST:
        raise PlanError(
            message(
                "tp.chunks takes a number of chunks, or the size of one",
                f"got count={spelt(count, 40)}, size={spelt(size, 40)}",
                remedy="Write tp.chunks(4) or tp.chunks(size=512), with a positive integer.",
            )
        )
    return Chunks(*(None if value is None else int(value) for value in (count, size)))


_MOST = 2**63


def ring(axis: str) -> Ring:
    """Let the pieces of a dimension go round the devices of a mesh axis, so that each meets all of them in turn.

    Args:
      axis: a mesh axis, on which another dimension of the operation is placed.

    Returns:
      An entry of a plan: `{"queries": "data", "keys": tp.ring("data")}`.

    Raises:
      PlanError: when `axis` is no name.
    """
    if not isinstance(axis, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(
            message("tp.ring takes the name of a mesh axis", f"got {spelt(axis)}", remedy='Write tp.ring("data").')
        )
    return Ring(axis)


def striped(*axes: str) -> Striped:
    """Deal the cells of a dimension to the devices of mesh axes in turn.

    Device `i` of `n` has the cells `i`, `i + n`, `i + 2n` and so on, from the whole length. That balances work which
    depends on where a cell is, such as causal attention. What goes round these axes in a ring goes round in stripes.
    Operations that need neighbours or an order (windows, scans, composite axes, folds that do not commute) take blocks,
    as arguments and results do: between blocks and stripes lies one all-to-all where the cells of a device divide by
    the devices.

    Args:
      axes: mesh axes, outermost first.

    Returns:
      An entry of a plan: `{"queries": tp.striped("data"), "keys": tp.ring("data")}`.

    Raises:
      PlanError: without names of mesh axes.

    Source: Brandon et al. 2023, Striped Attention.
    """
    _check_axes(axes, "tp.striped", "data")
    return Striped(axes)


def padded(*axes: str) -> Padded:
    """Store an argument or a result in equal pieces over mesh axes that do not divide it, the last pieces padded.

    Arrays that users hold have true shapes; this asks for another storage by name. The global array then has whole
    blocks: behind the true cells of the axis lie copies of the last one, through which no gradient flows. `plan.pad`
    and `plan.crop` lead from one form to the other, and `plan.put` pads what is stored so.

    Args:
      axes: mesh axes, outermost first.

    Returns:
      An entry of a layout: `tp.plan(graph, mesh, {...}, inputs={"w": {"vocab": tp.padded("model")}})`.

    Raises:
      PlanError: without names of mesh axes.
    """
    _check_axes(axes, "tp.padded", "model")
    return Padded(axes)


def halo(depth: int = 1) -> Halo:
    """Exchange the overlap of an iterated dimension once every `depth` turns, `depth` times as deep.

    Behind chunks a loop over them takes `depth` turns of each, and reads it with a rim as deep.

    Args:
      depth: turns for each exchange.

    Returns:
      An entry of a plan, behind mesh axes or chunks: `{"y": ("data", tp.halo(depth=8))}`.

    Raises:
      PlanError: when `depth` is not a positive integer.
    """
    if not _is_count(depth):
        raise PlanError(
            message(
                "tp.halo takes a number of turns", f"got depth={depth!r}", remedy="Write tp.halo(depth=4), at least 1."
            )
        )
    return Halo(int(depth))


def _check_axes(axes: tuple[str, ...], what: str, example: str) -> None:
    if not axes or not all(isinstance(axis, str) for axis in axes):  # pyright: ignore[reportUnnecessaryIsInstance]
        remedy = f'Write {what}("{example}").'
        raise PlanError(message(f"{what} takes names of mesh axes", f"got {spelt(axes)}", remedy=remedy))


def _is_count(value: Any) -> bool:
    return is_whole(value) and value > 0
