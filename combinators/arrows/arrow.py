"""Arrows: typed programs that compose. Every leaf, program and combination of them is one."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

import jax

from combinators.arrows.faces import Face, check_faces
from combinators.errors import CompositionError, GraphError, message
from combinators.kernels.immutable import Immutable, copied_with_parts
from combinators.recording.current import current_trace
from combinators.recording.value import Value, as_value

if TYPE_CHECKING:
    from combinators.graphs.graph import Graph

In = TypeVar("In")
Out = TypeVar("Out")
Mid = TypeVar("Mid")
In2 = TypeVar("In2")
Out2 = TypeVar("Out2")


class Arrow(Immutable, abc.ABC, Generic[In, Out]):
    """A program from `In` to `Out`, polymorphic in names and sizes until it is applied.

    Called on values of a program that is being traced it adds to this program. Called on arrays it is traced once per
    types and then is an ordinary JAX function: `jit`, `grad` and `vmap` work.

    `f >> g` runs g after f; `f * g` runs both side by side; `f & g` gives both the same operands; `f | g` chooses by
    an `Either`. `>>` binds tighter than `&`: write `(f & g) >> h`.
    """

    name: str = "arrow"

    @abc.abstractmethod
    def apply(self, *values: Any) -> Any:
        """Add this arrow to the program that `values` belong to."""

    def apply_top(self, *values: Any) -> Any:
        """The same where this arrow is the whole program."""
        return self.apply(*values)

    @functools.cached_property
    def graphs(self) -> dict[Any, Graph]:
        """The graphs that calls on arrays were traced to, by the types of the arrays."""
        return {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # What holds arrays, or modules, is copied with them.
        return copied_with_parts(self, memo) if self.holders() else self

    @property
    def arity(self) -> int | None:
        """How many operands it takes; None where that is open."""
        return None

    def takes(self) -> Sequence[Face] | None:
        """What is known of the operands before they come; None where nothing is."""
        return None

    def gives(self) -> Sequence[Face] | None:
        """What is known of the results before they come; None where nothing is."""
        return None

    def parts(self) -> Sequence[Arrow[Any, Any]]:
        """The arrows that this one is made of."""
        return ()

    def holders(self) -> list[Holder[Any, Any]]:
        """The parts that hold arrays of their own (bound operands, parameters), each once, in order."""
        seen: dict[int, Arrow[Any, Any]] = {}
        waiting: list[Arrow[Any, Any]] = [self]
        while waiting:
            arrow = waiting.pop()
            if id(arrow) not in seen:
                seen[id(arrow)] = arrow
                waiting.extend(reversed(arrow.parts()))
        return [arrow for arrow in seen.values() if isinstance(arrow, Holder)]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Apply to values of a program, or run on arrays.

        Raises:
          GraphError: for operands given by keyword, or that are neither values nor arrays.
        """
        if keywords:
            raise GraphError(
                message(
                    f"`{self.name}` takes its operands by position",
                    f"got the keyword{'s' * (len(keywords) != 1)} {', '.join(keywords)}",
                    remedy="Pass them in order; what is no array goes into the function with functools.partial.",
                )
            )
        if any(isinstance(leaf, Value) for leaf in jax.tree.leaves(args, is_leaf=_is_value)):
            return self.apply(*map(as_value, args))
        if not args and current_trace() is not None:
            return self.apply()

        return _combinations().call(self, args)

    def __rshift__(self, other: Arrow[Out, Mid]) -> Arrow[In, Mid]:
        return _checked(self, other)

    def __mul__(self, other: Arrow[In2, Out2]) -> Arrow[tuple[In, In2], tuple[Out, Out2]]:
        return _combinations().parallel(self, as_arrow(other))

    def __and__(self, other: Arrow[In, Out2]) -> Arrow[In, tuple[Out, Out2]]:
        return _combinations().fanout(self, as_arrow(other))

    def __or__(self, other: Arrow[In2, Out]) -> Arrow[Any, Out]:
        return _combinations().choice(self, as_arrow(other))

    def first(self) -> Arrow[Any, Any]:
        """`(operands of self, c) -> (self, c)`: the last operand passes through."""
        return self * _combinations().identity

    def second(self) -> Arrow[Any, Any]:
        """`(c, operands of self) -> (c, self)`: the first operand passes through."""
        return _combinations().identity * self

    def left(self) -> Arrow[Any, Any]:
        """Acts on the left case of an `Either`, and leaves the right one."""
        return _combinations().left(self)

    def right(self) -> Arrow[Any, Any]:
        """Acts on the right case of an `Either`, and leaves the left one."""
        return _combinations().right(self)

    def feedback(self, over: str) -> Arrow[Any, Any]:
        """`(x, state) -> (y, state)` becomes `(xs, state) -> (ys, final state)` along the dimension `over`."""
        return _combinations().feedback(self, over)

    def bind(self, *arrays: Any) -> Arrow[Any, Out]:
        """Fix the last operands. Arrays become inputs of the graph, `bound` or `bound/0`, ...; none is closed over."""
        return _combinations().bound(self, tuple(arrays))


