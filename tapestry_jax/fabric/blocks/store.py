"""What keeps blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from tapestry_jax.fabric.tensors.records import Block, Kind

Part = tuple[tuple[slice, ...], Any]
"""Where in a block something belongs, and the array."""


class BlockLost(Exception):
    """A block that is not there, or not as it was written. `why` says which."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Blocks(Protocol):
    """A store of blocks. What was put is never changed: other bytes are another block."""

    @property
    def session(self) -> str:
        """Who writes or reads for long: other sessions have other names."""
        ...

    @property
    def has_session(self) -> bool:
        """Whether that was ever asked for."""
        ...

    @property
    def keeps_whole(self) -> bool:
        """Whether a tensor is one block, as on the devices of a mesh, which cut it themselves."""
        ...

    def put(self, array: Any, kind: Kind) -> tuple[str, str]:
        """Keep an array, of the dtype of the tensor; its file and its checksum.

        Raises:
          OSError: where it cannot be written. Nothing of it stays.
        """
        ...

    def part(self, block: Block, shape: tuple[int, ...], kind: Kind, where: tuple[slice, ...]) -> Any:
        """What lies somewhere in a block: an array that nobody may write into.

        Raises:
          BlockLost: when it is not there, or not as it was written.
        """
        ...

    def updated(
        self, block: Block | None, shape: tuple[int, ...], kind: Kind, parts: Sequence[Part]
    ) -> tuple[str, str]:
        """A block like another (None: zeros) with these parts in it; its file and its checksum.

        Raises:
          BlockLost: when the other is not there.
          OSError: where it cannot be written.
        """
        ...

    def is_there(self, block: Block, shape: tuple[int, ...], kind: Kind) -> bool:
        """Whether a block is there, as it was written."""
        ...

    def own_files(self) -> Sequence[str]:
        """All that this session has put and nobody has removed."""
        ...

    def sync(self) -> None:
        """All that was put survives a power cut."""
        ...

    def remove(self, files: Iterable[str]) -> None:
        """They are needed no more; those that are not there are none."""
        ...

    def close(self) -> None:
        """Nothing is put or read any more."""
        ...


def filled(base: np.ndarray[Any, Any], parts: Sequence[Part]) -> np.ndarray[Any, Any]:
    """A copy of `base` with parts in it."""
    made = np.array(base)
    for where, array in parts:
        made[where] = np.asarray(array)
    return made
