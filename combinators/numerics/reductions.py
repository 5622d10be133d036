"""What aggregators reduce, so that those which read the same input share one pass over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, final, runtime_checkable

import jax

from combinators.frozen import dataclass
from combinators.merging.pieces import in_pieces
from combinators.merging.together import Kind, merge_of, reduce_together

PIECE = 1 << 22
"""Elements that several reductions of a long input read at a time; their first level leaves a sixteenth of them each.

Measured with 64M float32 on two cores: five aggregators take 31 ms in one piece, 16 ms in pieces of 4M, 18 ms in those
of 1M. A reduction alone is one kernel of XLA's, and faster in one piece.
"""


@final
@dataclass(frozen=True)
class Reductions:
    """What a `lift_many` reduces.

    Attributes:
      kinds: of each array, how it is reduced.
      entries: (input, *given) -> the arrays. Each entry is computed from that of the input alone, which may be a piece
        of it. Equal ones are equal in Python, so that nothing is compiled twice.
      finish: (the reductions) -> state.
      given: what the arrays depend on besides the input.
    """

    kinds: tuple[Kind, ...]
    entries: Callable[..., Sequence[Any]]
    finish: Callable[[Sequence[Any]], Any]
    given: tuple[Any, ...] = ()

    def run(self, xs: Any) -> Any:
        """The state of an input `(n, ...)`, in one pass over it."""
        if not self.kinds:
            return self.finish(())
        reduce = _Reduce(self.kinds, self.entries)
        if xs.size < 2 * PIECE or reduce.distinct(xs, *self.given) == 1:
            return self.finish(reduce(xs, *self.given))
        return self.finish(in_pieces(reduce, _Merge(self.kinds), PIECE, (xs,), self.given))


@runtime_checkable
class Reducing(Protocol):
    """A `lift_many` that is a few reductions of its one input, and can share a pass over it with others."""

    def __call__(self, xs: Any) -> Any:
        """Return the state of all elements."""
        ...

    def reductions(self, xs: Any) -> Reductions:
        """Say what is reduced."""
        ...


@final
@dataclass(frozen=True)
class Cast:
    """The entries themselves, of a dtype.

    Attributes:
      dtype: of what is reduced.
    """

    dtype: Any

    def __call__(self, xs: Any) -> tuple[Any]:
        """Return the one array; the input itself where it is of that dtype, so that what is the same is found."""
        return (wider(xs, self.dtype),)


@final
@dataclass(frozen=True)
class ForkMany:
    """Apply several `lift_many` to the same inputs, or each to the first of them that it needs.

    Those that are reductions of the first input alone share one pass over it.
    """

    functions: tuple[Callable[..., Any], ...]
    counts: tuple[int, ...] | None = None

    @property
    def entrywise(self) -> bool:
        """Whether all of them take arrays for cells, entry by entry."""
        return all(map(is_entrywise, self.functions))

    def of_ascending(self) -> ForkMany:
        """The same for coordinates that ascend."""
        forms = (getattr(function, "of_ascending", None) for function in self.functions)
        chosen = (form() if form else function for form, function in zip(forms, self.functions, strict=True))
        return ForkMany(tuple(chosen), self.counts)

    def begun(self, *args: Any) -> Reductions:
        """What is reduced by all that are reductions; the others run in the end."""
        counts = self.counts or (len(args),) * len(self.functions)
        parts = [_begun(function, args[:count]) for function, count in zip(self.functions, counts, strict=True)]

        def finish(totals: Sequence[Any]) -> tuple[Any, ...]:
            rest = iter(totals)
            return tuple(part.finish([next(rest) for _ in part.kinds]) for part in parts)

        return Reductions(
            tuple(kind for part in parts for kind in part.kinds),
            _Joined(tuple((part.entries, len(part.given)) for part in parts)),
            finish,
            tuple(each for part in parts for each in part.given),
        )

    def __call__(self, *args: Any) -> Any:
        """Return one state a function."""
        return self.begun(*args).run(args[0])


def is_entrywise(function: Callable[..., Any]) -> bool:
    """Whether a `lift_many` of `(n, ...)` treats every entry of the cells as if it were alone.

    It says so by an attribute. Its states have leaves of the shape of a cell, or scalars for what all entries share.
    """
    return bool(getattr(function, "entrywise", False))


def wider(xs: Any, dtype: Any) -> Any:
    """Cast where that changes anything, so that what is the same stays one array."""
    return xs if xs.dtype == dtype else xs.astype(dtype)


@dataclass(frozen=True)
class _Joined:
    """The arrays of several `entries`, each with as many of the given values as it takes."""

    parts: tuple[tuple[Callable[..., Sequence[Any]], int], ...]

    def __call__(self, xs: Any, *given: Any) -> list[Any]:
        rest = iter(given)
        return [array for entries, count in self.parts for array in entries(xs, *(next(rest) for _ in range(count)))]


def _nothing(xs: Any) -> tuple[()]:
    return ()


def _begun(function: Callable[..., Any], args: tuple[Any, ...]) -> Reductions:
    if isinstance(function, ForkMany):
        return function.begun(*args)
    if isinstance(function, Reducing) and len(args) == 1:
        return function.reductions(args[0])
    return Reductions((), _nothing, lambda _: function(*args))


def _once(kinds: Sequence[Kind], arrays: Sequence[Any]) -> dict[tuple[Kind, int], Any]:
    """The arrays by what tells them apart: what two ask for, such as a total and that of a mean, is reduced once."""
    return {(kind, id(array)): array for kind, array in zip(kinds, arrays, strict=True)}


@dataclass(frozen=True)
class _Reduce:
    """Reduce the arrays, each of those that are the same once."""

    kinds: tuple[Kind, ...]
    entries: Callable[..., Sequence[Any]]

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        arrays = self.entries(*args)
        once = _once(self.kinds, arrays)
        found = dict(zip(once, reduce_together(tuple(kind for kind, _ in once), *once.values()), strict=True))
        return tuple(found[kind, id(array)] for kind, array in zip(self.kinds, arrays, strict=True))

    def distinct(self, *args: Any) -> int:
        """How many there are; nothing is computed."""
        found: list[int] = []
        jax.eval_shape(lambda *args: found.append(len(_once(self.kinds, self.entries(*args)))), *args)
        return found[0]


@dataclass(frozen=True)
class _Merge:
    kinds: tuple[Kind, ...]

    def __call__(self, left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(merge_of(kind)(a, b) for kind, a, b in zip(self.kinds, left, right, strict=True))
