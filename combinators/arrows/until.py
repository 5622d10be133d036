"""Loops whose length depends on data: `iterate(step, until=condition, at_most=n)`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from inspect import Parameter, signature
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from combinators.arrows.arrow import Arrow
from combinators.arrows.conditions import Unchanged, Zero
from combinators.arrows.part import Part
from combinators.arrows.repeated import carried_structure, record_loop
from combinators.errors import CompositionError, message, spelt
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.operations.operation import Operation
from combinators.recording.arithmetic import elementwise
from combinators.recording.carries import agreed_carries, check_carries
from combinators.recording.current import recording, trace_of
from combinators.recording.trace import Trace
from combinators.recording.value import Value


class Iterated(NamedTuple):
    """What a loop gives that ends by a condition.

    Attributes:
      state: the last carry; a tuple where the step carries several operands.
      steps: how many turns were taken, int32.
      converged: whether the condition held at the end.
    """

    state: Any
    steps: Any
    converged: Any


class IterateUntil(Arrow[Any, Any]):
    """`step(*carries, *constants) -> carries` until a condition holds, at most `most` times."""

    def __init__(self, step: Any, until: Any, most: int, derivative: str, terms: int, name: str) -> None:
        self._step, self._until, self._most = step, until, most
        self._derivative, self._terms, self.name = derivative, terms, name

    @property
    def arity(self) -> int | None:
        """That of the step."""
        return self._step.arity if isinstance(self._step, Arrow) else None

    def parts(self) -> Sequence[Part]:
        """The step, and the condition where it is an arrow."""
        return [part for part in (self._step, self._until) if isinstance(part, Arrow)]

    def apply(self, *values: Any) -> Any:
        """Iterate from as many operands as the step gives results; the others stay as they are."""
        if not values:
            raise CompositionError(
                message(f"`{self.name}` takes a carry, and constants if the step takes any", remedy="Pass them.")
            )
        given = jax.tree.map(_stopped, values) if self._derivative == "implicit" else values
        trace = trace_of(jax.tree.leaves(given), self.name)
        with trace.scope(f"{self.name}_start"):
            over = self._asked(trace, given) if not isinstance(self._until, Unchanged) else _constant(trace, bool)
            carry = over, _constant(trace, "int32"), given[0]
        many = self._carried(trace, values) if self._derivative == "unrolled" else 0
        turn = partial(self._masked, given, many) if many else self._turn
        looped = record_loop(
            self, turn, carry, constants=given[1:], length=self._most, over=None, several=True, until=not many
        )[0]
        several = isinstance(looped[0], tuple)
        (over, steps, first), *others = looped if several else (looped,)
        state = (first, *others) if several else first
        if self._derivative == "implicit":
            fixed = jax.tree.map(_stopped, state)
            if several:
                # What the step hands on as it got it is a parameter of the fixed point, and no part of it.
                handed = self._handed_on(trace, values)
                fixed = tuple(values[at] if at in handed else each for at, each in enumerate(fixed))
            state = self._terms_of(fixed, values[len(others) + 1 :], several=several)
        return Iterated(state, steps, over)

    def _turn(self, carry: tuple[Any, Any, Any], *others: Any) -> tuple[Any, tuple[()]]:
        _, steps, first = carry
        state, rest = self._stepped(first, others)
        after = (*state, *others[len(state) - 1 :])
        over = self._holds((first, *others)[: len(state)], state, after)
        return self._carry((over, steps + 1, state[0]), rest), ()

    def _masked(
        self, given: tuple[Any, ...], many: int, carry: tuple[Any, Any, Any], *others: Any
    ) -> tuple[Any, tuple[()]]:
        """A turn that changes nothing once the loop is over.

        Its step is taken from the first state then: at the last one it may have no derivative, which times zero would
        be no number.
        """
        over, steps, first = carry
        now = (first, *others)[:many]
        safe = _chosen(over, given[:many], now)
        state, rest = self._stepped(safe[0], (*safe[1:], *others[many - 1 :]))
        after = (*state, *others[many - 1 :])
        ends = elementwise(jnp.logical_or, over, self._holds(now, state, after))
        state = _chosen(over, now, state)
        steps = elementwise(jnp.where, over, steps, steps + 1)
        return self._carry((ends, steps, state[0]), state[1:] if rest is not None else None), ()

    def _carry(self, first: tuple[Any, Any, Any], rest: tuple[Any, ...] | None) -> Any:
        return first if rest is None else (first, *rest)

    def _stepped(self, first: Any, others: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
        """The carries after a step, of the types that they had; and those behind the first, where it gives several."""
        operands = first, *others
        after = self._step.apply(*operands) if isinstance(self._step, Arrow) else self._step(*operands)
        found = carried_structure(self.name, after, operands, several=True)
        is_several = found != jax.tree.structure(first)
        before = jax.tree.leaves(operands[: len(after)] if is_several else first)
        leaves = trace_of(before, self.name).own(f"{self.name}/result", jax.tree.leaves(after))
        # The loop counts operands of its own among its carries, and a masked turn would make one type of two.
        leaves = agreed_carries(before, leaves)
        check_carries(self.name, before, leaves)
        after = jax.tree.unflatten(found, leaves)
        return (after, after[1:]) if is_several else ((after,), None)

    def _holds(self, before: tuple[Any, ...], after: tuple[Any, ...], operands: tuple[Any, ...]) -> Any:
        if isinstance(self._until, Unchanged):
            return self._until.of(before, after)
        return self._asked(trace_of(jax.tree.leaves(after), self.name), operands)

    def _asked(self, trace: Trace, operands: tuple[Any, ...]) -> Any:
        """What the condition says of the operands that it takes: the first ones."""
        until = self._until
        count = until.arity if isinstance(until, Arrow) else _positional(until)
        if count is None or count > len(operands):
            told = "any number of" if count is None else str(count)
            raise CompositionError(
                message(
                    f"until= of `{self.name}` takes {told} operands, the step takes {len(operands)}",
                    remedy="Let it take the first operands of the step, the carries, and as many as it needs.",
                )
            )
        flag = until.apply(*operands[:count]) if isinstance(until, Arrow) else until(*operands[:count])
        if not isinstance(flag, Value) or flag.shape != () or flag.dtype != jnp.bool_:
            raise CompositionError(
                message(
                    f"until= of `{self.name}` gives no single flag",
                    f"got {spelt(flag, 120)}",
                    remedy='Fold what it compares: tp.fold(tp.aggregators.All(), "x -> ")(close), or return a '
                    "comparison of scalars.",
                )
            )
        return trace.own(self.name, [flag])[0]

    def _carried(self, trace: Trace, values: tuple[Any, ...]) -> int:
        """How many operands the step carries, found by recording it aside."""
        return len(self._aside(trace, values)[1])

    def _handed_on(self, trace: Trace, values: tuple[Any, ...]) -> set[int]:
        """The carries that the step gives back as they are, by their numbers."""
        before, after = self._aside(trace, values)
        pairs = enumerate(zip(before, after, strict=False))
        return {at for at, (one, other) in pairs if _places(one) == _places(other)}

    def _aside(self, trace: Trace, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The operands of a step that is recorded aside, and what it gives."""
        aside = Trace(trace)
        leaves, tree = jax.tree.flatten(values)
        inner = [aside.input(f"x{i}", v.axes, v.shape, v.dtype) for i, v in enumerate(trace.own(self.name, leaves))]
        with recording(aside):
            first, *others = jax.tree.unflatten(tree, inner)
            return (first, *others), self._stepped(first, tuple(others))[0]

    def _terms_of(self, state: Any, constants: tuple[Any, ...], *, several: bool) -> Any:
        """The turns from the fixed point that are differentiated."""

        def turn(carry: Any, *others: Any) -> tuple[Any, tuple[()]]:
            after, rest = self._stepped(carry, others)
            return (after if rest is not None else after[0]), ()

        carry, rest = (state[0], state[1:]) if several else (state, ())
        operands = (*rest, *constants)
        return record_loop(self, turn, carry, constants=operands, length=self._terms, over=None, several=True)[0]


def _positional(function: Any) -> int | None:
    """How many operands a function takes; None where it takes any number."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind is Parameter.VAR_POSITIONAL for each in parameters):
        return None
    places = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in places and each.default is Parameter.empty for each in parameters)


def _constant(trace: Trace, dtype: Any) -> Any:
    """Zero, or false, as a value of the program."""
    operation = Operation(Signature((), (Operand(()),)), Zero(jnp.dtype(dtype).name), name="zero")
    return trace.apply(operation, [], suggests=False)


def _places(tree: Any) -> list[Any]:
    """Where the values of a tree were made; they themselves are compared cell by cell."""
    return [value.ref for value in jax.tree.leaves(tree)]


def _stopped(value: Any) -> Any:
    return elementwise(lax.stop_gradient, value) if jnp.issubdtype(value.dtype, jnp.inexact) else value


def _chosen(over: Any, left: Any, right: Any) -> Any:
    return jax.tree.map(lambda a, b: elementwise(jnp.where, over, a, b), left, right)
