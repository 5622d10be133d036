"""Tensors as arrays of JAX: each device gets what it holds, and nobody holds all of it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tapestry_jax.fabric.blocks.memory import MemoryBlocks
from tapestry_jax.fabric.catalogue import reads
from tapestry_jax.fabric.moving.reading import read_version
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.placing import check_bits, sharding_of
from tapestry_jax.fabric.tensors.boxes import Box, shape_of, slices
from tapestry_jax.fabric.tensors.records import Version


def array_of(opened: Opened, name: str, version: Version, sharding: Any = None) -> jax.Array:
    """A version on devices.

    Args:
      opened: the fabric.
      name: what it is called, for messages.
      version: which; pinned by the caller.
      sharding: where it is to lie; by default in its own layout.

    Returns:
      An array of its own, which may be donated.

    Raises:
      FabricError: for 64 bits where JAX has them off, or blocks that are lost.
    """
    kind = version.kind
    check_bits(kind.type.dtype, repr(name))
    target = sharding_of(kind, opened.mesh) if sharding is None else sharding
    held = _held(opened, version)
    if held is not None:
        return jax.device_put(held.copy(), target)

    def read(index: Any) -> np.ndarray[Any, Any]:
        box: Box = tuple(each.indices(size)[:2] for each, size in zip(index, kind.type.shape, strict=True))
        return read_version(opened, name, version, box)

    return jax.make_array_from_callback(kind.type.shape, target, _once(read))


def _once(read: Any) -> Any:
    """Copies of one piece on several devices are read once."""
    known: dict[Any, Any] = {}

    def found(index: Any) -> Any:
        key = tuple((each.start, each.stop) for each in index)
        if key not in known:
            known[key] = read(index)
        return known[key]

    return found


def _held(opened: Opened, version: Version) -> Any:
    """The array in which a version lies on devices already."""
    blocks = opened.blocks
    if not isinstance(blocks, MemoryBlocks) or not version.kind.type.size:
        return None
    block = reads.block(opened.catalogue, version.number, 0)
    found = None if block is None else blocks.held(block)
    return found if isinstance(found, jax.Array) else None


class Pieces:
    """An array of JAX, read by boxes on the host from the pieces that devices hold; never brought together whole.

    Args:
      array: of any layout on devices of this process.
    """

    def __init__(self, array: jax.Array) -> None:
        self._array = array
        self._shards = [shard for shard in array.addressable_shards if shard.replica_id == 0]

    def __call__(self, box: Box) -> np.ndarray[Any, Any]:
        """A box of it."""
        made = np.empty(shape_of(box), self._array.dtype)
        for shard in self._shards:
            held = tuple(each.indices(size)[:2] for each, size in zip(shard.index, self._array.shape, strict=True))
            common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, held, strict=True))
            if all(start < stop for start, stop in common) or not box:
                made[slices(common, box)] = np.asarray(shard.data)[(*slices(common, held), ...)]
        return made
