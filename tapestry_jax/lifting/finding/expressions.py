"""What a value is, cell by cell, as an expression of what it is computed from: equal expressions are one number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np

from tapestry_jax.lifting.kernels.primitives import Bound
from tapestry_jax.lifting.values import CellStep, LeafStep, Step, Values, results_of

Axes = tuple[int | None, ...]
"""For every axis of a value a number that stands for its dimension; None for an axis of size 1."""

Expression = int

DEEPEST = 64
"""Steps behind one another that are looked into; what lies before them is read as it is."""


class Expressions:
    """Expressions of values of some steps, in axes that the reader numbers.

    An expression is a tuple: a word, what else tells it, and expressions that it is made of.

      ("read", value, axes)         what no program cell by cell gives
      ("at", axis)                  the coordinate
      ("number", dtype, bytes)
      (primitive, parameters, rule, inputs, which)
      (reduction, expression)       along the one axis that `folded` names

    Conversions between float dtypes are left out: an expression says what is computed, not how it is rounded. Those
    to fewer digits than a result has (`kind`) are kept: who writes these means the rounding. A number is what it is
    converted to: -1e9 is `-inf` in float16.

    Args:
      steps: in order.
      values: their types.
      folded: the axis that reductions of one axis go along.
      kind: the dtype of the result that is looked for.
    """

    def __init__(self, steps: Iterable[Step], values: Values) -> None:
        self.values = values
        self.folded: int | None = None
        self.kind: Any = None
        self._depth = 0
        self._makers: dict[int, Step] = {}
        for step in steps:
            self._makers.update(dict.fromkeys(results_of(step), step))
        self.clear(None)

    def clear(self, folded: int | None, kind: Any = None) -> None:
        """Forget all expressions; from now on reductions go along `folded`, and results are of `kind`."""
        self.folded, self.kind = folded, kind
        self._numbers: dict[Any, Expression] = {}
        self._nodes: list[Any] = []
        self._of: dict[tuple[int, Axes], Expression] = {}
        self.origins: dict[Expression, tuple[int, Axes]] = {}

    def node(self, expression: Expression) -> Any:
        """What an expression is made of."""
        return self._nodes[expression]

    def number(self, expression: Expression) -> Any:
        """The number that an expression is; None for any other."""
        node = self._nodes[expression]
        return node[3] if node[0] == "number" else None

    def step_of(self, value: int) -> Step | None:
        """The step that a value comes from."""
        return self._makers.get(value)

    def of(self, value: int, axes: Axes) -> Expression:
        """The expression of a value."""
        key = (value, axes)
        if key not in self._of:
            self._depth += 1
            found = self._made(value, axes)
            self._depth -= 1
            self._of[key] = found
            self.origins.setdefault(found, key)
        return self._of[key]

    def _made(self, value: int, axes: Axes) -> Expression:
        step = self._makers.get(value) if self._depth <= DEEPEST else None
        if isinstance(step, CellStep):
            return self._program(step, value, axes)
        gone = reduced(step)
        if gone is not None and self.folded is not None and self.folded not in axes:
            (operand,), (name, axis) = step.operands, gone  # pyright: ignore[reportOptionalMemberAccess]
            inner = self.of(operand, (*axes[:axis], self.folded, *axes[axis:]))
            return self._intern((name, inner))
        return self._intern(("read", value, axes))

    def _program(self, step: CellStep, value: int, axes: Axes) -> Expression:
        place = [v for v, _ in step.results].index(value)
        at = {dim: axis for dim, axis in zip(step.results[place][1], axes, strict=True) if dim is not None}
        registers = [self.of(v, tuple(None if d is None else at[d] for d in dims)) for v, dims in step.operands]
        registers += [self._intern(("at", at[dim])) for dim in step.coordinates]
        for told in step.program.instructions:
            inputs = tuple(self._register(registers, entry) for entry in told.inputs)
            if told.primitive == "convert_element_type" and self._is_float(inputs[0]) and self._keeps(told.params):
                registers.append(self._converted(inputs[0], told.params))
                continue
            registers += [
                self._intern((told.primitive, told.params, told.rule, inputs, which)) for which in range(told.count)
            ]
        return self._register(registers, step.program.outputs[place])

    def _register(self, registers: list[Expression], entry: Any) -> Expression:
        if type(entry) is int:
            return registers[entry]
        return self._intern(("number", entry.dtype.name, entry.tobytes(), entry))

    def _intern(self, node: Any) -> Expression:
        key = node[:3] if node[0] == "number" else node
        if key not in self._numbers:
            self._numbers[key] = len(self._nodes)
            self._nodes.append(node)
        return self._numbers[key]

    def _keeps(self, params: Any) -> bool:
        """Whether a conversion gives a float, of as many digits as the result has."""
        made = dict(params)["new_dtype"]
        if not jnp.issubdtype(made, jnp.floating):
            return False
        return self.kind is None or jnp.finfo(made).nmant >= jnp.finfo(self.kind).nmant

    def _converted(self, expression: Expression, params: Any) -> Expression:
        """What is converted between floats: of a number the one that it becomes."""
        number = self.number(expression)
        if number is None:
            return expression
        with np.errstate(over="ignore"):
            return self._register([], number.astype(dict(params)["new_dtype"]))

    def _is_float(self, expression: Expression) -> bool:
        """Whether it is known to be a float: what gives booleans or integers is listed nowhere, so ask the origin."""
        node = self._nodes[expression]
        if node[0] == "number":
            return bool(jnp.issubdtype(node[3].dtype, jnp.floating))
        if expression in self.origins:
            return bool(jnp.issubdtype(self.values.dtypes[self.origins[expression][0]], jnp.floating))
        return False


def reduced(step: Step | None) -> tuple[str, int] | None:
    """The reduction that a step is, and the one axis that goes; None for any other step."""
    if not isinstance(step, LeafStep) or not isinstance(step.operation.kernel, Bound):
        return None
    kernel = step.operation.kernel
    gone = dict(kernel.params).get("axes", ())
    if kernel.primitive not in ("reduce_max", "reduce_sum") or len(gone) != 1:
        return None
    return kernel.primitive, int(gone[0])
