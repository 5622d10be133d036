"""Rows that arrive: a source without random access, such as a generator, cut again into the pieces of turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from combinators.errors import first_line, message
from combinators.index_space.tensor_type import TensorType
from tapestry_jax.storage.boxes import check_cells, check_given
from tapestry_jax.storage.creating import create
from tapestry_jax.storage.opening import open as open_stored
from tapestry_jax.storage.protocols import NOTHING, Array, Beside, Box, Sink, Stored
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.moving.making import Making

_NO_MORE = object()
Waiting = Callable[[], AbstractContextManager[None]]
"""What is entered around every wait for rows."""


def arrives(source: Any) -> bool:
    """Whether a source is iterated over: a generator, a data set of Grain, any iterable that is no array itself."""
    if isinstance(source, Iterator):
        return True
    known = isinstance(source, Stored | Sequence | Set | Mapping | bytes) or hasattr(source, "__array__")
    return isinstance(source, Iterable) and not known and not hasattr(source, "shape")


class Arriving:
    """A `Stored` whose rows come in order, once a run, in arrays of any number of rows each.

    Args:
      rows: what is iterated over; a generator gives one run, an iterable begins anew with each.
      name: of the input.
      kind: of all rows together.
    """

    def __init__(self, rows: Iterable[Any], name: str, kind: TensorType) -> None:
        self.rows, self.name, self.kind = rows, name, kind
        self.shape, self.dtype, self.chunks = kind.shape, np.dtype(kind.dtype), kind.shape
        self.names = kind.names if any(kind.names) else None
        self.where = f"rows that arrive for `{name}`"
        self._iterator: Iterator[Any] | None = None
        self._kept: Stored | None = None
        self._making: Making | None = None
        self._is_spent, self._done = False, 0
        self._rest = self._last = np.empty((0, *self.shape[1:]), self.dtype)

    def begin(self) -> None:
        """Begin a run at the first row.

        Raises:
          StreamError: for a generator that another run has begun to read.
        """
        if self._kept is not None:
            return
        self.end()
        iterator = iter(self.rows)
        if iterator is self.rows and self._is_spent:
            remedy = "Make a new generator and a new job, or pass an iterable that begins anew."
            raise StreamError(message(f"the rows of `{self.name}` were read by a run already", remedy=remedy))
        self._is_spent, self._done, self._iterator = True, 0, iterator
        self._rest = self._last = np.empty((0, *self.shape[1:]), self.dtype)
        self._making = Making(self.where)

    def end(self) -> None:
        """Let the thread go that iterates."""
        if self._making is not None:
            self._making.end()
        self._making = self._iterator = None

    def give_up(self) -> None:
        """Fail what is being read: a run ends early, and rows may never come."""
        if self._making is not None:
            self._making.leave()

    def read(self, box: Box, into: Array) -> Future[None]:
        """The next rows, or the last one again; a thread of its own iterates, in the order of the calls."""
        if self._kept is not None:
            return self._kept.read(box, into)
        box = check_cells(box, into, self, is_target=True)
        assert self._making is not None
        return self._making.submit(lambda: self._fill(box[0], into))

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """What is iterated over makes its arrays itself, of as many rows as it likes: they are the caller's."""
        return NOTHING if self._kept is None else self._kept.beside(sizes)

    def fingerprint(self) -> str:
        """What is known of rows before they come; a job with a checkpoint reads them once, into its folder."""
        return f"rows:{self.kind}"

    def close(self) -> None:
        """Let the thread go, and the file of a job."""
        self.end()
        if self._kept is not None:
            self._kept.close()
        self._kept = None

    def keep(
        self, place: Path, begun: Callable[[Sink], None], filled: Callable[[], None] | None, waiting: Waiting
    ) -> None:
        """Put all rows into a file, whole or not at all, and read that from now on; one that is there is read.

        Args:
          place: of the file.
          begun: told of what the rows are written to, before any is.
          filled: called when all are on the disk, and the file is not in its place yet.
          waiting: entered around every wait for rows: what raises in it leaves nothing of them.

        Raises:
          StreamError: where too few or too many come, or their iterator fails.
        """
        self._kept = None
        if not place.exists():
            self.begin()
            sink = create(place, overwrite=True).make(self.shape, self.dtype, None, None)
            try:
                begun(sink)
                self._fill_sink(sink, waiting)
                if filled is not None:
                    sink.flush()
                    filled()
                sink.finish().close()
            except BaseException:
                sink.close()
                raise
            finally:
                self.end()
        self._kept = open_stored(place)

    def _fill_sink(self, sink: Any, waiting: Waiting) -> None:
        others = tuple((0, size) for size in self.shape[1:])
        while self._done < self.shape[0]:
            with waiting():
                array = self._next()
            start = self._done
            stop = start + len(array)
            if stop > self.shape[0]:
                raise self._too_many(stop)
            if array.size:
                sink.write(((start, stop), *others), np.ascontiguousarray(array)).result()
            self._done = stop
        self._check_exhausted(waiting)

    def _fill(self, rows: tuple[int, int], into: Array) -> None:
        start, stop = rows
        if (start, stop) == (self.shape[0] - 1, self._done) and len(self._last):
            into[...] = self._last
            return
        # What was asked for after a failure has no rows before it.
        if start != self._done:
            remedy = "Run the job again once the rows come in order."
            told = f"row {self._done} is next, got rows {start} to {stop}"
            raise StreamError(message(f"the rows of `{self.name}` come in order", told, remedy=remedy))
        while self._done < stop:
            if not len(self._rest):
                self._rest = self._next()
            taken = min(stop - self._done, len(self._rest))
            into[self._done - start : self._done - start + taken] = self._rest[:taken]
            self._done, self._rest = self._done + taken, self._rest[taken:]
        if stop == self.shape[0]:
            self._last = np.array(into[-1:])
            if len(self._rest):
                raise self._too_many(self._done + len(self._rest))
            self._check_exhausted()

    def _next(self) -> Array:
        """The next rows that come.

        Raises:
          StreamError: where none come, the iterator fails, or they are something else.
        """
        iterator = self._iterator
        assert iterator is not None
        try:
            item = next(iterator)
        except StopIteration:
            remedy = "Give as many rows as the program was traced for, or trace it for these."
            raise StreamError(
                message(
                    f"the rows of `{self.name}` end too early",
                    f"expected {self.shape[0]} rows",
                    f"got {self._done}",
                    remedy=remedy,
                )
            ) from None
        except Exception as error:
            details = (f"after row {self._done} of {self.shape[0]}", first_line(error))
            remedy = "Mend what makes the rows, and run the job again with a new iterator."
            told = message(f"what makes the rows of `{self.name}` has failed", *details, remedy=remedy)
            raise StreamError(told) from error
        # Its run was left meanwhile, and another one may have begun.
        if iterator is not self._iterator:
            raise StreamError(message(f"the rows of `{self.name}` came too late", remedy="Run the job again."))
        return self._checked(item)

    def _checked(self, item: Any) -> Array:
        check_given(item, f"what arrives for `{self.name}` after row {self._done}")
        found = np.asarray(item) if hasattr(item, "__array__") else None
        if found is None or found.shape[1:] != self.shape[1:] or not found.ndim or found.dtype != self.dtype:
            got = f"a {type(item).__name__}" if found is None else f"{found.dtype.name} {found.shape}"
            if found is not None and not found.dtype.isnative:
                got += ", in the other byte order"
            raise StreamError(
                message(
                    f"what arrives for `{self.name}` after row {self._done} has another type",
                    f"expected {self.dtype.name} arrays (any number of rows, {', '.join(map(str, self.shape[1:]))})",
                    f"got {got}",
                    remedy="Yield arrays of rows of this dtype; batch single rows, and take one array of each batch.",
                )
            )
        return found

    def _check_exhausted(self, waiting: Waiting = nullcontext) -> None:
        assert self._iterator is not None
        while True:
            with waiting():
                item = next(self._iterator, _NO_MORE)
            if item is _NO_MORE:
                return
            if len(found := self._checked(item)):
                raise self._too_many(self._done + len(found))

    def _too_many(self, least: int) -> StreamError:
        return StreamError(
            message(
                f"the rows of `{self.name}` go on too long",
                f"expected {self.shape[0]} rows",
                f"got {least} or more",
                remedy="Give as many rows as the program was traced for, or trace it for these.",
            )
        )
