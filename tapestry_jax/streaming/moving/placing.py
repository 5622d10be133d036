"""Between the host and the devices: pieces of a turn put where the mesh wants them, and taken from there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from tapestry_jax.planning.geometry.mesh_shape import MeshShape
from tapestry_jax.planning.scheduling.schedule import Slot
from tapestry_jax.storage.protocols import Array, Box
from tapestry_jax.streaming.moving.views import View, own_box, view
from tapestry_jax.streaming.turn import Programs


def places_of(mesh: Any) -> dict[Any, dict[str, int]]:
    """The position of every device along the axes of a mesh."""
    found: dict[Any, dict[str, int]] = {}
    for index, device in np.ndenumerate(mesh.devices):
        found[device] = dict(zip(mesh.axis_names, index, strict=True))
    return found


def views_of(
    slot: Slot, mesh: MeshShape, places: Mapping[Any, Mapping[str, int]], turn: Mapping[str, int]
) -> dict[View, list[Any]]:
    """The different views of a value that devices hold in a turn, each with the devices that do."""
    found: dict[View, list[Any]] = {}
    for device, at in places.items():
        found.setdefault(view(slot, mesh, {**at, **turn}), []).append(device)
    return found


def together(programs: Programs, slot: Slot, pieces: Mapping[Any, Array]) -> Any:
    """The global array of a slot, from the piece of every device; on CPUs it may share the memory of the pieces."""
    sharding = programs.sharding(slot)
    if len(pieces) == 1:
        return jax.device_put(next(iter(pieces.values())), sharding)
    arrays = [jax.device_put(piece, device) for device, piece in pieces.items()]
    return jax.make_array_from_single_device_arrays(programs.shape(slot), sharding, arrays)


def pieces_of(
    array: Any, slot: Slot, mesh: MeshShape, places: Mapping[Any, Mapping[str, int]], turn: Mapping[str, int]
) -> Iterator[tuple[Box, Array]]:
    """What is written of a value that a turn has made: every box once, without padding."""
    seen: set[Box] = set()
    for shard in array.addressable_shards:
        box, inside = own_box(slot, mesh, {**places[shard.device], **turn})
        if box not in seen and all(start < stop for start, stop in box):
            seen.add(box)
            yield box, np.asarray(shard.data)[inside]
