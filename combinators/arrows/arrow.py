"""Arrows: typed programs that compose. Every leaf, program and combination of them is one."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import jax

from combinators.arrows.bound import Bound
from combinators.arrows.choice import Choice, Left, Right
from combinators.arrows.compose import Compose, Fanout, Parallel, Unchanged
from combinators.arrows.faces import check_faces
from combinators.arrows.feedback import Feedback
from combinators.arrows.part import Part
from combinators.arrows.tracing import call_on_arrays
from combinators.errors import CompositionError, GraphError, message, spelt
from combinators.recording.current import current_trace
from combinators.recording.value import Value, as_value

In = TypeVar("In")
Out = TypeVar("Out")
Mid = TypeVar("Mid")
In2 = TypeVar("In2")
Out2 = TypeVar("Out2")


class Arrow(Part, Generic[In, Out]):
    """A program from `In` to `Out`, polymorphic in names and sizes until it is applied.

    Called on values of a program that is being traced it adds to this program. Called on arrays it is traced once per
    types and then is an ordinary JAX function: `jit`, `grad` and `vmap` work.

    `f >> g` runs g after f; `f * g` runs both side by side; `f & g` gives both the same operands; `f | g` chooses by
    an `Either`. `>>` binds tighter than `&`: write `(f & g) >> h`.
    """

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
        return call_on_arrays(self, args)

    def __rshift__(self, other: Arrow[Out, Mid]) -> Arrow[In, Mid]:
        following = as_arrow(other)
        check_faces(self.name, self.gives(), following.name, following.takes(), following.arity)
        return _Compose(self, following)

    def __mul__(self, other: Arrow[In2, Out2]) -> Arrow[tuple[In, In2], tuple[Out, Out2]]:
        return _Parallel(self, as_arrow(other))

    def __and__(self, other: Arrow[In, Out2]) -> Arrow[In, tuple[Out, Out2]]:
        return _Fanout(self, as_arrow(other))

    def __or__(self, other: Arrow[In2, Out]) -> Arrow[Any, Out]:
        return _Choice(self, as_arrow(other))

    def first(self) -> Arrow[Any, Any]:
        """`(operands of self, c) -> (self, c)`: the last operand passes through."""
        return self * identity

    def second(self) -> Arrow[Any, Any]:
        """`(c, operands of self) -> (c, self)`: the first operand passes through."""
        return identity * self

    def left(self) -> Arrow[Any, Any]:
        """Acts on the left case of an `Either`, and leaves the right one."""
        return _Left(self)

    def right(self) -> Arrow[Any, Any]:
        """Acts on the right case of an `Either`, and leaves the left one."""
        return _Right(self)

    def feedback(self, over: str) -> Arrow[Any, Any]:
        """`(x, state) -> (y, state)` becomes `(xs, state) -> (ys, final state)` along the dimension `over`."""
        return _Feedback(self, over)

    def bind(self, *arrays: Any) -> Arrow[Any, Out]:
        """Fix the last operands. Arrays become inputs of the graph, `bound` or `bound/0`, ...; none is closed over."""
        return _Bound(self, tuple(arrays))


class Identity(Unchanged, Arrow[Any, Any]):
    """The arrow that gives back its operand."""


# What the operators and methods of arrows make: parts made of parts, as arrows.
class _Compose(Compose, Arrow[Any, Any]):
    """`f >> g`."""


class _Parallel(Parallel, Arrow[Any, Any]):
    """`f * g`."""


class _Fanout(Fanout, Arrow[Any, Any]):
    """`f & g`."""


class _Choice(Choice, Arrow[Any, Any]):
    """`f | g`."""


class _Left(Left, Arrow[Any, Any]):
    """`f.left()`."""


class _Right(Right, Arrow[Any, Any]):
    """`f.right()`."""


class _Feedback(Feedback, Arrow[Any, Any]):
    """`f.feedback(over)`."""


class _Bound(Bound, Arrow[Any, Any]):
    """`f.bind(w)`."""


identity = Identity()
"""The identity arrow: `identity >> f` and `f >> identity` are `f`."""


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
            f"got {type(thing).__name__}: {spelt(thing)}",
            remedy="Wrap a function of arrays in tp.Map, or a function of values in tp.program.",
        )
    )


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, Value)
