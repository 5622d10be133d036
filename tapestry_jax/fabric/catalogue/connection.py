"""One connection to a catalogue: transactions, and SQLite's errors in our words."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from combinators.errors import FormatError, TapestryError, message
from tapestry_jax.fabric.catalogue.schema import prepare
from tapestry_jax.fabric.errors import FabricError
from tapestry_jax.storage.errors import StorageError
from tapestry_jax.storage.unfinished.regular import check_file

FILE = "catalogue.sqlite"
_BESIDE = ("", "-journal", "-wal", "-shm")
"""How the files end that SQLite opens."""
PATIENCE = 120.0
"""Seconds that a transaction waits for those of other processes."""


class Connection:
    """A catalogue that is open, in a file or in memory. Threads take turns; other processes too, by SQLite's locks.

    Args:
      folder: of the fabric, which is there; None for a catalogue in memory.

    Raises:
      FormatError: where the file is no catalogue of ours.
      FabricError: where it cannot be opened.
    """

    def __init__(self, folder: Path | None) -> None:
        self.where = "the catalogue in memory" if folder is None else f"{str(folder / FILE)!r:.200}"
        self._turn = threading.RLock()
        self._process = os.getpid()
        self._depth = 0
        with self._told(), self._decoded(), _alone(folder):
            _check_files(folder)
            self._database = sqlite3.connect(
                ":memory:" if folder is None else folder / FILE,
                timeout=PATIENCE,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                if folder is not None:
                    self._database.execute("PRAGMA journal_mode = WAL")
                    # A commit that was answered survives a power cut.
                    self._database.execute("PRAGMA synchronous = FULL")
                prepare(self._database, self.where)
            except BaseException:
                self._database.close()
                raise

    @contextmanager
    def reading(self) -> Generator[None]:
        """What is asked inside is of one moment."""
        with self._transaction("BEGIN"):
            yield

    @contextmanager
    def writing(self) -> Generator[None]:
        """What is written inside is there as a whole, or not at all. Nobody else writes meanwhile."""
        with self._transaction("BEGIN IMMEDIATE"):
            yield

    def ask(self, question: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a question. Values go in as parameters, never as text."""
        with self._told(), self._decoded(), self._turn:
            self._check_process()
            return self._database.execute(question, values).fetchall()

    def tell(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Change rows; the number of the row that was added last."""
        with self._told(), self._decoded(), self._turn:
            self._check_process()
            return int(self._database.execute(statement, values).lastrowid or 0)

    def tell_each(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        """Change many rows by one statement; how many were changed."""
        with self._told(), self._decoded(), self._turn:
            self._check_process()
            return max(self._database.executemany(statement, rows).rowcount, 0)

    @contextmanager
    def undone(self) -> Generator[None]:
        """Inside of a transaction: where the catalogue turns out to be damaged, what is done inside is undone alone."""
        self.tell("SAVEPOINT undone")
        try:
            yield
        except FormatError:
            self.tell("ROLLBACK TO undone")
        finally:
            if self._database.in_transaction:
                self.tell("RELEASE undone")

    def close(self) -> None:
        """Nothing is asked any more."""
        # A connection that was inherited over a fork belongs to the parent.
        if os.getpid() == self._process:
            with self._turn:
                self._database.close()

    @contextmanager
    def _transaction(self, begin: str) -> Generator[None]:
        with self._turn:
            self._check_process()
            if self._depth:
                yield  # inside of another: it is the outer one that commits
                return
            with self._told():
                self._database.execute(begin)
                self._depth = 1
                try:
                    yield
                    self._database.execute("COMMIT")
                except BaseException:
                    if self._database.in_transaction:
                        self._database.execute("ROLLBACK")
                    raise
                finally:
                    self._depth = 0

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            remedy = "Open the fabric in the process that uses it: tp.Fabric(path)."
            raise FabricError(message("a fabric does not go over a fork", remedy=remedy))

    @contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except sqlite3.ProgrammingError as error:
            remedy = "Open it again: with tp.Fabric(path) as fabric."
            raise FabricError(message("the fabric is closed", str(error), remedy=remedy)) from error
        except sqlite3.OperationalError as error:
            raise self._operational(error) from error
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error

    @contextmanager
    def _decoded(self) -> Generator[None]:
        """What SQLite gives as text is text, as are its messages, which quote what it has read; numbers are its own."""
        try:
            yield
        except (UnicodeDecodeError, OverflowError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> FormatError:
        remedy = "It was edited or damaged: put back a copy of the folder, or restore it."
        told = ascii(str(error))[1:-1]
        return FormatError(message(f"{self.where} cannot be read", f"{told:.200}", remedy=remedy))

    def _operational(self, error: sqlite3.OperationalError) -> TapestryError:
        text = str(error)
        if "decode" in text:
            return self._unreadable(error)
        if "full" in text:
            remedy = "Free some room; the fabric is as it was before."
            return FabricError(message(f"{self.where} cannot be written: the disk is full", text, remedy=remedy))
        if "locked" in text or "busy" in text:
            remedy = "Let the other process finish, or end it."
            told = f"waited {PATIENCE:g} s for another process that writes"
            return FabricError(message(f"{self.where} is in use", told, remedy=remedy))
        remedy = "Look at its folder: that it is there, is yours, may be written, and has room."
        return FabricError(message(f"{self.where} cannot be used", text, remedy=remedy))


def _check_files(folder: Path | None) -> None:
    if folder is None:
        return
    try:
        for ending in _BESIDE:
            check_file(folder / f"{FILE}{ending}")
    except StorageError as error:
        raise FabricError(str(error)) from error


@contextmanager
def _alone(folder: Path | None) -> Generator[None]:
    """One process at a time opens a file: it is made once, and going over to a log of writes waits for nobody."""
    if folder is None:
        yield
        return
    lock = os.open(folder / "opening", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
