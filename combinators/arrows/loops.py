"""Arrows repeated: over time (`iterate`), over stacked layers (`stack`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast, overload

import jax

from combinators.arguments import is_whole, read_dimension, read_optional_name
from combinators.arrows.arrow import Arrow
from combinators.arrows.part import Part
from combinators.arrows.repeated import record_loop, sliced_axis
from combinators.errors import CompositionError, GraphError, message, spelt
from combinators.recording.carries import check_turns

Step = Arrow[Any, Any] | Callable[..., Any]


class Iterate(Arrow[Any, Any]):
    """`step(*carries, *constants) -> carries`, `n` times."""

    def __init__(self, step: Step, n: int, name: str | None = None) -> None:
        self._step, self._n = _step(step, "tp.iterate"), _count(n, "tp.iterate")
        self.name = read_optional_name(name, "name= of tp.iterate") or "iterate"

    def __repr__(self) -> str:
        return f"Iterate({self._n} times {self._step!r})"

    @property
    def arity(self) -> int | None:
        """That of the step."""
        return self._step.arity if isinstance(self._step, Arrow) else None

    def parts(self) -> Sequence[Part]:
        """The step."""
        return (self._step,) if isinstance(self._step, Arrow) else ()

    def apply(self, *values: Any) -> Any:
        """Iterate from as many operands as the step gives results; the others stay as they are."""
        _need(self.name, values, 1, "a carry, and constants if the step takes any")
        carry, constants = values[0], values[1:]
        turn = _carry_alone(self._step)
        return record_loop(self, turn, carry, constants=constants, length=self._n, over=None, several=True)[0]


class Stack(Arrow[Any, Any]):
    """`layer(carry, *stacked) -> carry` once for every slice of the stacked operands along `over`."""

    def __init__(self, layer: Step, n: int, over: str = "layer", name: str | None = None) -> None:
        self._layer, self._n = _step(layer, "tp.stack"), _count(n, "tp.stack")
        self._over = read_dimension(over, "over= of tp.stack")
        self.name = read_optional_name(name, "name= of tp.stack") or "stack"

    @property
    def arity(self) -> int | None:
        """That of the layer."""
        return self._layer.arity if isinstance(self._layer, Arrow) else None

    def parts(self) -> Sequence[Part]:
        """The layer."""
        return (self._layer,) if isinstance(self._layer, Arrow) else ()

    def apply(self, *values: Any) -> Any:
        """Run the layers one after the other."""
        _need(self.name, values, 2, "a carry and what is stacked along `" + self._over + "`")
        leaves, tree = jax.tree.flatten(values[1:])
        stacked = [(leaf, sliced_axis(leaf, self._over, self._n, self.name)) for leaf in leaves]
        turn = _carry_alone(self._layer)
        return record_loop(self, turn, values[0], stacked, length=self._n, over=self._over, stacked_tree=tree)[0]


@overload
def iterate(step: Step, n: int, *, name: str | None = None) -> Iterate: ...


@overload
def iterate(
    step: Step,
    *,
    until: Any,
    at_most: int,
    derivative: str = "forwards",
    terms: int | None = None,
    name: str | None = None,
) -> Arrow[Any, Any]: ...


def iterate(
    step: Step,
    n: int | None = None,
    *,
    until: Any = None,
    at_most: int | None = None,
    derivative: str = "forwards",
    terms: int | None = None,
    name: str | None = None,
) -> Arrow[Any, Any]:
    """Repeat `step(carry, *constants) -> carry` `n` times, or until a condition holds.

    Args:
      step: an arrow or a function of values; its result has the type of its first operand. A step that gives several
        results carries as many operands. Values around it that it uses are constants too.
      n: how often; 0 gives the carry back.
      until: a function of the first operands of the step, as many as it takes, that gives one flag; or
        `tp.unchanged(rtol=1e-6)`. The loop ends before the first turn in which it holds; `unchanged` needs one turn.
      at_most: with `until`, the most turns.
      derivative: with `until`. `"forwards"`: `jax.jvp` alone, of the turns that are taken. `"unrolled"`: all
        `at_most` turns are taken, and change nothing once the condition holds. `"implicit"`: of a fixed point, by
        `terms` terms of its Neumann series: the turns from it that are differentiated.
      terms: with `derivative="implicit"`, how many.
      name: for paths and errors.

    Returns:
      An arrow to the last carry; with `until` to a named tuple `(state, steps, converged)`: one operand of what
        follows.

    Raises:
      CompositionError: (when applied) where the carry does not come out as it went in, or `until` gives no single flag.
      GraphError: where options do not belong together; for a gradient through a loop that has none backwards.

    Example:
      >>> import jax.numpy as jnp
      >>> iterate(lambda carry, step: carry + step, 3)(jnp.int32(1), jnp.int32(10)).item()
      31
      >>> swap = iterate(lambda u, v: (v, u), 3)
      >>> [x.item() for x in swap(jnp.int32(1), jnp.int32(2))]
      [2, 1]
      >>> halves = iterate(lambda x: x / 2, until=lambda x: x < 1.0, at_most=20)(jnp.float32(10))
      >>> halves.state.item(), halves.steps.item(), halves.converged.item()
      (0.625, 4, True)
    """
    is_default = isinstance(derivative, str) and derivative == "forwards"  # pyright: ignore[reportUnnecessaryIsInstance]
    if until is None and (at_most is not None or terms is not None or not is_default):
        raise GraphError(
            message(
                "tp.iterate takes at_most=, derivative= and terms= with until=",
                remedy="Give the condition, or a number of turns alone: tp.iterate(step, 32).",
            )
        )
    if until is None:
        return Iterate(step, cast("int", n), name)
    if n is not None:
        raise GraphError(
            message(
                "tp.iterate takes a number of turns, or a condition",
                f"got n={n!r} and until=",
                remedy="With until= write at_most=: tp.iterate(step, until=condition, at_most=100).",
            )
        )
    # Few programs have such loops.
    from combinators.arrows.conditions import read_until
    from combinators.arrows.until import IterateUntil

    until, most, count = read_until(until, at_most, derivative, terms, _count)
    called = read_optional_name(name, "name= of tp.iterate") or "iterate"
    return IterateUntil(_step(step, "tp.iterate"), until, most, derivative, count, called)


def stack(layer: Step, n: int, over: str = "layer", *, name: str | None = None) -> Stack:
    """Run `layer(carry, *stacked) -> carry` for each of `n` slices of the stacked operands along `over`.

    Args:
      layer: an arrow or a function of values; values around it that it uses are the same for every layer.
      n: the number of layers.
      over: the dimension that every stacked operand gains; where none is named so, it is the first axis.
      name: for paths and errors.

    Returns:
      An arrow from the carry and the stacked operands (pytrees) to the last carry.

    Raises:
      CompositionError: (when applied) where an operand has no such axis, or the carry changes its type.

    Example:
      >>> import jax.numpy as jnp
      >>> stack(lambda carry, scale: carry * scale, 3)(jnp.float32(1), jnp.array([2.0, 3.0, 4.0])).item()
      24.0
    """
    return Stack(layer, n, over, name)


def _carry_alone(step: Step) -> Callable[..., tuple[Any, tuple[()]]]:
    """A turn that gives nothing but the next carry."""
    apply = step.apply if isinstance(step, Arrow) else step
    return lambda *values: (apply(*values), ())


def _need(name: str, values: Sequence[Any], least: int, what: str) -> None:
    if len(values) < least:
        raise CompositionError(
            message(f"`{name}` takes {what}, got {len(values)} operand{'s' * (len(values) != 1)}", remedy="Pass them.")
        )


def _count(n: Any, where: str) -> int:
    if not is_whole(n) or n < 0:
        raise GraphError(
            message(f"{where} repeats a whole number of times", f"got {n!r}", remedy="Give a non-negative integer.")
        )
    check_turns(int(n), where)
    return int(n)


def _step(step: Any, where: str) -> Step:
    convert = getattr(step, "__tapestry_arrow__", None)
    step = convert() if convert is not None else step
    if not callable(step):
        raise GraphError(
            message(
                f"{where} repeats an arrow or a function of values",
                f"got {type(step).__name__}: {spelt(step, 60)}",
                remedy="Pass a tp.program or a composition of arrows.",
            )
        )
    return step
