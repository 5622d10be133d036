"""Blocks in memory: arrays of NumPy, or on the devices of a mesh in the layout of their tensor."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tapestry_jax.fabric.blocks.store import BlockLost, Part, filled
from tapestry_jax.fabric.placing import placed, sharding_of
from tapestry_jax.fabric.tensors.records import Block, Kind


class MemoryBlocks:
    """Blocks in the memory of this process; on a mesh a tensor is one block.

    Args:
      mesh: on whose devices they lie; None keeps them in the memory of the host.
    """

    session = "memory"
    has_session = True

    def __init__(self, mesh: Any) -> None:
        self._mesh = mesh
        self.keeps_whole = mesh is not None
        self._held: dict[str, Any] = {}
        self._numbers = itertools.count(1)

    def put(self, array: Any, kind: Kind) -> tuple[str, str]:
        """Keep an array; its name, and no checksum."""
        name = f"memory/{next(self._numbers)}"
        if self._mesh is None:
            kept = np.array(array, kind.type.dtype)
            kept.flags.writeable = False
        else:
            kept = placed(array, kind.type.dtype, sharding_of(kind, self._mesh))
        self._held[name] = kept
        return name, ""

    def part(self, block: Block, shape: tuple[int, ...], kind: Kind, where: tuple[slice, ...]) -> Any:
        """What lies somewhere in a block; on the devices where the block does."""
        held = self.held(block)
        if isinstance(held, np.ndarray) or all(each == slice(0, n) for each, n in zip(where, shape, strict=True)):
            return held[(*where, ...)] if isinstance(held, np.ndarray) else held
        starts = [each.start for each in where]
        return _cut_out(held, starts, tuple(each.stop - each.start for each in where))

    def updated(
        self, block: Block | None, shape: tuple[int, ...], kind: Kind, parts: Sequence[Part]
    ) -> tuple[str, str]:
        """A block like another with these parts in it."""
        if self._mesh is None:
            base = np.zeros(shape, kind.type.dtype) if block is None else self.held(block)
            return self.put(filled(base, parts), kind)
        target = sharding_of(kind, self._mesh)
        made = placed(np.zeros(shape, kind.type.dtype), kind.type.dtype, target) if block is None else self.held(block)
        for where, array in parts:
            made = _put_into(target)(made, array, [each.start for each in where])
        return self.put(made, kind)

    def is_there(self, block: Block, shape: tuple[int, ...], kind: Kind) -> bool:
        """Whether a block is there."""
        return block.file in self._held

    def held(self, block: Block) -> Any:
        """The array itself.

        Raises:
          BlockLost: when it is not there.
        """
        if block.file not in self._held:
            raise BlockLost("it is no longer in memory")
        return self._held[block.file]

    def own_files(self) -> Sequence[str]:
        """All that was put and not removed."""
        return list(self._held)

    def sync(self) -> None:
        """Memory survives nothing."""

    def remove(self, files: Iterable[str]) -> None:
        """They are needed no more."""
        for file in files:
            self._held.pop(file, None)

    def close(self) -> None:
        """Let all of them go."""
        self._held.clear()


@functools.partial(jax.jit, static_argnums=2)
def _cut_out(array: Any, starts: Sequence[int], sizes: tuple[int, ...]) -> Any:
    return jax.lax.dynamic_slice(array, starts, sizes)


@functools.lru_cache(maxsize=256)
def _put_into(sharding: Any) -> Any:
    def put(array: Any, piece: Any, starts: Sequence[int]) -> Any:
        return jax.lax.dynamic_update_slice(array, jnp.asarray(piece, array.dtype), starts)

    return jax.jit(put, out_shardings=sharding)
