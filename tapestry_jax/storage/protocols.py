"""What is read from and written to: boxes of tensors that lie somewhere else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

import numpy as np

from combinators.errors import message
from combinators.frozen import dataclass

Box = tuple[tuple[int, int], ...]
"""Start and stop along every axis of a tensor, within its shape; `()` is the one cell of a scalar."""

Names = tuple[str | None, ...]
"""What the axes are called, in order; None for one without a name."""

Array = np.ndarray[Any, np.dtype[Any]]
"""A NumPy array of any shape and dtype."""


@dataclass(frozen=True)
class Beside:
    """Memory that reading or writing takes at most beside the arrays of the caller.

    Attributes:
      bytes: in all, for whatever is under way at once and kept for the next box; 0 for what goes straight into arrays.
      what: takes them, for people, such as `"pages of 1.0 MiB"`.
      less: what would need less, as a sentence for people.
    """

    bytes: int = 0
    what: str = ""
    less: str = ""


NOTHING = Beside()
"""Of what is read straight into the arrays of the caller, or written straight from them."""


@runtime_checkable
class Stored(Protocol):
    """A tensor that is read box by box; it has a shape and a dtype, so that `tp.trace` takes it as a spec.

    Reads that keep to `chunks` read nothing twice.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, in order."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers; in the byte order of this machine, however they are stored."""
        ...

    @property
    def names(self) -> Names | None:
        """What the axes are called, or None where nothing says."""
        ...

    @property
    def chunks(self) -> tuple[int, ...]:
        """The sizes, from 1 on, that are stored in one piece; the shape where there are no pieces."""
        ...

    @property
    def where(self) -> str:
        """The place, for people."""
        ...

    def read(self, box: Box, into: Array) -> Future[None]:
        """Begin to read a box. `into` may be looked at once the future is done, and belongs to the reader until then.

        Args:
          box: start and stop along every axis.
          into: of the box's shape and this dtype, contiguous in C order, writeable.

        Returns:
          A future, whose `result()` raises a FormatError where the box cannot be read. Several may be under way.

        Raises:
          FormatError: at once, when the box does not lie within the shape or `into` does not fit it.
        """
        ...

    def beside(self, sizes: tuple[int, ...]) -> Beside:
        """What reading boxes of such sizes takes at most beside the arrays that they are read into: a plan counts it.

        Args:
          sizes: of a box, along every axis; boxes at borders may be smaller.

        Returns:
          Of all boxes that are under way at once, and of what is kept from one to the next.
        """
        ...

    def fingerprint(self) -> str:
        """A text that changes when what is stored does; what it sees and what it does not is said by each format."""
        ...

    def close(self) -> None:
        """Wait for what is under way, and let files go."""
        ...


@runtime_checkable
class Sink(Protocol):
    """A tensor that is written box by box."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, in order."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers; in the byte order of this machine, however they are stored."""
        ...

    @property
    def names(self) -> Names | None:
        """What the axes are called, or None where nothing says."""
        ...

    @property
    def chunks(self) -> tuple[int, ...]:
        """The sizes, from 1 on, that are stored in one piece; the shape where there are no pieces."""
        ...

    @property
    def where(self) -> str:
        """The place, for people."""
        ...

    def write(self, box: Box, array: Array) -> Future[None]:
        """Begin to write a box. The same box may be written again: it overwrites itself.

        Args:
          box: start and stop along every axis. Boxes under way at the same time must not overlap.
          array: of the box's shape and this dtype; it must stay as it is until the future is done.

        Raises:
          FormatError: at once for what does not fit; from the future, where it cannot be written.
        """
        ...

    def flush(self) -> None:
        """Return once all that was written would survive the end of the process and of the machine's power."""
        ...

    def finish(self) -> Stored:
        """Flush, put the tensor in its place in one step, and open it. Until then its place is as it was before."""
        ...

    def close(self) -> None:
        """Wait for what is under way and let files go, unfinished; `Creation.again` goes on from there."""
        ...


class Creates(Protocol):
    """What makes a `Sink` once the shape of a tensor is known: `tp.create` gives one."""

    @property
    def where(self) -> str:
        """The place, for people."""
        ...

    @property
    def has_chunks(self) -> bool:
        """Whether it stores pieces whose sizes may be chosen."""
        ...

    def make(self, shape: Any, dtype: Any, names: Names | None = None, chunks: Any = None) -> Sink:
        """Begin the tensor."""
        ...

    def again(self, shape: Any, dtype: Any, names: Names | None = None, chunks: Any = None) -> Sink:
        """Go on with what an interrupted `make` of the same arguments has left."""
        ...

    def beside(
        self, shape: Sequence[int], chunks: Sequence[int], dtype: np.dtype[Any], sizes: tuple[int, ...]
    ) -> Beside:
        """What writing boxes takes at most beside the arrays that they are written from: a plan counts it.

        Args:
          shape: of the tensor.
          chunks: the sizes that are stored in one piece, where none were said.
          dtype: of the numbers.
          sizes: of a box, along every axis; boxes at borders may be smaller.
        """
        ...


class Shown:
    """Something stored that prints as its place and its type, pieces too where it has some.

    Pickled is how it was opened, by which another process opens it again; nothing that it holds.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    names: Names | None
    chunks: tuple[int, ...]
    where: str

    def __repr__(self) -> str:
        axes = self.shape if self.names is None else zip(self.names, self.shape, strict=True)
        sizes = ", ".join(str(axis) if isinstance(axis, int) else f"{axis[0] or '_'}={axis[1]}" for axis in axes)
        pieces = "" if math.prod(self.chunks) >= math.prod(self.shape) else f" in pieces of {self.chunks}"
        return f"<{self.where}: {self.dtype.name}({sizes}){pieces}>"

    def __reduce__(self) -> tuple[Any, ...]:
        how = getattr(self, "opened", None)
        if how is None:
            remedy = "Hand its place on, and open it there: tp.open."
            raise TypeError(message(f"`{self.where}` cannot be pickled: no tp.open has opened it", remedy=remedy))
        return type(how).again, (how,)
