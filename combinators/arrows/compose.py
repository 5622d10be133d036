"""The category and the products of arrows: identity, `>>`, `*` and `&`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from combinators.arrows.combined import Combined, Steps, joined_name
from combinators.arrows.faces import Face
from combinators.arrows.part import Part
from combinators.errors import CompositionError, message


class Unchanged(Part):
    """What gives back its operands."""

    name = "identity"

    @property
    def arity(self) -> int:
        """One."""
        return 1

    def apply(self, *values: Any) -> Any:
        """Return the operands as they are."""
        return one_or_all(values)


class Compose(Combined):
    """`second` after `first`; several results of `first` are the operands of `second`."""

    def __init__(self, first: Part, second: Part) -> None:
        self._first, self._second = first, second
        self.name = joined_name(first.name, " >> ", second.name)
        self._arity = first.arity
        # Who takes the operands and who gives the results, however long the chain is.
        self.taker = first.taker if isinstance(first, Compose) else first
        self.giver = second.giver if isinstance(second, Compose) else second

    @property
    def arity(self) -> int | None:
        """That of the first arrow."""
        return self._arity

    def takes(self) -> Sequence[Face] | None:
        """What the first arrow takes."""
        return _takes(self)

    def gives(self) -> Sequence[Face] | None:
        """What the second arrow gives."""
        return _gives(self)

    def parts(self) -> Sequence[Part]:
        """Both arrows."""
        return (self._first, self._second)

    def steps(self, *values: Any) -> Steps:
        """One after the other."""
        middle = yield self._first, values
        return (yield self._second, as_operands(middle))


class Parallel(Combined):
    """`f * g`: the first operands go to f, the others to g; the results stand side by side in one flat tuple.

    Flat, so that `(f * g) * h` and `f * (g * h)` are one arrow.
    """

    def __init__(self, first: Part, second: Part) -> None:
        counts = (first.arity, second.arity)
        if counts == (None, None):
            raise CompositionError(
                message(
                    f"`{first.name} * {second.name}` cannot tell whose operands are whose",
                    "neither arrow says how many operands it takes",
                    remedy="Give one of them a signature.",
                )
            )
        self._first, self._second = first, second
        self.name = joined_name(first.name, " * ", second.name)
        self._counts = counts
        self._arity = None if None in counts else sum(count for count in counts if count is not None)

    @property
    def arity(self) -> int | None:
        """The sum of both."""
        return self._arity

    def takes(self) -> Sequence[Face] | None:
        """What both take, where both say."""
        return _takes(self)

    def gives(self) -> Sequence[Face] | None:
        """What both give, where both say."""
        return _gives(self)

    def parts(self) -> Sequence[Part]:
        """Both arrows."""
        return (self._first, self._second)

    def steps(self, *values: Any) -> Steps:
        """Each with its own operands."""
        if self.arity is not None and len(values) != self.arity:
            raise CompositionError(
                message(
                    f"`{self.name}` takes {self.arity} operands, got {len(values)}",
                    remedy="Pass the operands of both arrows one after the other.",
                )
            )
        cut, rest = self._counts
        if cut is None:
            assert rest is not None
            cut = len(values) - rest
        left = yield self._first, values[:cut]
        right = yield self._second, values[cut:]
        return side_by_side(left, right)


class Fanout(Combined):
    """`f & g`: the same operands to both; the results stand side by side in one flat tuple."""

    def __init__(self, first: Part, second: Part) -> None:
        counts = (first.arity, second.arity)
        if len({*counts} - {None}) > 1:
            raise CompositionError(
                message(
                    f"cannot fan out to `{first.name}` and `{second.name}`.",
                    f"they take {counts[0]} and {counts[1]} operands",
                    remedy="Make them take the same operands, or use `*`.",
                )
            )
        self._first, self._second = first, second
        self.name = joined_name(first.name, " & ", second.name)
        self._arity = counts[0] if counts[0] is not None else counts[1]

    @property
    def arity(self) -> int | None:
        """That of either."""
        return self._arity

    def gives(self) -> Sequence[Face] | None:
        """What both give, where both say."""
        return _gives(self)

    def parts(self) -> Sequence[Part]:
        """Both arrows."""
        return (self._first, self._second)

    def steps(self, *values: Any) -> Steps:
        """Both with the same operands."""
        left = yield self._first, values
        right = yield self._second, values
        return side_by_side(left, right)


def one_or_all(values: tuple[Any, ...]) -> Any:
    """A single operand as itself, several as a tuple."""
    return values[0] if len(values) == 1 else values


def as_operands(result: Any) -> tuple[Any, ...]:
    """The results of one arrow as the operands of the next: a plain tuple spreads, anything else is one operand."""
    return result if type(result) is tuple else (result,)


def side_by_side(left: Any, right: Any) -> tuple[Any, ...]:
    """The results of two arrows as one flat tuple of results."""
    return (*as_operands(left), *as_operands(right))


def _takes(arrow: Part) -> list[Face] | None:
    """What the arrows that take the operands of a composition take, one after the other; None where one is open."""
    found: list[Face] = []
    waiting = [arrow]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Compose):
            waiting.append(each.taker)
        elif isinstance(each, Parallel):
            waiting.extend(reversed(each.parts()))
        elif (faces := each.takes()) is not None:
            found.extend(faces)
        else:
            return None
    return found


def _gives(arrow: Part) -> list[Face] | None:
    """What the arrows that give the results of a composition give, one after the other; None where one is open."""
    found: list[Face] = []
    waiting = [arrow]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Compose):
            waiting.append(each.giver)
        elif isinstance(each, Parallel | Fanout):
            waiting.extend(reversed(each.parts()))
        elif (faces := each.gives()) is not None:
            found.extend(faces)
        else:
            return None
    return found
