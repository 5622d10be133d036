"""The most that is alive at once in a program: buffers from where they are made to where they are last read."""

from __future__ import annotations

from combinators.frozen import dataclass
from tapestry_jax.memory.blocks import Block
from tapestry_jax.memory.lives import blocks_of
from tapestry_jax.memory.packed import packed
from tapestry_jax.memory.program import Program


@dataclass(frozen=True)
class Live:
    """One buffer that is alive at the peak.

    Attributes:
      bytes: of one device.
      type: dtype and shape of its piece, such as `bfloat16[96,1,2048,12288]`.
      path: of the operation that makes it.
      backward: whether the gradient makes it.
    """

    bytes: int
    type: str
    path: str
    backward: bool


@dataclass(frozen=True)
class Peak:
    """The most that is alive at once.

    Attributes:
      bytes: that all buffers take, where compilers put them.
      live: the buffers of the moment with the most, in the order in which they are made.
    """

    bytes: int = 0
    live: tuple[Live, ...] = ()


def peak(program: Program) -> Peak:
    """The peak of temporaries: neither the inputs of the program nor its outputs are counted."""
    blocks = [block for block in blocks_of(program) if block.bytes]
    ticks: dict[int, int] = {}
    for block in blocks:
        ticks[block.start] = ticks.get(block.start, 0) + block.bytes
        ticks[block.end + 1] = ticks.get(block.end + 1, 0) - block.bytes
    current, most, moment = 0, 0, 0
    for tick in sorted(ticks):
        current += ticks[tick]
        if current > most:
            most, moment = current, tick
    alive = sorted((block for block in blocks if block.start <= moment <= block.end), key=lambda block: block.start)
    return Peak(max(most, packed(blocks)), tuple(map(_live, alive)))


def _live(block: Block) -> Live:
    node = block.maker
    return Live(block.bytes, block.value.text, node.path if node else "", node.backward if node else False)
