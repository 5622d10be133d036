"""Attention that is written out, `softmax(scale * q k + bias, mask) v`, becomes one fold over its keys."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from combinators.frozen import dataclass
from combinators.leaves.attention import attention_operation
from combinators.operations.operation import Operation
from tapestry_jax.lifting.finding.expressions import Axes, Expression, Expressions
from tapestry_jax.lifting.finding.product import Product, is_product
from tapestry_jax.lifting.finding.softmax import SURE, Scores, compared, read_scores, scores_of_softmax
from tapestry_jax.lifting.kernels.attention import FilledAttention, FilledDense, Quotient
from tapestry_jax.lifting.kernels.cells import Program
from tapestry_jax.lifting.rules.custom import program_of
from tapestry_jax.lifting.values import CellStep, Dims, LeafStep, LoopStep, Step, Steps, Values, needed, results_of

_SAME = Program((), (0,))
_INNER, _OWN = "d", "e"  # the axis that queries and keys are contracted along, and the one of values alone

Own = list[Any]
"""For every axis of an operand the number of its dimension, or one of these names; None for an axis of size 1."""


def with_attention(steps: Steps, values: Values) -> Steps:
    """The steps in which weights times values, where the weights are a softmax of products, are one operation.

    Where anything else reads the weights or the scores all stays as it is: they are computed anyway.
    """
    kept = [replace(s, body=with_attention(s.body, values)) if isinstance(s, LoopStep) else s for s in steps.steps]
    known = Expressions(kept, values)
    for step in [step for step in kept if is_product(step)]:
        if step not in kept:
            continue
        found = next((f for side in (0, 1) if (f := _found(known, step, side)) is not None), None)
        made = None if found is None else _Writer(known, found, step.place).run()
        if found is None or made is None:
            continue
        for written in made:
            written.scope = step.scope
        at = kept.index(step)
        used = needed([*kept[:at], *made, *kept[at + 1 :]], steps.outputs)
        if not any(found.product.result in results_of(other) for other in used):
            kept = used
    return replace(steps, steps=kept)


@dataclass(frozen=True)
class _Found:
    """Attention, as the axes of its weights are numbered.

    Attributes:
      out: weights times values.
      side: which operand of it the weights are.
      axes: of the weights.
      keys: the folded one.
      product: of queries and keys.
      query, key, value: each with its axes.
      scores: how they come from the product.
    """

    out: Product
    side: int
    axes: Axes
    keys: int
    product: Product
    query: tuple[int, Own]
    key: tuple[int, Own]
    value: tuple[int, Own]
    scores: Scores

    @property
    def row(self) -> list[int]:
        """The axes of the queries, in their order."""
        return [axis for axis in self.query[1] if type(axis) is int]


def _found(known: Expressions, step: Any, side: int) -> _Found | None:
    """Attention behind a product, one of whose operands are its weights."""
    values, out = known.values, Product(step, known.values)
    shape = out.shapes[side]
    if len(out.folded[side]) != 1 or shape[out.folded[side][0]] == 1 or not out.is_plain:
        return None
    keys, kind = out.folded[side][0], values.dtypes[step.operands[1 - side]]
    if not jnp.issubdtype(kind, jnp.floating) or values.dtypes[out.result] != kind:
        return None  # it would be rounded in another way
    axes: Axes = tuple(None if size == 1 else at for at, size in enumerate(shape))
    known.clear(keys, kind)
    scores = scores_of_softmax(known, known.of(step.operands[side], axes))
    value = _value(out, side, axes, keys)
    if scores is None or value is None:
        return None
    for product, expression in _products(known, scores):
        told = read_scores(known, scores, expression)
        pair = None if told is None else _query_and_key(known, product, known.node(expression)[2], keys)
        if told is not None and pair is not None:
            found = _Found(out, side, axes, keys, product, *pair, (step.operands[1 - side], value), told)
            return found if {*found.row, keys} == {*axes} - {None} else None
    return None


def _products(known: Expressions, scores: Expression) -> list[tuple[Product, Expression]]:
    """The products that the scores are computed from, each with its expression."""
    found: list[tuple[Product, Expression]] = []
    waiting, seen = [scores], {scores}
    while waiting:
        expression = waiting.pop()
        node = known.node(expression)
        if node[0] == "read" and is_product(step := known.step_of(node[1])):
            found.append((Product(step, known.values), expression))
        inner = [part for part in (node[3] if len(node) == 5 else ()) if part not in seen]
        waiting += inner
        seen.update(inner)
    return found


def _query_and_key(
    known: Expressions, product: Product, read: Axes, keys: int
) -> tuple[tuple[int, Own], tuple[int, Own]] | None:
    """Both operands of the product with their axes, the one with the keys second; None where they do not fit."""
    wide = [at for at, axis in enumerate(product.folded[0]) if product.shapes[0][axis] != 1]
    kinds = [known.values.dtypes[value] for value in product.step.operands]
    if len(wide) > 1 or not product.folded[0] or not product.is_plain:
        return None
    if not all(jnp.issubdtype(kind, jnp.floating) for kind in kinds):
        return None
    inner: Own = [None] * len(product.folded[0])
    inner[wide[0] if wide else 0] = _INNER
    pair = [(product.step.operands[side], product.of_operand(side, read, inner)) for side in (0, 1)]
    query, key = pair if keys in pair[1][1] else pair[::-1]
    if keys in query[1] or keys not in key[1] or {*key[1]} - {*query[1], keys, None}:
        return None
    return query, key


def _value(out: Product, side: int, axes: Axes, keys: int) -> Own | None:
    """The axes of the values, of which one is theirs alone."""
    other = 1 - side
    found: Own = [None] * len(out.shapes[other])
    for axis, of in zip(out.batch[other], out.batch[side], strict=True):
        found[axis] = axes[of]
    free = out.free(other)
    wide = [axis for axis in free if out.shapes[other][axis] != 1]
    if len(wide) > 1 or not free:
        return None
    found[wide[0] if wide else free[-1]] = _OWN
    found[out.folded[other][0]] = keys
    return found


class _Writer:
    """Writes the steps of attention that was found."""

    def __init__(self, known: Expressions, found: _Found, place: str) -> None:
        self._known, self._values, self._found, self._place = known, known.values, found, place
        self._made: list[Step] = []

    def run(self) -> list[Step] | None:
        """The steps; None where a mask or a bias cannot be written."""
        found = self._found
        told = {
            "query": (*found.query, [*found.row, _INNER]),
            "key": (*found.key, [axis for axis in found.key[1] if type(axis) is int] + [_INNER]),
            "value": (*found.value, [axis for axis in found.value[1] if type(axis) is int] + [_OWN]),
        }
        optional = self._optional()
        if optional is None:
            return None
        at, extra = optional
        operands = [self._moved(*operand) for operand in told.values()]
        fields: dict[str, Any] = {label: tuple(map(_name, want)) for label, (_, _, want) in told.items()}
        fields |= {label: tuple(map(_name, axes)) for label, (_, axes) in extra.items()}
        fields |= {"keys": _name(found.keys), "queries": None if at is None else _name(at), "causal": at is not None}
        fields["scale"] = float(found.scores.scale)
        operation = self._operation(fields, self._values.dtypes[found.value[0]])
        self._result(operation, [*operands, *(value for value, _ in extra.values())])
        return self._made

    def _optional(self) -> tuple[int | None, dict[str, tuple[int, list[int]]]] | None:
        """The axis that is compared with the keys; mask and bias, each a value with its axes."""
        scores, keys = self._found.scores, self._found.keys
        seen = [(told, wanted, compared(self._known, told, wanted, keys)) for told, wanted in scores.seen]
        axes = {axis for _, _, axis in seen} - {None}
        # Every row sees the first key; with another condition it may see none, and weighs all hidden keys alike, and
        # with a bias what it sees may weigh no more than they do: blocks that causality hides are not computed.
        is_alone = len(seen) == 1 and not scores.biases
        is_causal = len(axes) == 1 and (is_alone or scores.fill == -math.inf) and _hides(scores.fill)
        at = axes.pop() if is_causal else None
        masks = [(told, wanted) for told, wanted, axis in seen if at is None or axis != at]
        extra: dict[str, tuple[int, list[int]]] = {}
        for label, terms, how in (("mask", masks, _all), ("bias", scores.biases, _sum)):
            made = self._combined(label, terms, how) if terms else None
            if terms and made is None:
                return None
            extra |= {label: made} if made is not None else {}
        return at, extra

    def _combined(
        self, name: str, terms: Sequence[tuple[Expression, Any]], how: Callable[..., Any]
    ) -> tuple[int, list[int]] | None:
        """One value of several terms, and its axes; each term comes with whether it is wanted, or its factor."""
        if any(told not in self._known.origins for told, _ in terms):
            return None
        operands = [self._known.origins[told] for told, _ in terms]
        axes = [axis for axis in (*self._found.row, self._found.keys) if any(axis in own for _, own in operands)]
        cells = [jax.ShapeDtypeStruct((), self._values.dtypes[value]) for value, _ in operands]
        traced = jax.make_jaxpr(how([own for _, own in terms]))(*cells)
        program = program_of(traced)
        if program is None or not axes:
            return None
        sizes = self._sizes(operands)
        made = self._values.new([sizes[axis] for axis in axes], traced.out_avals[0].dtype)
        self._cells(name, operands, program, made, axes)
        return made, axes

    def _operation(self, fields: Mapping[str, Any], dtype: Any) -> Operation:
        """That of ours where every row sees a key; else one that gives what `softmax` gives to rows that see none."""
        made = attention_operation(fields, dtype)
        if "mask" not in fields and "bias" not in fields:
            return made
        fill = -math.inf if self._found.scores.fill is None else float(self._found.scores.fill)
        kernel, dense = FilledAttention(**fields, fill=fill), FilledDense(**fields, fill=fill)
        return replace(made, kernel=kernel, dense=(dense,), present=Quotient(dtype.name))

    def _moved(self, value: int, have: Own, want: Own) -> int:
        """A value with its axes in this order, those of size 1 left out."""
        if have == want:
            return value
        sizes = self._sizes([(value, have)])
        made = self._values.new([sizes[axis] for axis in want], self._values.dtypes[value])
        self._cells("transpose", [(value, have)], _SAME, made, want)
        return made

    def _result(self, operation: Operation, operands: list[int]) -> None:
        """The operation, and its result in the order of the product's."""
        found, out = self._found, self._found.out
        have = [*found.row, _OWN]
        pair = (found.axes, found.value[1])
        want = out.of_result(pair if found.side == 0 else pair[::-1])
        if want == have:
            self._made.append(LeafStep(operation, operands, [out.result], self._place))
            return
        sizes = self._sizes([(out.result, want)])
        made = self._values.new([sizes[axis] for axis in have], self._values.dtypes[out.result])
        self._made.append(LeafStep(operation, operands, [made], self._place))
        self._cells("transpose", [(made, have)], _SAME, out.result, want)

    def _sizes(self, operands: Sequence[tuple[int, Sequence[Any]]]) -> dict[Any, int]:
        shapes = self._values.shapes
        return {axis: size for value, own in operands for axis, size in zip(own, shapes[value], strict=True)}

    def _cells(
        self,
        name: str,
        operands: Sequence[tuple[int, Sequence[Any]]],
        program: Program,
        result: int,
        axes: Sequence[Any],
    ) -> None:
        """A program cell by cell."""
        sizes = self._sizes([(result, axes)])
        listed = [axis for axis in axes if axis is not None and sizes[axis] != 1]
        at = {axis: number for number, axis in enumerate(listed)}
        reads: list[tuple[int, Dims]] = [(value, tuple(at.get(axis) for axis in own)) for value, own in operands]
        writes: Dims = tuple(at.get(axis) for axis in axes)
        size = [sizes[axis] for axis in listed]
        self._made.append(CellStep(name, reads, [], program, [(result, writes)], size, self._place))


def _hides(fill: Any) -> bool:
    """Whether what has this score weighs 0 beside anything that is seen."""
    least = float(jnp.finfo(fill.dtype).min) if jnp.issubdtype(fill.dtype, jnp.floating) else -math.inf
    return float(fill) <= max(SURE, least / 2)


def _all(wanted: Sequence[bool]) -> Callable[..., Any]:
    """All truths as they are wanted."""
    return lambda *terms: functools.reduce(
        jnp.logical_and, (x if want else ~x for x, want in zip(terms, wanted, strict=True))
    )


def _sum(factors: Sequence[float]) -> Callable[..., Any]:
    """The sum of floats, each with its factor."""
    return lambda *terms: functools.reduce(
        jnp.add, (x if factor == 1 else factor * x for x, factor in zip(terms, factors, strict=True))
    )


def _name(axis: Any) -> str:
    return axis if isinstance(axis, str) else f"d{axis}"
