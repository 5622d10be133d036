"""What is true of every operation is asked where one is made, whoever makes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from combinators.operations.operation import Operation

CELLS = tp.Map(jnp.sin, "a b -> a b").operation
FOLD = tp.Reduce(lambda x: x.sum(0), "a b -> b", tp.monoids.Sum).operation
SCAN = tp.Scan(tp.monoids.Sum, "a b -> a b", over="a").operation
WINDOW = tp.Map(lambda x: x[1:] + x[:-1], "(a+[w]-1) b -> a b", sizes={"w": 2}, boundary="zero").operation
PLACES = tp.Map(lambda x, p: x * p, "a, @a -> a", pad=[0]).operation

WRONG: dict[str, tuple[Operation, dict[str, Any], str]] = {
    "a map that folds": (FOLD, {"monoid": None}, "folds `a` without a monoid"),
    "a map with a state": (CELLS, {"present": jnp.sin}, "is a map, which has no `present`"),
    "a map from the end": (CELLS, {"reverse": True}, "is a map, which has no `reverse`"),
    "a map over something": (CELLS, {"over": "a"}, "is a map, which has no `over`"),
    "a fold without the first": (FOLD, {"exclusive": True}, "is a fold, which has no `exclusive`"),
    "no monoid": (FOLD, {"monoid": "Sum"}, "folds `a` and needs a monoid for it"),
    "a scan of what is gone": (FOLD, {"over": "a"}, "cannot scan over `a`"),
    "a scan that folds another": (FOLD, {"over": "b"}, "cannot scan over `b`"),
    "a scan of nothing": (SCAN, {"over": "c"}, "cannot scan over `c`"),
    "a scan with a boundary": (SCAN, {"boundary": "zero"}, "is a scan, which has no `boundary`"),
    "a scan with neutral values": (SCAN, {"pad": (0,)}, "is a scan, which has no `pad`"),
    "two sizes": (WINDOW, {"sizes": (("w", 2), ("w", 3))}, "two sizes of a dimension"),
    "no boundary": (WINDOW, {"boundary": "nothing"}, "unknown boundary 'nothing'"),
    "one that is none of several": (WINDOW, {"boundary": ("zero", 3)}, "unknown boundary 3"),
    "neutral values of too many": (PLACES, {"pad": (0, None, None)}, "declares 3 neutral values for 1 operands"),
    "one of a coordinate": (PLACES, {"pad": (0, 0)}, "declares 2 neutral values for 1 operands"),
    "an axis twice": (FOLD, {"carrier": (("b", "b"),)}, "has the axis `b` twice"),
    "what is folded": (FOLD, {"carrier": (("a", "b"),)}, "has the axis `a`, which is folded"),
    "a state that is not scanned": (SCAN, {"carrier": (("b",),)}, "does not have `a`, which is scanned"),
    "a state of a map": (CELLS, {"dense": (tp.Dense(jnp.sin, gives="state"),)}, "gives a state, and a map has none"),
    "what is no dimension": (CELLS, {"dense": (tp.Dense(jnp.sin, whole=("c",)),)}, "wants `c` whole"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_operation_is_is_refused(name: str) -> None:
    operation, fields, told = WRONG[name]
    with pytest.raises(tp.SignatureError) as error:
        replace(operation, **fields)
    assert told in str(error.value)


def test_neutral_values_end_in_none_for_each_coordinate_or_say_nothing_of_them() -> None:
    assert [replace(PLACES, pad=pad).pad for pad in ((0,), (0, None))] == [(0,), (0, None)]


def test_what_is_merged_by_another_monoid_than_its_kernel_folds_by_is_refused() -> None:
    fold = tp.trace(tp.fold(tp.aggregators.Max(), "a b -> b"), tp.TensorType({"a": 4, "b": 4})).nodes[1].operation
    with pytest.raises(tp.SignatureError, match="merged by another monoid"):
        replace(fold, monoid=tp.monoids.Sum)
    assert replace(fold, name="other").monoid == fold.monoid
    # Where nothing is folded nothing is merged.
    cells = tp.trace(tp.fold(tp.aggregators.Max(), "a b -> a b"), tp.TensorType({"a": 4, "b": 4})).nodes[1].operation
    assert replace(cells, monoid=tp.monoids.Sum).monoid == tp.monoids.Sum


def test_a_kernel_that_stands_for_another_is_refused() -> None:
    kinds = ({"q": 4, "d": 4}, {"keys": 4, "d": 4}, {"keys": 4, "e": 4})
    attention = tp.trace(tp.attention, *map(tp.TensorType, kinds)).nodes[-1].operation
    twice = tp.trace(lambda q, k, v: tp.attention(q, k, v, scale=0.25), *map(tp.TensorType, kinds)).nodes[-1].operation
    with pytest.raises(tp.SignatureError, match="computes something else than its own"):
        replace(attention, dense=twice.dense)
