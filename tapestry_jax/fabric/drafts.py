"""New versions: their blocks are written first, where nobody sees them; names follow in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from combinators.errors import message
from combinators.frozen import dataclass
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.fabric.catalogue import reads, writes
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.opened import Opened
from tapestry_jax.fabric.tensors.boxes import MOST_BLOCKS, Box, Piece, blocks_of, choose_chunks, count_of, shown
from tapestry_jax.fabric.tensors.records import Block, Kind, Layout, Made


@dataclass(frozen=True)
class Draft:
    """A version that is written and that no name stands for yet.

    Attributes:
      kind: what it is.
      blocks: file and checksum by position; what is left out is zero.
    """

    kind: Kind
    blocks: Mapping[int, tuple[str, str]]

    @property
    def files(self) -> list[str]:
        """Of its blocks."""
        return [file for file, _ in self.blocks.values()]


@dataclass(frozen=True)
class Origin:
    """How drafts came to be: what `writes.add_operation` takes.

    Attributes:
      kind: `apply`, `load` or `copy`.
      detail: what JSON holds of it.
      inputs: the versions that were read.
      graph: key and text.
    """

    kind: str
    detail: Mapping[str, Any]
    inputs: Sequence[int] = ()
    graph: tuple[str, str | None] | None = None


def kind_of(opened: Opened, type: TensorType, chunks: Any = None, layout: Layout = ()) -> Kind:
    """What a tensor of a type is in this fabric: on devices it is one block.

    Raises:
      FabricError: where it would have more blocks than have numbers.
    """
    if opened.blocks.keeps_whole:
        return Kind(type, tuple(max(size, 1) for size in type.shape), layout)
    chosen = choose_chunks(type.shape, type.dtype.itemsize) if chunks is None else chunks
    cut = tuple(max(min(a, b), 1) for a, b in zip(chosen, type.shape, strict=True))
    count = count_of(type.shape, cut)
    if count >= MOST_BLOCKS:
        told = f"{type} in blocks {cut} has {count:,}, at most {MOST_BLOCKS - 1:,}"
        raise FabricError(message("a tensor has too many blocks", told, remedy="Give it larger chunks."))
    return Kind(type, cut, layout)


def write_draft(opened: Opened, name: str, kind: Kind, read: Callable[[Box], Any]) -> Draft:
    """Write all blocks of a tensor, each as `read` gives it.

    Raises:
      FabricError: where one cannot be written; nothing of the draft stays.
    """
    made: dict[int, tuple[str, str]] = {}
    with withdrawing(opened, made):
        for piece in blocks_of(kind.type.shape, kind.chunks):
            with told(name, kind, piece):
                made[piece.position] = opened.blocks.put(read(piece.block), kind)
        sync(opened, name)
    return Draft(kind, made)


def sync(opened: Opened, name: str) -> None:
    """All that was put is on the disk.

    Raises:
      FabricError: where the disk says no.
    """
    try:
        opened.blocks.sync()
    except OSError as error:
        raise _unwritten(repr(name), error) from error


@contextmanager
def withdrawing(opened: Opened, made: Mapping[int, tuple[str, str]]) -> Generator[None]:
    """Whatever goes wrong, what was made until then is removed again."""
    try:
        yield
    except BaseException:
        opened.blocks.remove([file for file, _ in made.values()])
        raise


@contextmanager
def told(name: str, kind: Kind, piece: Piece) -> Generator[None]:
    """What the system says of a block that cannot be written, in our words."""
    try:
        yield
    except OSError as error:
        raise _unwritten(f"{name!r}: its block {shown(piece.block, kind.type.names)}", error) from error


def _unwritten(what: str, error: OSError) -> FabricError:
    remedy = "Free some room on its disk, then do it again; the fabric is as it was before."
    return FabricError(message(f"{what} cannot be written", f"the system says: {error.strerror}", remedy=remedy))


def commit(
    opened: Opened, drafts: Mapping[str, Draft | int], overwrite: bool, origin: Origin | None, what: str
) -> dict[str, int]:
    """Let names stand for drafts: all of them, or none.

    Args:
      opened: the fabric.
      drafts: by the name that each is to have; the number of a version where a sink has written it.
      overwrite: whether names that stand for something are taken.
      origin: how they came to be; None where that is not to be remembered.
      what: who asks, for messages.

    Returns:
      The numbers of the versions.

    Raises:
      FabricError: for a name that is taken.
    """
    files = [file for draft in drafts.values() if isinstance(draft, Draft) for file in draft.files]
    try:
        with opened.changing():
            check_free(opened, drafts, overwrite, what)
            operation = _remembered(opened, origin)
            return {
                name: _named(opened, name, draft, None if operation is None else ((operation, output),))
                for output, (name, draft) in enumerate(drafts.items())
            }
    except BaseException:
        discard(opened, files)
        raise


def discard(opened: Opened, files: Sequence[str]) -> None:
    """Remove files of ours, unless a transaction that seemed to fail, as in an interruption, has named them."""
    question = "SELECT 1 FROM blocks WHERE file = ?"
    opened.blocks.remove([file for file in files if not opened.catalogue.ask(question, (file,))])


def check_free(opened: Opened, names: Mapping[str, Any] | Sequence[str], overwrite: bool, what: str) -> None:
    """That names may be given.

    Raises:
      FabricError: for one that stands for something.
    """
    for name in names:
        found = None if overwrite else reads.current(opened.catalogue, name)
        if found is not None:
            remedy = "Choose another name, or pass overwrite=True."
            raise FabricError(message(f"{what}: {name!r} is there already", f"it is {found.kind.type}", remedy=remedy))


def _remembered(opened: Opened, origin: Origin | None) -> int | None:
    if origin is None:
        return None
    return writes.add_operation(opened.catalogue, origin.kind, origin.detail, origin.inputs, origin.graph)


def _named(opened: Opened, name: str, draft: Draft | int, made: Made) -> int:
    if isinstance(draft, int):
        writes.set_made(opened.catalogue, draft, made)
        writes.drop_pending(opened.catalogue, name)
        writes.name_version(opened.catalogue, name, draft)
        return draft
    blocks = {at: Block(file, checksum, made) for at, (file, checksum) in draft.blocks.items()}
    number = writes.add_version(opened.catalogue, draft.kind, blocks)
    writes.name_version(opened.catalogue, name, number)
    return number
