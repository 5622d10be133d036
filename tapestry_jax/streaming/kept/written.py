"""Checksums of what a job has written so far: its states hold them, and who goes on from one reads again what they say.

What was written since the state may be anything: it is written again. States of earlier releases have no checksums, and
are gone on from as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from combinators.errors import FormatError, first_line, message
from tapestry_jax.storage.protocols import Array, Sink, Stored
from tapestry_jax.storage.unfinished.filled import Filled
from tapestry_jax.storage.unfinished.partial import remove
from tapestry_jax.storage.unfinished.sums import Read, Sums, read_sums
from tapestry_jax.streaming.moving.arriving import Arriving, Waiting

_PREFIX = "written/"


@runtime_checkable
class _ReadBack(Sink, Protocol):
    """A sink that tells what is written, and reads it; those without have checksums of their own, or none."""

    filled: Filled
    read_back: Read


class Written:
    """What a job has written, with checksums, by the names of its sinks.

    Args:
      folder: of the job.
      known: the arrays of the state that is gone on from; None where there is none.
      pause: called while much is read again; it raises where the job is to end.
      waiting: entered around every wait for rows that arrive; it raises where the job is to end.
    """

    def __init__(
        self, folder: Path, known: Mapping[str, Array] | None, pause: Callable[[], None], waiting: Waiting
    ) -> None:
        self._folder, self._known, self._pause, self._waiting = folder, known, pause, waiting
        self._sums = dict[str, Sums]()

    def follow(self, sinks: Iterable[tuple[str, Sink]], *, again: bool) -> None:
        """Have sums of all that is written from now on.

        Args:
          sinks: by names.
          again: whether they were begun before: what the state says of them is read again.

        Raises:
          FormatError: where something else lies there.
        """
        for name, sink in sinks:
            if isinstance(sink, _ReadBack):
                known = self._read(name, sink) if again else None
                if known is not None:
                    self._check(known, sink, sink.read_back)
                self._sums[name] = known or Sums(sink.shape)
                sink.filled.watch = self._sums[name].add

    def forget(self, value: str) -> None:
        """What lies in the folder of a value between passes is removed."""
        for name in [name for name in self._sums if name.rpartition("/")[0] == value]:
            del self._sums[name]

    def keep_rows(self, rows: Arriving, place: Path, state: Callable[[], None], *, computed: bool) -> None:
        """Have rows that arrive in a file of the job: those that are there are read again, if a state says them whole.

        Args:
          rows: the source.
          place: of the file.
          state: writes a state, before the file is in its place: none that is there is unknown.
          computed: whether the state that is gone on from has read them.

        Raises:
          FormatError: where others lie there than those that the state has.
          StreamError: where the rows do not come.
        """
        name = place.name
        known = Sums(rows.shape) if self._known is None else self._read(name, rows)
        if known is not None and known.is_empty:
            remove(place)
        is_there = place.exists()
        if known is not None and is_there:
            self._sums[name] = known
        begun: Callable[[Sink], None] = lambda sink: self.follow([(name, sink)], again=False)  # noqa: E731
        rows.keep(place, begun, None if computed else state, self._waiting)
        if known is not None and (is_there or computed):
            self._check(known, rows, rows.read)

    def expect_rows(self, rows: Mapping[str, Arriving]) -> None:
        """Have the states say of rows, by the names of their files, that none are whole yet."""
        self._sums.update({name: Sums(source.shape) for name, source in rows.items()})

    def arrays(self) -> dict[str, Array]:
        """The sums, for a state; whatever was written is flushed."""
        found = dict[str, Array]()
        for name, own in self._sums.items():
            found[f"{_PREFIX}{name}/boxes"], found[f"{_PREFIX}{name}/sum"] = own.to_arrays()
        return found

    def _read(self, name: str, tensor: Sink | Stored) -> Sums | None:
        parts = [(self._known or {}).get(f"{_PREFIX}{name}/{part}") for part in ("boxes", "sum")]
        rows, own = parts
        return None if rows is None or own is None else read_sums(rows, own, tensor.shape, tensor.where)

    def _check(self, known: Sums, tensor: Sink | Stored, read: Read) -> None:
        where = tensor.where
        try:
            found = known.again(tensor, read, self._pause)
        except FormatError as error:
            raise self._damaged(where, first_line(error)) from error
        if found.text != known.text:
            cells = f"the cells {known.boxes()} of `{where}`"
            raise self._damaged(f"{cells} have another checksum", f"expected {known.text}", f"got {found.text}")

    def _damaged(self, *details: str) -> FormatError:
        headline = f"what the job in {self._folder} has written so far is damaged"
        remedy = f"Remove its states, {self._folder}/state-*: it begins anew."
        return FormatError(message(headline, *details, remedy=remedy))


def without_sums(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The other arrays of a state."""
    return {name: array for name, array in arrays.items() if not name.startswith(_PREFIX)}
