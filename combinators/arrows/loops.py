"""Arrows repeated: over time (`iterate`), over stacked layers (`stack`), with a state fed back (`feedback`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from combinators.arguments import is_whole, read_dimension, read_optional_name
from combinators.arrows.arrow import Arrow
from combinators.arrows.compose import as_operands
from combinators.errors import CompositionError, GraphError, message
from combinators.index_space.naming import AxisVariable, find, unify
from combinators.recording.current import trace_of
from combinators.recording.trace import Trace
from combinators.recording.value import Value

Step = Arrow[Any, Any] | Callable[..., Any]


class Iterate(Arrow[Any, Any]):
    """`step(*carries, *constants) -> carries`, `n` times."""

    def __init__(self, step: Step, n: int, name: str | None = None) -> None:
        self._step, self._n = _step(step, "tp.iterate"), _count(n, "tp.iterate")
        self.name = read_optional_name(name, "name= of tp.iterate") or "iterate"

    @property
    def arity(self) -> int | None:
        """That of the step."""
        return self._step.arity if isinstance(self._step, Arrow) else None

    def parts(self) -> Sequence[Arrow[Any, Any]]:
        """The step."""
        return (self._step,) if isinstance(self._step, Arrow) else ()

    def apply(self, *values: Any) -> Any:
        """Iterate from as many operands as the step gives results; the others stay as they are."""
        _need(self.name, values, 1, "a carry, and constants if the step takes any")
        carry, constants = values[0], values[1:]
        return _loop(self, self._step, carry, [], constants, self._n, None)[0]


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

    def parts(self) -> Sequence[Arrow[Any, Any]]:
        """The layer."""
        return (self._layer,) if isinstance(self._layer, Arrow) else ()

    def apply(self, *values: Any) -> Any:
        """Run the layers one after the other."""
        _need(self.name, values, 2, "a carry and what is stacked along `" + self._over + "`")
        leaves, tree = jax.tree.flatten(values[1:])
        stacked = [(leaf, _axis(leaf, self._over, self._n, self.name)) for leaf in leaves]
        carry, _ = _loop(self, self._layer, values[0], stacked, (), self._n, self._over, tree)
        return carry


class Feedback(Arrow[Any, Any]):
    """`(x, state) -> (y, state)` along a dimension: `(xs, state) -> (ys, final state)`."""

    def __init__(self, step: Step, over: str) -> None:
        self._step, self._over = _step(step, "feedback"), read_dimension(over, "what feedback goes along")
        self.name = f"{getattr(step, 'name', 'step')}.feedback"

    @property
    def arity(self) -> int:
        """The sequence and the first state."""
        return 2

    def parts(self) -> Sequence[Arrow[Any, Any]]:
        """The step."""
        return (self._step,) if isinstance(self._step, Arrow) else ()

    def apply(self, *values: Any) -> Any:
        """Run along the sequence."""
        if len(values) != 2:
            raise CompositionError(
                message(
                    f"`{self.name}` takes a sequence and a state, got {len(values)} operands",
                    remedy="Put several sequences, or several states, into one pytree.",
                )
            )
        sequence, state = values
        leaves, tree = jax.tree.flatten((sequence,))
        length = _length(leaves, self._over, self.name)
        stacked = [(leaf, _axis(leaf, self._over, length, self.name)) for leaf in leaves]

        def step(carry: Any, slices: Any) -> tuple[Any, Any]:
            result = as_operands(_call(self._step, slices, carry))
            if len(result) != 2:
                raise CompositionError(
                    message(
                        f"`{self.name}` feeds the second result of its step back",
                        f"the step gives {len(result)} result{'s' * (len(result) != 1)}",
                        remedy="Return the output and the next state.",
                    )
                )
            return result[1], result[0]

        carry, outputs = _loop(self, step, state, stacked, (), length, self._over, tree)
        return outputs, carry


def iterate(step: Step, n: int, *, name: str | None = None) -> Iterate:
    """Repeat `step(carry, *constants) -> carry` `n` times.

    Args:
      step: an arrow or a function of values; its result has the type of its first operand. A step that gives several
        results carries as many operands. Values around it that it uses are constants too.
      n: how often; 0 gives the carry back.
      name: for paths and errors.

    Raises:
      CompositionError: (when applied) where the carry does not come out as it went in.

    Example:
      >>> import jax.numpy as jnp
      >>> iterate(lambda carry, step: carry + step, 3)(jnp.int32(1), jnp.int32(10)).item()
      31
      >>> swap = iterate(lambda u, v: (v, u), 3)
      >>> [x.item() for x in swap(jnp.int32(1), jnp.int32(2))]
      [2, 1]
    """
    return Iterate(step, n, name)


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


def _loop(
    arrow: Arrow[Any, Any],
    step: Step,
    carry: Any,
    stacked: Sequence[tuple[Value, int]],
    constants: Sequence[Any],
    length: int,
    over: str | None,
    stacked_tree: Any = None,
) -> tuple[Any, Any]:
    carries, carry_tree = jax.tree.flatten(carry)
    held, held_tree = jax.tree.flatten(tuple(constants))
    recording: Trace = trace_of([*carries, *(v for v, _ in stacked), *held], arrow.name)
    out_tree: list[Any] = []
    carried = carry_tree

    def flat(*values: Value) -> list[Value]:
        nonlocal carried
        cut, rest = len(carries), len(carries) + len(stacked)
        inner = jax.tree.unflatten(carry_tree, values[:cut])
        slices = jax.tree.unflatten(stacked_tree, values[cut:rest]) if stacked else ()
        result = _call(step, inner, *slices, *jax.tree.unflatten(held_tree, values[rest:]))
        after, outputs = result if isinstance(arrow, Feedback) else (result, ())
        carried = _carried(arrow, after, (carry, *constants))
        if carried is None:
            raise CompositionError(
                message(
                    f"`{arrow.name}` cannot repeat its step: the carry comes out with another structure",
                    f"goes in as   {carry_tree}",
                    f"comes out as {jax.tree.structure(after)}",
                    remedy="Return the carry with the structure that it came with.",
                )
            )
        leaves, tree = jax.tree.flatten(outputs)
        out_tree.append(tree)
        return [*jax.tree.leaves(after), *leaves]

    results = recording.loop(flat, carries, stacked, held, length, over, arrow.name, arrow.holders())
    count = carried.num_leaves
    return jax.tree.unflatten(carried, results[:count]), jax.tree.unflatten(out_tree[0], results[count:])


def _carried(arrow: Arrow[Any, Any], after: Any, operands: tuple[Any, ...]) -> Any:
    """The structure that a turn carries on: that of the first operand or, of several results, of as many operands."""
    found = jax.tree.structure(after)
    if found == jax.tree.structure(operands[0]):
        return found
    several = isinstance(arrow, Iterate) and type(after) is tuple and len(after) > 1
    return found if several and found == jax.tree.structure(operands[: len(after)]) else None


def _need(name: str, values: Sequence[Any], least: int, what: str) -> None:
    if len(values) < least:
        raise CompositionError(
            message(f"`{name}` takes {what}, got {len(values)} operand{'s' * (len(values) != 1)}", remedy="Pass them.")
        )


def _call(step: Step, *values: Any) -> Any:
    return step.apply(*values) if isinstance(step, Arrow) else step(*values)


def _step(step: Any, where: str) -> Step:
    convert = getattr(step, "__tapestry_arrow__", None)
    step = convert() if convert is not None else step
    if not callable(step):
        raise GraphError(
            message(
                f"{where} repeats an arrow or a function of values",
                f"got {type(step).__name__}: {step!r:.60}",
                remedy="Pass a tp.program or a composition of arrows.",
            )
        )
    return step


def _count(n: Any, where: str) -> int:
    if not is_whole(n) or n < 0:
        raise GraphError(
            message(f"{where} repeats a whole number of times", f"got {n!r}", remedy="Give a non-negative integer.")
        )
    return int(n)


def _length(leaves: Sequence[Value], over: str, where: str) -> int:
    for leaf in leaves:
        if over in leaf.names:
            return leaf.shape[leaf.axis(over)]
    if leaves and leaves[0].ndim:
        return leaves[0].shape[0]
    raise GraphError(message(f"`{where}` has no sequence along `{over}`", remedy="Pass one, or name its axis."))


def _axis(value: Value, over: str, length: int, where: str) -> int:
    """The axis along which to take slices; an anonymous first axis becomes `over`."""
    axis = value.names.index(over) if over in value.names else 0
    fits = value.ndim > 0 and value.shape[axis] == length
    if fits and isinstance(find(value.axes[axis]), AxisVariable):
        unify(value.axes[axis], over)
    if not fits or find(value.axes[axis]) != over:
        raise CompositionError(
            message(
                f"`{where}` takes {length} slices along `{over}`",
                f"got {value!r}",
                remedy=f"Stack the operands along a first axis named `{over}` of size {length}.",
            )
        )
    return axis
