"""Weights as a softmax of scores along one axis; and scores as products that are scaled, biased and masked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from tapestry_jax.lifting.constants import Table
from tapestry_jax.lifting.finding.expressions import Axes, Expression, Expressions

SURE = -1e9
"""A score so low that its weight is 0 beside any other: rows that see a key do not see what has it."""


@dataclass(frozen=True)
class Scores:
    """`scale * product + biases`, and a number where it is hidden.

    Attributes:
      product: the expression that is scaled.
      scale: a number.
      biases: expressions, each with a factor.
      seen: expressions that all have to hold for a score to be seen; False beside one that has to be false.
      fill: the score of what is hidden; None where nothing is.
    """

    product: Expression
    scale: float = 1.0
    biases: tuple[tuple[Expression, float], ...] = ()
    seen: tuple[tuple[Expression, bool], ...] = field(default=())
    fill: Any = None


def scores_of_softmax(known: Expressions, weights: Expression) -> Expression | None:
    """The scores whose softmax along the folded axis the weights are; None where they are none.

    It is one where it is computed from differences to the maximum, so that it is the same for all scores.
    """
    node = known.node(weights)
    if node[0] == "div":
        top, norm = node[3]
        scores = _shifted(known, top)
        return scores if scores is not None and known.node(norm) == ("reduce_sum", top) else None
    if node[0] != "exp":
        return None
    left, right = _difference(known, node[3][0])
    if left is None or right is None:
        return None
    found = _logarithm(known, right)
    if found is not None and known.node(found)[0] == "exp" and known.node(found)[3][0] == left:
        return _shifted(known, found)  # exp((x - max) - log(sum(exp(x - max))))
    shift = known.node(right)
    if shift[0] != "add":
        return None
    for logarithm, maximum in (shift[3], shift[3][::-1]):
        exponentials = _logarithm(known, logarithm)
        if exponentials is not None and _is_maximum(known, maximum, left) and _shifted(known, exponentials) == left:
            return left  # exp(x - (max + log(sum(exp(x - max)))))
    return None


def _difference(known: Expressions, expression: Expression) -> tuple[Expression | None, Expression | None]:
    node = known.node(expression)
    return node[3] if node[0] == "sub" else (None, None)


def _logarithm(known: Expressions, expression: Expression) -> Expression | None:
    """What is added up in the logarithm of a sum."""
    node = known.node(expression)
    inner: Any = known.node(node[3][0]) if node[0] == "log" else None
    return inner[1] if inner is not None and inner[0] == "reduce_sum" else None


def _shifted(known: Expressions, top: Expression) -> Expression | None:
    """`x` of `exp(x - max(x))`."""
    node = known.node(top)
    if node[0] != "exp":
        return None
    scores, shift = _difference(known, node[3][0])
    if scores is None or shift is None or not _is_maximum(known, shift, scores):
        return None
    return scores


def _is_maximum(known: Expressions, expression: Expression, of: Expression) -> bool:
    """Whether it is the maximum along the folded axis: of at least -inf, through which no derivative needs to go."""
    node = known.node(expression)
    if node[0] == "stop_gradient":
        return _is_maximum(known, node[3][0], of)
    if node[0] == "max":
        for least, rest in (node[3], node[3][::-1]):
            number = known.number(least)
            if number is not None and number == -math.inf:
                return _is_maximum(known, rest, of)
        return False
    return node == ("reduce_max", of)


def read_scores(known: Expressions, scores: Expression, product: Expression) -> Scores | None:
    """How scores come from a product; None where they come from it in another way."""
    if scores == product:
        return Scores(product)
    node = known.node(scores)
    if node[0] == "select_n" and len(node[3]) == 3:
        return _masked(known, node[3], product)
    if node[0] not in ("add", "sub", "mul", "div", "neg"):
        return None
    parts = [read_scores(known, part, product) for part in node[3]]
    places = [at for at, part in enumerate(parts) if part is not None]
    if len(places) != 1 or (found := parts[places[0]]) is None or found.fill is not None:
        return None
    if node[0] == "neg":
        return _scaled(found, -1.0)
    other = node[3][1 - places[0]]
    number = known.number(other)
    if node[0] in ("add", "sub"):
        if number is not None or (node[0] == "sub" and places[0] == 1):
            return None
        return replace(found, biases=(*found.biases, (other, 1.0 if node[0] == "add" else -1.0)))
    if number is None or (node[0] == "div" and places[0] == 1) or not np.isfinite(number) or number == 0:
        return None
    return _scaled(found, float(number) if node[0] == "mul" else 1 / float(number))


def _scaled(scores: Scores, factor: float) -> Scores:
    return replace(
        scores, scale=scores.scale * factor, biases=tuple((told, own * factor) for told, own in scores.biases)
    )


def _masked(known: Expressions, parts: Sequence[Expression], product: Expression) -> Scores | None:
    """A choice between scores and a number."""
    which, *cases = parts
    for place, case in enumerate(cases):
        fill = known.number(cases[1 - place])
        if fill is None or np.isnan(fill):
            continue
        found = read_scores(known, case, product)
        if found is None or (found.fill is not None and found.fill != fill):
            continue
        seen = conditions(known, which, bool(place))
        return None if seen is None else replace(found, seen=(*found.seen, *seen), fill=fill)
    return None


def conditions(known: Expressions, truth: Expression, wanted: bool) -> tuple[tuple[Expression, bool], ...] | None:
    """What has to hold for a truth to be as it is wanted, one by one; None where nothing can."""
    node, number = known.node(truth), known.number(truth)
    if number is not None:
        return () if bool(number) == wanted else None
    if node[0] == ("and" if wanted else "or"):
        parts = [conditions(known, part, wanted) for part in node[3]]
        return None if None in parts else tuple(told for part in parts for told in part or ())
    if node[0] == "not":
        return conditions(known, node[3][0], not wanted)
    if node[0] == "convert_element_type":
        inner = _converted(known, truth)
        return conditions(known, inner, wanted) if _is_truth(known, inner) else ((truth, wanted),)
    if node[0] in ("ne", "eq") and known.number(node[3][1]) is not None and not known.number(node[3][1]):
        inner = _converted(known, node[3][0])
        if _is_truth(known, inner):
            return conditions(known, inner, wanted == (node[0] == "ne"))
    if node[0] == "select_n" and len(node[3]) == 3:
        which, *cases = node[3]
        numbers = [known.number(case) for case in cases]
        if numbers[0] is not None and not numbers[0] and wanted:
            both = conditions(known, which, True), conditions(known, cases[1], True)
            return None if None in both else (*(both[0] or ()), *(both[1] or ()))
    return ((truth, wanted),)


def _converted(known: Expressions, expression: Expression) -> Expression:
    """What is converted, which for a truth changes nothing."""
    node = known.node(expression)
    return _converted(known, node[3][0]) if node[0] == "convert_element_type" else expression


def _is_truth(known: Expressions, expression: Expression) -> bool:
    """Whether it is a boolean."""
    node = known.node(expression)
    if expression in known.origins:
        return known.values.dtypes[known.origins[expression][0]] == jnp.bool_
    return node[0] in ("ge", "gt", "le", "lt", "eq", "ne")


def compared(known: Expressions, truth: Expression, wanted: bool, keys: int) -> int | None:
    """The axis of queries of `query >= key` in coordinates; None for any other condition."""
    node = known.node(truth)
    if node[0] == "read":
        return _compared_table(known.step_of(node[1]), node[2], wanted, keys)
    if node[0] not in ("ge", "gt", "le", "lt"):
        return None
    left, right = (_linear(known, part) for part in node[3])
    if left is None or right is None:
        return None
    sums = {axis: left.get(axis, 0) - right.get(axis, 0) for axis in {**left, **right}}
    word = node[0] if wanted else {"ge": "lt", "gt": "le", "le": "gt", "lt": "ge"}[node[0]]
    if word in ("le", "lt"):
        sums = {axis: -factor for axis, factor in sums.items()}
    offset = sums.pop(None, 0) - (word in ("gt", "lt"))
    kept = {axis: factor for axis, factor in sums.items() if factor}
    if offset or len(kept) != 2 or kept.pop(keys, 0) != -1:
        return None
    ((axis, factor),) = kept.items()
    return axis if factor == 1 else None


def _compared_table(step: Any, axes: Axes, wanted: bool, keys: int) -> int | None:
    """The same of an array that the function holds."""
    kernel = getattr(getattr(step, "operation", None), "kernel", None)
    own = [axis for axis in axes if axis is not None]
    if not isinstance(kernel, Table) or len(own) != 2 or keys not in own:
        return None
    array = kernel.array.squeeze()
    (queries,) = (axis for axis in own if axis != keys)
    lower = np.tril(np.ones(array.shape if own[1] == keys else array.shape[::-1], bool))
    return queries if np.array_equal((array if own[1] == keys else array.T) == wanted, lower) else None


def _linear(known: Expressions, expression: Expression) -> dict[int | None, int] | None:
    """Factors of coordinates, and a number beside None; None where it is something else."""
    node, number = known.node(expression), known.number(expression)
    if number is not None:
        return {None: int(number)} if np.issubdtype(number.dtype, np.integer) else None
    if node[0] == "at":
        return {node[1]: 1}
    if node[0] == "convert_element_type":
        kind = np.dtype(dict(node[1])["new_dtype"])
        return _linear(known, node[3][0]) if kind in (np.dtype(np.int32), np.dtype(np.int64)) else None
    if node[0] not in ("add", "sub"):
        return None
    left, right = (_linear(known, part) for part in node[3])
    if left is None or right is None:
        return None
    sign = 1 if node[0] == "add" else -1
    return {axis: left.get(axis, 0) + sign * right.get(axis, 0) for axis in {**left, **right}}
