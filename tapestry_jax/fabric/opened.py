"""A fabric that is open: its catalogue, its blocks and its mesh; opening one, and clearing away what the dead left."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from combinators.errors import FormatError, message, spelt
from combinators.frozen import dataclass
from tapestry_jax.fabric.blocks.files import FOLDER, FileBlocks
from tapestry_jax.fabric.blocks.memory import MemoryBlocks
from tapestry_jax.fabric.blocks.session import dead_sessions, forget_lock
from tapestry_jax.fabric.blocks.store import Blocks
from tapestry_jax.fabric.catalogue import reads, writes
from tapestry_jax.fabric.catalogue.connection import FILE, Connection
from tapestry_jax.fabric.catalogue.prune import prune
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.fabric.tensors.records import Version

_OURS = frozenset({FOLDER, "opening", FILE, f"{FILE}-wal", f"{FILE}-shm", f"{FILE}-journal"})
_LEAST_CATALOGUE = 512
"""Bytes of the smallest page of SQLite."""


@dataclass(frozen=True, eq=False)
class Opened:
    """What the parts of a fabric share.

    Attributes:
      where: the folder, for messages.
      catalogue: which tensors there are.
      blocks: where their bytes lie.
      mesh: where arrays are put; None for one device.
      allow: packages that stored programs may name.
    """

    where: str
    catalogue: Connection
    blocks: Blocks
    mesh: Any
    allow: tuple[str, ...]

    def version(self, name: str) -> Version:
        """What a name stands for now.

        Raises:
          FabricError: where it stands for nothing.
        """
        found = reads.current(self.catalogue, name)
        if found is None:
            known = ", ".join(reads.names(self.catalogue)[:12]) or "none"
            told = f"the fabric {self.where} has {known}"
            raise FabricError(message(f"there is no tensor {name!r}", told, remedy="Name one that is there."))
        return found

    def changed(self) -> None:
        """Forget what nobody needs now, inside of a transaction. Files go when `cleared` is called after it."""
        prune(self.catalogue)

    def cleared(self) -> None:
        """Remove the files that are garbage. Whoever is killed here leaves their names for the next one."""
        files = reads.garbage(self.catalogue)
        if files:
            self.blocks.remove(files)
            self.catalogue.tell_each("DELETE FROM garbage WHERE file = ?", [(file,) for file in files])

    @contextmanager
    def changing(self) -> Generator[None]:
        """A transaction that may leave versions that nobody needs: they are forgotten in it, their files after it."""
        with self.catalogue.writing():
            yield
            self.changed()
        self.cleared()

    @contextmanager
    def letting_go(self) -> Generator[None]:
        """The same for who only lets go: of a catalogue that is damaged nothing is forgotten, and the rest is read."""
        with self.catalogue.writing():
            yield
            with self.catalogue.undone():
                self.changed()
        with suppress(FormatError):
            self.cleared()

    @contextmanager
    def pinned(self, names: Sequence[str]) -> Generator[list[Version]]:
        """Versions of one moment, kept as they are until the end, whatever others do to their names."""
        with self.catalogue.writing():
            found = [self.version(name) for name in names]
            numbers = sorted({version.number for version in found})
            writes.pin(self.catalogue, self.blocks.session, numbers)
        try:
            yield found
        finally:
            self.unpin(numbers)

    def unpin(self, numbers: Sequence[int]) -> None:
        """Let versions go."""
        with self.letting_go():
            writes.unpin(self.catalogue, self.blocks.session, numbers)

    def close(self) -> None:
        """Let all go."""
        try:
            if self.blocks.has_session:
                session = self.blocks.session
                with self.letting_go():
                    writes.drop_session(self.catalogue, session)
                # Of sinks that were given up: nobody looks into the folder of a session that has ended well.
                self.blocks.remove(_unnamed(self.catalogue, session, self.blocks.own_files()))
        finally:
            self.blocks.close()
            self.catalogue.close()


def open_fabric(path: Any, mesh: Any, allow: Sequence[str]) -> Opened:
    """Open a fabric, or make one.

    Raises:
      FabricError: for a path that is none, a folder that holds something else, or one that cannot be written.
      FormatError: for a catalogue of a newer release, or one that was damaged.
    """
    _check_mesh(mesh)
    if path is None:
        return Opened("in memory", Connection(None), MemoryBlocks(mesh), mesh, tuple(allow))
    folder = _folder(path)
    try:
        catalogue = Connection(folder)
        try:
            opened = Opened(f"{str(folder)!r:.200}", catalogue, FileBlocks(folder), mesh, tuple(allow))
            _sweep(opened)
        except BaseException:
            catalogue.close()
            raise
    except OSError as error:
        remedy = "Look at what lies in it: that it is yours, may be written, and has room."
        raise FabricError(message(f"{str(folder)!r:.200} cannot be opened", str(error)[:200], remedy=remedy)) from error
    return opened


def _folder(path: Any) -> Path:
    remedy = "Name a folder that is a fabric, is empty, or is not there yet."
    if not isinstance(path, str | os.PathLike) or not str(path):
        told = f"got {type(path).__name__}: {spelt(path)}"
        raise FabricError(message("a fabric lies in a folder, or in memory for None", told, remedy=remedy))
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = sorted(each.name for each in folder.iterdir() if each.name not in _OURS)
        if others and not (folder / FILE).exists():
            told = f"it holds {', '.join(others[:4])}"
            raise FabricError(message(f"{str(folder)!r:.200} is no fabric, and not empty", told, remedy=remedy))
        _check_catalogue(folder)
    except (OSError, ValueError) as error:
        raise FabricError(
            message(f"{str(folder)!r:.200} cannot be a fabric", str(error)[:200], remedy=remedy)
        ) from error
    return folder


def _check_catalogue(folder: Path) -> None:
    """That blocks are not without their catalogue: SQLite takes a file of a few bytes for a new one.

    Raises:
      FormatError: where they are.
    """
    catalogue = folder / FILE
    size = catalogue.stat().st_size if catalogue.exists() else 0
    if size < _LEAST_CATALOGUE and any((folder / FOLDER).glob("[0-9a-f]*/[0-9]*")):
        told = f"it has {size} bytes, and there are blocks"
        remedy = "Put back a copy of it: without it nobody knows what the blocks are."
        raise FormatError(message(f"{str(catalogue)!r:.200} is lost", told, remedy=remedy))


def _check_mesh(mesh: Any) -> None:
    if mesh is None:
        return
    if not isinstance(mesh, Mesh) or mesh.is_multi_process:
        told = "expected a mesh of devices of this process" + f", got {type(mesh).__name__}"
        raise FabricError(message("a fabric cannot use this mesh", told, remedy="Pass tp.mesh(data=2), or None."))


def _sweep(opened: Opened) -> None:
    """Remove what sessions that were killed have left: files that no version has, and pins."""
    blocks, catalogue = opened.blocks, opened.catalogue
    if isinstance(blocks, FileBlocks):
        with dead_sessions(blocks.root) as dead:
            # A dead session commits nothing more: what no row names now, none ever will. Rows that are lost once did.
            known = reads.files_if_whole(catalogue) if any(files for _, files in dead) else frozenset[str]()
            if known is not None:
                _remove_dead(opened, blocks, dead, known)
    with suppress(FormatError):
        opened.cleared()


def _remove_dead(
    opened: Opened, blocks: FileBlocks, dead: Sequence[tuple[str, Sequence[str]]], known: frozenset[str]
) -> None:
    for name, files in dead:
        blocks.remove([file for file in files if file not in known])
        with opened.letting_go():
            writes.drop_session(opened.catalogue, name)
        forget_lock(blocks.root, name)


def _unnamed(catalogue: Connection, session: str, files: Sequence[str]) -> list[str]:
    """The files of a session that no version has."""
    known = {str(file) for (file,) in catalogue.ask("SELECT file FROM blocks WHERE file GLOB ?", (f"{session}/*",))}
    return [file for file in files if file not in known]