class Holder(Arrow[In, Out]):
    """An arrow with arrays of its own, which become inputs of any graph that it is traced into."""

    @abc.abstractmethod
    def held(self) -> Any:
        """The pytree of arrays."""

    def held_types(self) -> Any:
        """The same pytree with what tells types (arrays, or `TensorType`s that name the axes)."""
        return self.held()

    @property
    def held_name(self) -> str:
        """What the inputs of a graph are called."""
        return self.name


def as_arrow(thing: Any) -> Arrow[Any, Any]:
    """The arrow that an operand of `>>`, `*`, `&`, `|` stands for.

    Raises:
      CompositionError: when it is none.
    """
    if isinstance(thing, Arrow):
        return thing
    convert = getattr(thing, "__tapestry_arrow__", None)
    if convert is not None:
        return convert()
    raise CompositionError(
        message(
            "only arrows compose",
            f"got {type(thing).__name__}: {thing!r:.80}",
            remedy="Wrap a function of arrays in tp.Map, or a function of values in tp.program.",
        )
    )


class _Combinations(NamedTuple):
    """What the operators and methods of arrows make, and what a call on arrays does."""

    compose: Callable[[Arrow[Any, Any], Arrow[Any, Any]], Arrow[Any, Any]]
    parallel: Callable[[Arrow[Any, Any], Arrow[Any, Any]], Arrow[Any, Any]]
    fanout: Callable[[Arrow[Any, Any], Arrow[Any, Any]], Arrow[Any, Any]]
    identity: Arrow[Any, Any]
    choice: Callable[[Arrow[Any, Any], Arrow[Any, Any]], Arrow[Any, Any]]
    left: Callable[[Arrow[Any, Any]], Arrow[Any, Any]]
    right: Callable[[Arrow[Any, Any]], Arrow[Any, Any]]
    feedback: Callable[[Arrow[Any, Any], str], Arrow[Any, Any]]
    bound: Callable[[Arrow[Any, Any], tuple[Any, ...]], Arrow[Any, Any]]
    call: Callable[[Arrow[Any, Any], Sequence[Any]], Any]


@functools.cache
def _combinations() -> _Combinations:
    # All of them are arrows, so their modules import this one; an arrow finds them when an operator is first used.
    from combinators.arrows.bound import Bound
    from combinators.arrows.choice import Choice, Left, Right
    from combinators.arrows.compose import Compose, Fanout, Parallel, identity
    from combinators.arrows.loops import Feedback
    from combinators.arrows.tracing import call_on_arrays

    return _Combinations(Compose, Parallel, Fanout, identity, Choice, Left, Right, Feedback, Bound, call_on_arrays)


def _checked(first: Arrow[Any, Any], second: Any) -> Arrow[Any, Any]:
    following = as_arrow(second)
    check_faces(first.name, first.gives(), following.name, following.takes(), following.arity)
    return _combinations().compose(first, following)


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, Value)
