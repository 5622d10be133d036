"""What users write in a plan, made uniform: dimension to mesh axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from combinators.errors import MeshError, PlanError, message
from tapestry_jax.planning.mesh_shape import MeshShape

Entries = tuple[tuple[str, tuple[str, ...]], ...]


def read_entries(entries: Any, mesh: MeshShape, where: str) -> Entries:
    """Normalise `{dim: axis | (axis, ...) | None}`.

    Raises:
      PlanError: for anything else, or a mesh axis that stands twice in one entry.
      MeshError: for a mesh axis that the mesh does not have.
    """
    if not isinstance(entries, Mapping):
        raise PlanError(
            message(
                f"{where} is a mapping from dimension names to mesh axes",
                f"got {type(entries).__name__}: {entries!r:.80}",
                remedy='Write {"batch": "data", "mlp": "model"}.',
            )
        )
    return tuple((str(dim), _read(dim, value, mesh, where)) for dim, value in entries.items())


def _read(dim: Any, value: Any, mesh: MeshShape, where: str) -> tuple[str, ...]:
    listed: tuple[Any, ...] = () if value is None else (value,) if isinstance(value, str) else _tuple(dim, value, where)
    for axis in listed:
        if not isinstance(axis, str):
            raise PlanError(
                message(
                    f"{where} places `{dim}` on something that is not a mesh axis",
                    f"got {axis!r:.80}",
                    remedy=f"Name mesh axes: {', '.join(mesh.names)}; None leaves the dimension whole.",
                )
            )
        if axis not in mesh.names:
            raise MeshError(
                message(
                    f"{where} places `{dim}` on the mesh axis `{axis}`, which the mesh does not have",
                    f"mesh {mesh}",
                    remedy=f"Use one of {', '.join(mesh.names)}.",
                )
            )
        if listed.count(axis) > 1:
            raise PlanError(
                message(
                    f"{where} places `{dim}` twice on the mesh axis `{axis}`",
                    f"got {value!r}",
                    remedy="Name every mesh axis once.",
                )
            )
    return tuple(listed)


def _tuple(dim: Any, value: Any, where: str) -> tuple[Any, ...]:
    if isinstance(value, tuple | list):
        return tuple(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise PlanError(
        message(
            f"{where} places `{dim}` on something that is not a mesh axis",
            f"got {type(value).__name__}: {value!r:.80}",
            remedy="Give a mesh axis, a tuple of them, or None.",
        )
    )
