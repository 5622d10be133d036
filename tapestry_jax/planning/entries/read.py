"""What users write in a plan, made uniform: dimension to mesh axes, chunks, rings and halos."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from combinators.arguments import read_name
from combinators.errors import MeshError, PlanError, message, spelt
from tapestry_jax.planning.entries.items import Chunks, Halo, Item, Padded, Ring, Striped
from tapestry_jax.planning.geometry.mesh_shape import MeshShape

Entries = tuple[tuple[str, tuple[Item, ...]], ...]


def read_entries(entries: Any, mesh: MeshShape, where: str) -> Entries:
    """Normalise `{dim: item | (item, ...) | None}`: mesh axes, then a ring, chunks and a halo, at most one of each.

    Raises:
      PlanError: for anything else, or a mesh axis that stands twice in one entry.
      MeshError: for a mesh axis that the mesh does not have.
    """
    if not isinstance(entries, Mapping):
        raise PlanError(
            message(
                f"{where} is a mapping from dimension names to mesh axes",
                f"got {type(entries).__name__}: {spelt(entries)}",
                remedy='Write {"batch": "data", "mlp": "model"}.',
            )
        )
    known: Any = entries
    return tuple(
        (read_name(dim, f"a dimension in {where}", PlanError), _read(dim, value, mesh, where))
        for dim, value in known.items()
    )


def _read(dim: Any, value: Any, mesh: MeshShape, where: str) -> tuple[Item, ...]:
    single = isinstance(value, Item)
    listed: tuple[Any, ...] = () if value is None else (value,) if single else _tuple(dim, value, where)
    listed = tuple(str(item) if isinstance(item, str) else item for item in listed)  # NumPy's texts too
    axes: list[str] = []
    for item in listed:
        if not isinstance(item, Item):
            raise PlanError(
                message(
                    f"{where} places `{dim}` on something that is not a mesh axis",
                    f"got {spelt(item)}",
                    remedy=f"Name mesh axes: {', '.join(mesh.names)}; None leaves the dimension whole.",
                )
            )
        for axis in _named(item):
            _check_axis(dim, axis, axes, value, mesh, where)
            axes.append(axis)
    _check_order(dim, listed, where)
    _check_padded(dim, listed, where)
    return tuple(listed)


def _named(item: Item) -> tuple[str, ...]:
    match item:
        case str():
            return (item,)
        case Striped(axes) | Padded(axes):
            return axes
        case Ring(axis):
            return (axis,)
        case Chunks() | Halo():
            return ()


def _check_axis(dim: Any, axis: str, before: list[str], value: Any, mesh: MeshShape, where: str) -> None:
    if axis not in mesh.names:
        raise MeshError(
            message(
                f"{where} places `{dim}` on the mesh axis `{axis}`, which the mesh does not have",
                f"mesh {mesh}",
                remedy=f"Use one of {', '.join(mesh.names)}.",
            )
        )
    if axis in before:
        raise PlanError(
            message(
                f"{where} places `{dim}` twice on the mesh axis `{axis}`",
                f"got {value!r}",
                remedy="Name every mesh axis once.",
            )
        )


def _check_order(dim: Any, listed: tuple[Item, ...], where: str) -> None:
    """Mesh axes, ring, chunks, halo: each device takes its own piece in chunks."""
    striped = next((item for item in listed if isinstance(item, Striped)), None)
    blocks = [item for item in listed if isinstance(item, str)]
    if striped is not None and blocks:
        raise PlanError(
            message(
                f"{where} places `{dim}` in blocks and in stripes at once",
                f"got ({', '.join(map(str, listed))})",
                remedy=f"Write tp.striped({', '.join(map(repr, (*blocks, *striped.axes)))}) alone.",
            )
        )
    kinds = [_RANK[type(item)] for item in listed]
    if kinds != sorted(kinds) or any(kinds.count(rank) > 1 for rank in kinds if rank > 0):
        raise PlanError(
            message(
                f"{where} places `{dim}` in an order that has no meaning",
                f"got ({', '.join(map(str, listed))})",
                remedy="Write mesh axes first, then at most one ring, one tp.chunks and one tp.halo, "
                'as in ("data", tp.chunks(4)).',
            )
        )


_RANK: dict[type, int] = {str: 0, Striped: 1, Ring: 2, Chunks: 3, Halo: 4, Padded: 5}


def _check_padded(dim: Any, listed: tuple[Item, ...], where: str) -> None:
    """Padded storage names all of its mesh axes itself: they cut one axis into equal pieces together."""
    stored = next((item for item in listed if isinstance(item, Padded)), None)
    if stored is None or len(listed) == 1:
        return
    axes = (*(item for item in listed if isinstance(item, str)), *stored.axes)
    raise PlanError(
        message(
            f"{where} stores `{dim}` padded and otherwise at once",
            f"got ({', '.join(map(str, listed))})",
            remedy=f"Write tp.padded({', '.join(map(repr, axes))}) alone.",
        )
    )


def check_placed(entries: Entries, where: str) -> None:
    """Check entries for operations: how something is stored is said of arguments and results.

    Raises:
      PlanError: for padded storage.
    """
    for dim, items in entries:
        stored = next((item for item in items if isinstance(item, Padded)), None)
        if stored is not None:
            axes = stored.axes[0] if len(stored.axes) == 1 else stored.axes
            raise PlanError(
                message(
                    f"{where} places `{dim}` on {stored}, which says how an argument or a result is stored",
                    "operations need no padding: any size can be placed on any mesh axes",
                    remedy=f'Write {{"{dim}": {axes!r}}} here, and inputs={{"name": {{"{dim}": tp.{stored}}}}}.',
                )
            )


def mesh_axes(entries: Entries, where: str) -> tuple[tuple[str, tuple[str, ...], bool], ...]:
    """Entries of a layout, which holds mesh axes alone: axis, its mesh axes, and whether its pieces are padded.

    Raises:
      PlanError: for chunks, rings and halos.
    """
    return tuple((dim, *_only_axes(dim, items, where)) for dim, items in entries)


def _only_axes(dim: str, items: tuple[Item, ...], where: str) -> tuple[tuple[str, ...], bool]:
    if len(items) == 1 and isinstance(items[0], Padded):
        return items[0].axes, True
    for item in items:
        if not isinstance(item, str):
            raise PlanError(
                message(
                    f"{where} stores `{dim}` in {item}",
                    "arrays lie on mesh axes; loops and exchanges belong to operations",
                    remedy="Name mesh axes here, and write the rest into the plan's entries.",
                )
            )
    return tuple(item for item in items if isinstance(item, str)), False


def _tuple(dim: Any, value: Any, where: str) -> tuple[Any, ...]:
    if isinstance(value, tuple | list):
        return tuple(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise PlanError(
        message(
            f"{where} places `{dim}` on something that is not a mesh axis",
            f"got {type(value).__name__}: {spelt(value)}",
            remedy="Give a mesh axis, tp.chunks, tp.striped, tp.ring or tp.halo, a tuple of these, or None.",
        )
    )
