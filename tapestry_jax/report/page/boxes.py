"""The blocks of every operation, as far as a page lists them; what many operations have in common stands once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import islice
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.shards.blocks_at import BlockAt, blocks_at, count_blocks, families
from tapestry_jax.shards.parts import Block, Program, Ranges, Shared
from tapestry_jax.shards.ranges import Intervals, box_text, spelled
from tapestry_jax.shards.show import range_text

LISTED = 16
"""So many blocks of an operation are listed, those of the first devices and turns."""


@dataclass(frozen=True)
class Boxes:
    """Families of blocks.

    Attributes:
      families: how many blocks, their index box for all of them, what they read and make, and some of them one by one.
      by_path: the families of an operation, by their places in the list.
    """

    families: list[dict[str, Any]] = field(default_factory=list)
    by_path: dict[str, list[int]] = field(default_factory=dict)


def boxes_of(shared: Shared, program: Program) -> Boxes:
    """The blocks of a sharded graph, for a page. Paths of tensors are left out, so that equal layers share theirs."""
    found, places = Boxes(), dict[str, int]()
    for inner, step, _ in families(program):
        family = _family(shared, inner, step)
        place = places.setdefault(repr(family), len(found.families))
        if place == len(found.families):
            found.families.append(family)
        found.by_path.setdefault(step.path, []).append(place)
    return found


def _family(shared: Shared, program: Program, step: Block) -> dict[str, Any]:
    called = dict(step.names)
    return {
        "count": count_blocks(shared, step),
        "box": [[called.get(dim, dim), range_text(own)] for dim, own in step.box],
        "reads": [_ranges(read.box) for read in step.reads],
        "makes": [_ranges(program.pieces[number].box) for number in step.results],
        "rows": [_row(each) for each in islice(blocks_at(shared, program, step), LISTED)],
    }


def _ranges(box: Ranges) -> str:
    return "[" + ", ".join(map(range_text, box)) + "]"


def _row(block: BlockAt) -> list[Any]:
    index = [f"{low}:{high}" for low, high in block.box.values()]
    reads, writes = ([_box(box) for _, box in side] for side in (block.reads, block.writes))
    return [spelled(block.point), index, reads, writes]


def _box(box: Sequence[Intervals]) -> str:
    return box_text([(parts[0][0], parts[-1][1]) if parts else (0, 0) for parts in box])
