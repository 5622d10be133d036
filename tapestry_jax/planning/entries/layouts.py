"""Layouts that users ask for, by name of the input or output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from combinators.errors import PlanError, message, spelt
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.planning.entries.read import Entries, mesh_axes, read_entries
from tapestry_jax.planning.geometry.layout import Layout, even_cut
from tapestry_jax.planning.geometry.mesh_shape import MeshShape

Named = tuple[tuple[str, Entries], ...]


def read_layouts(layouts: Any, mesh: MeshShape, where: str) -> Named:
    """Normalise `{name: {axis name: mesh axis}}`.

    Raises:
      PlanError: when it is no such mapping.
    """
    if layouts is None:
        return ()
    if not isinstance(layouts, Mapping):
        raise PlanError(
            message(
                f"{where} is a mapping from names to layouts",
                f"got {type(layouts).__name__}: {spelt(layouts)}",
                remedy='Write {"x": {"batch": "data"}}.',
            )
        )
    read: list[tuple[str, Entries]] = []
    for name, entry in layouts.items():
        entries = read_entries(entry, mesh, f"{where}[{name!r}]")
        mesh_axes(entries, f"{where}[{name!r}]")
        read.append((str(name), entries))
    return tuple(read)


def place_layouts(
    named: Named, types: Mapping[str, tuple[int, TensorType]], mesh: MeshShape, where: str
) -> dict[int, Layout]:
    """Layouts by position.

    Args:
      named: what the user asked for.
      types: position and type by name.
      mesh: the shape of the mesh.
      where: `inputs` or `outputs`, for messages.

    Raises:
      PlanError: for a name or an axis that does not exist, a mesh axis used twice, or a size that does not divide and
        is not stored in padded pieces.
    """
    placed: dict[int, Layout] = {}
    for name, entries in named:
        if name not in types:
            raise PlanError(
                message(
                    f"{where} names {name!r}, which the graph does not have",
                    f"it has {', '.join(list(types)[:12])}",
                    remedy="Name one of them.",
                )
            )
        position, kind = types[name]
        placed[position] = _placed(mesh_axes(entries, where), kind, mesh, f"{where}[{name!r}]")
    return placed


def _placed(
    entries: tuple[tuple[str, tuple[str, ...], bool], ...], kind: TensorType, mesh: MeshShape, where: str
) -> Layout:
    layout, used = Layout.whole(kind.ndim), set[str]()
    for axis, axes, _ in entries:
        if axis not in kind.names:
            raise PlanError(
                message(
                    f"{where} cuts `{axis}`, which is no axis of it",
                    f"its type is {kind}",
                    remedy="Name one of its axes.",
                )
            )
        if used & set(axes):
            raise PlanError(
                message(
                    f"{where} uses the mesh axis `{sorted(used & set(axes))[0]}` for two axes",
                    remedy="Use every mesh axis once for a tensor.",
                )
            )
        used |= set(axes)
        at = kind.names.index(axis)
        layout = layout.with_cut(at, even_cut(kind.shape[at], axes, mesh))
    for axis, axes, padded in entries:
        size = kind.shape[kind.names.index(axis)]
        if size % mesh.size(axes) and not padded:
            raise _uneven(where, axis, size, axes, mesh)
    return layout


def _uneven(where: str, axis: str, size: int, axes: tuple[str, ...], mesh: MeshShape) -> PlanError:
    shown = ", ".join(map(repr, axes))
    return PlanError(
        message(
            f"{where} cuts `{axis}` of {size} over {'+'.join(axes)} into {mesh.size(axes)} pieces, "
            "which do not divide it",
            "arrays that users hold have true shapes",
            remedy=f"Write tp.padded({shown}) to store it in padded pieces, or leave `{axis}` out: it is then stored "
            "whole and sliced inside.",
        )
    )
