"""Blocks of memory: which lie where results will be, and which over another one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from combinators.frozen import dataclass
from tapestry_jax.memory.program import Node, Value


@dataclass(frozen=True)
class Block:
    """A piece of memory, from the tick at which it is written first to that at which it is read last.

    Attributes:
      start: of the operation that writes it.
      end: of the last that reads it.
      value: what it holds at first.
      maker: what makes that.
      over: the block of an operand, of the same size, over which it may be written.
      freed: the tick at which what it holds at first is read last, where that counts for where it lies: -1 if another
        block was written over it.
      joint: whether what updates it in place, or loops over it, gives it more values.
    """

    start: int
    end: int
    value: Value
    maker: Node = field(repr=False)
    over: Block | None = field(default=None, repr=False)
    freed: int = -1
    joint: bool = False

    @property
    def bytes(self) -> int:
        """Of what it holds."""
        return self.value.bytes


def lent(blocks: Sequence[Block], places: Sequence[tuple[int, int]]) -> list[Block]:
    """The blocks but for those that lie in the place of an output until that is written, the largest first.

    Args:
      blocks: in the order in which compilers look at those of one size.
      places: for every output its bytes and the tick at which it is written, in the order in which they are asked: the
        smallest first.
    """
    rooms, until = [room for room, _ in places], [tick for _, tick in places]
    taken: list[list[tuple[int, int, Block]]] = [[] for _ in places]
    kept: list[Block] = []
    for block in sorted(blocks, key=lambda block: -block.bytes):
        start, end, over = block.start, block.end, block.over
        # Asked for every block and output of a program, so that nothing is called in between.
        for at in range(bisect_left(rooms, block.bytes), len(rooms)):
            if until[at] <= end:
                continue
            # What was put there last is the likeliest to be in the way.
            for begun, ended, other in reversed(taken[at]):
                if start <= ended and end >= begun and over is not other and other.over is not block:
                    break
            else:
                taken[at].append((start, end, block))
                break
        else:
            kept.append(block)
    return kept


def joined(blocks: Sequence[Block]) -> list[Block]:
    """What is overwritten in place is not there twice."""
    found: dict[int, Block] = {}
    first: dict[int, int] = {}
    for block in sorted(blocks, key=lambda block: block.start):
        key = id(block)
        # XLA does not do so with what is updated or handed on besides.
        if block.over is not None and id(block.over) in first and not (block.joint or block.over.joint):
            key = first[id(block.over)]
            found[key] = replace(found[key], end=max(found[key].end, block.end), freed=-1)
        else:
            found[key] = block
        first[id(block)] = key
    return list(found.values())


def moved(blocks: Sequence[Block], ticks: int, makers: Mapping[int, Node]) -> list[Block]:
    """The blocks of a program that is the same but runs so many ticks later.

    Args:
      blocks: of the first.
      ticks: by which they begin and end later.
      makers: the nodes of the second, by the identity of those of the first.
    """
    found: dict[int, Block] = {}
    for block in blocks:
        chain, under = [], block
        while under is not None and id(under) not in found:
            chain.append(under)
            under = under.over
        for each in reversed(chain):
            over = None if each.over is None else found[id(each.over)]
            maker, start, end = makers[id(each.maker)], each.start + ticks, each.end + ticks
            found[id(each)] = Block(start, end, each.value, maker, over, each.freed + ticks, each.joint)
    return [found[id(block)] for block in blocks]
