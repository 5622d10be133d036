"""The category and the products of arrows: identity, `>>`, `*` and `&`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from combinators.arrow import Arrow
from combinators.arrow_types import Face
from combinators.errors import CompositionError, message


class Identity(Arrow[Any, Any]):
    """The arrow that gives back its operand."""

    name = "identity"

    @property
    def arity(self) -> int:
        """One."""
        return 1

    def apply(self, *values: Any) -> Any:
        """Return the operands as they are."""
        return one_or_all(values)


class Compose(Arrow[Any, Any]):
    """`second` after `first`; several results of `first` are the operands of `second`."""

    def __init__(self, first: Arrow[Any, Any], second: Arrow[Any, Any]) -> None:
        self._first, self._second = first, second
        self.name = f"{first.name} >> {second.name}"

    @property
    def arity(self) -> int | None:
        """That of the first arrow."""
        return self._first.arity

    def takes(self) -> Sequence[Face] | None:
        """What the first arrow takes."""
        return self._first.takes()

    def gives(self) -> Sequence[Face] | None:
        """What the second arrow gives."""
        return self._second.gives()

    def parts(self) -> Sequence[Arrow[Any, Any]]:
        """Both arrows."""
        return (self._first, self._second)

    def apply(self, *values: Any) -> Any:
        """Apply one after the other."""
        middle = self._first.apply(*values)
        return self._second.apply(*as_operands(middle))


class Parallel(Arrow[Any, Any]):
    """`f * g`: the first operands go to f, the others to g; the results stand side by side in one flat tuple.

    Flat, so that `(f * g) * h` and `f * (g * h)` are one arrow.
    """

    def __init__(self, first: Arrow[Any, Any], second: Arrow[Any, Any]) -> None:
        if first.arity is None and second.arity is None:
            raise CompositionError(
                message(
                    f"`{first.name} * {second.name}` cannot tell whose operands are whose",
                    "neither arrow says how many operands it takes",
                    remedy="Give one of them a signature.",
                )
            )
        self._first, self._second = first, second
        self.name = f"{first.name} * {second.name}"

    @property
    def arity(self) -> int | None:
        """The sum of both."""
        counts = (self._first.arity, self._second.arity)
        return None if None in counts else sum(count for count in counts if count is not None)

    def takes(self) -> Sequence[Face] | None:
        """What both take, where both say."""
        return _joined(self._first.takes(), self._second.takes())

    def gives(self) -> Sequence[Face] | None:
        """What both give, where both say."""
        return _joined(self._first.gives(), self._second.gives())

    def parts(self) -> Sequence[Arrow[Any, Any]]:
        """Both arrows."""
        return (self._first, self._second)

    def apply(self, *values: Any) -> Any:
        """Apply each to its own operands."""
        if self.arity is not None and len(values) != self.arity:
            raise CompositionError(
                message(
                    f"`{self.name}` takes {self.arity} operands, got {len(values)}",
                    remedy="Pass the operands of both arrows one after the other.",
                )
            )
        cut = self._first.arity
        if cut is None:
            assert self._second.arity is not None
            cut = len(values) - self._second.arity
        return side_by_side(self._first.apply(*values[:cut]), self._second.apply(*values[cut:]))


class Fanout(Arrow[Any, Any]):
    """`f & g`: the same operands to both; the results stand side by side in one flat tuple."""

    def __init__(self, first: Arrow[Any, Any], second: Arrow[Any, Any]) -> None:
        counts = {first.arity, second.arity} - {None}
        if len(counts) > 1:
            raise CompositionError(
                message(
                    f"cannot fan out to `{first.name}` and `{second.name}`.",
                    f"they take {first.arity} and {second.arity} operands",
                    remedy="Make them take the same operands, or use `*`.",
                )
            )
        self._first, self._second = first, second
        self.name = f"{first.name} & {second.name}"

    @property
    def arity(self) -> int | None:
        """That of either."""
        return self._first.arity if self._first.arity is not None else self._second.arity

    def gives(self) -> Sequence[Face] | None:
        """What both give, where both say."""
        return _joined(self._first.gives(), self._second.gives())

    def parts(self) -> Sequence[Arrow[Any, Any]]:
        """Both arrows."""
        return (self._first, self._second)

    def apply(self, *values: Any) -> Any:
        """Apply both."""
        return side_by_side(self._first.apply(*values), self._second.apply(*values))


identity = Identity()
"""The identity arrow: `identity >> f` and `f >> identity` are `f`."""


def one_or_all(values: tuple[Any, ...]) -> Any:
    """A single operand as itself, several as a tuple."""
    return values[0] if len(values) == 1 else values


def as_operands(result: Any) -> tuple[Any, ...]:
    """The results of one arrow as the operands of the next: a plain tuple spreads, anything else is one operand."""
    return result if type(result) is tuple else (result,)


def side_by_side(left: Any, right: Any) -> tuple[Any, ...]:
    """The results of two arrows as one flat tuple of results."""
    return (*as_operands(left), *as_operands(right))


def _joined(left: Sequence[Face] | None, right: Sequence[Face] | None) -> Sequence[Face] | None:
    return None if left is None or right is None else [*left, *right]
