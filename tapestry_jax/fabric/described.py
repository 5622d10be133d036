"""What a fabric says of a tensor."""

from __future__ import annotations

from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from combinators.stored.json import shown
from tapestry_jax.fabric.catalogue import reads
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.tensors.boxes import count_of
from tapestry_jax.fabric.tensors.records import Layout


@dataclass(frozen=True)
class Described:
    """A tensor, without its numbers.

    Attributes:
      name: what it is called.
      type: names, sizes and dtype.
      version: which content it has; every write gives another one.
      chunks: the sizes of its blocks.
      blocks: how many it has.
      stored: how many of them were ever written; the others are zero.
      layout: dimensions and the mesh axes that cut them.
      made: how it came to be: what was applied, loaded and copied last, in words.
    """

    name: str
    type: TensorType
    version: int
    chunks: tuple[int, ...]
    blocks: int
    stored: int
    layout: Layout
    made: tuple[str, ...]

    def __str__(self) -> str:
        blocks = f"{self.stored} of {self.blocks} blocks {self.chunks}"
        layout = " ".join(f"{name}:{'+'.join(axes)}" for name, axes in self.layout) or "whole"
        lines = [f"{self.name}  {self.type}  {self.type.nbytes:,} B", f"  version {self.version}, {blocks}, {layout}"]
        return "\n".join([*lines, *(f"  {line}" for line in self.made)])


def describe(opened: Opened, name: str) -> Described:
    """What is known of a tensor, as of one moment.

    Raises:
      FabricError: where there is none of this name.
    """
    with opened.catalogue.reading():
        version = opened.version(name)
        blocks, kind = reads.blocks(opened.catalogue, version.number), version.kind
        numbers = sorted({number for block in blocks.values() for number, _ in block.made or ()})
        made = tuple(_told(opened, number) for number in numbers[-4:])
    if any(block.made is None for block in blocks.values()):
        made = (*made, "blocks of it cannot be computed again: written from memory, or by many copies")
    return Described(
        name,
        kind.type,
        version.number,
        kind.chunks,
        count_of(kind.type.shape, kind.chunks),
        len(blocks),
        kind.layout,
        made,
    )


def _told(opened: Opened, number: int) -> str:
    operation = reads.operation(opened.catalogue, number)
    if operation is None:
        return "made by what is no longer remembered"
    what = operation.detail.get("function") or operation.detail.get("path") or ""
    read = f" of versions {', '.join(map(str, operation.inputs))}" if operation.inputs else ""
    return f"{operation.kind} {shown(str(what))}{read}".replace("  ", " ")
