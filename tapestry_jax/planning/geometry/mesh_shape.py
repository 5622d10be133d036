"""The shape of a mesh: what planning needs of it, devices or not."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from jax.sharding import AxisType, Mesh

from combinators.arguments import read_count, read_name
from combinators.errors import MeshError, message, spelt
from combinators.frozen import dataclass
from tapestry_jax.planning.geometry.time_axis import is_time, turns_of


@dataclass(frozen=True)
class MeshShape:
    """Axis names and sizes, in the order of the mesh."""

    axes: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, mesh: Any) -> MeshShape:
        """The shape of a `jax.sharding.Mesh`, of an `AbstractMesh`, or of a mapping of sizes.

        Raises:
          MeshError: when `mesh` is none of these.
        """
        shape = getattr(mesh, "shape", mesh)
        try:
            listed = list(dict(shape).items())
        except (TypeError, ValueError) as error:
            raise MeshError(
                message(
                    "a plan needs a mesh",
                    f"got {type(mesh).__name__}: {spelt(mesh)}",
                    remedy="Make one with tp.mesh(data=2, model=4), or pass a jax.sharding.Mesh or AbstractMesh.",
                )
            ) from error
        _check_kind(mesh)
        return cls(
            tuple(
                (read_name(name, "a mesh axis", MeshError), read_count(size, f"the size of `{name}`", 1, MeshError))
                for name, size in listed
            )
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The axis names."""
        return tuple(name for name, _ in self.axes)

    @cached_property
    def _sizes(self) -> dict[str, int]:
        return dict(self.axes)

    def size(self, axes: Iterable[str]) -> int:
        """The number of pieces along `axes` together: of devices, and of turns where an axis is a loop in time."""
        sizes, count = self._sizes, 1
        for axis in axes:
            size = sizes.get(axis)
            count *= size if size is not None else turns_of(axis) if is_time(axis) else sizes[axis]
        return count

    def real(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Those of `axes` that have more than one device, or turn."""
        return tuple(axis for axis in axes if self.size((axis,)) > 1)

    def shortens(self, size: int, axes: Iterable[str]) -> bool:
        """Whether each of `axes` makes the pieces of `size` cells shorter: there may be fewer cells than devices."""
        along = tuple(axes)
        pieces = self.size(along)
        return all(-(-size // pieces) < -(-size // (pieces // self.size((axis,)))) for axis in along)

    def __str__(self) -> str:
        return " x ".join(f"{name}={size}" for name, size in self.axes)


def _check_kind(mesh: Any) -> None:
    """Refuse meshes whose axes are not all of one kind, or not ours to use, and those with a device twice."""
    kinds: set[Any] = set(getattr(mesh, "axis_types", None) or ())
    if AxisType.Manual in kinds or len(kinds) > 1:
        raise MeshError(
            message(
                "a plan needs a mesh whose axes are all Auto, or all Explicit",
                f"got {mesh}",
                remedy="Make one with tp.mesh(data=2, model=4).",
            )
        )
    devices = list(mesh.devices.flat) if isinstance(mesh, Mesh) else []
    if len(set(devices)) < len(devices):
        raise MeshError(
            message("a mesh has a device twice", f"got {spelt(devices, 200)}", remedy="Name every device once.")
        )
