"""What values cost: as often as they are there, and no change of layout that does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tapestry_jax.searching.exact.model import Value
from tapestry_jax.searching.exact.values import times_alike
from tests.tapestry_jax.searching.exact.modelled import abstract, modelled, problem_of

ONE = Value(
    maker=2,
    labels=(0, 1),
    readers=(),
    seconds={(0, 0): 1.0, (0, 1): 0.5},
    common=(2.0,),
    shares={(0, 0): (0,)},
    saved={(0, 1): (3.0, 4.0)},
    kept={(0, 0): 0},
    sizes=(5.0,),
    behind={(0, 0): ((1, 6.0),)},
    together={(0, 0): ("a gather",)},
)


def test_seconds_and_bytes_of_values_that_are_alike_are_added() -> None:
    assert times_alike(ONE, 1) == ONE
    assert times_alike(ONE, 3) == replace(
        ONE,
        seconds={(0, 0): 3.0, (0, 1): 1.5},
        common=(6.0,),
        saved={(0, 1): (9.0, 12.0)},
        sizes=(15.0,),
        behind={(0, 0): ((1, 18.0),)},
    )


KIB = 2**10
PIECE, WHOLE = 2 * KIB, 16 * KIB


def sorted_twice(x: Any) -> Any:
    """Rows and then columns, each of which is needed whole: between them lie two layouts, and two are read."""
    along_rows = tp.Map(lambda x: jnp.sort(x, 1), "a [b] -> a [b]")
    return tp.Map(lambda x: jnp.sort(x, 0), "[a] b -> [a] b")(along_rows(x))


@pytest.mark.parametrize(
    ("room", "of_argument", "between"),
    [
        (WHOLE + PIECE, 6, {(0, 0), (0, 1), (1, 0), (1, 1)}),
        # What is gathered does not fit beside the piece of which it is made.
        (WHOLE + PIECE - 1, 6, {(0, 0), (0, 1), (1, 1)}),
        # Arguments are counted where they are, so that what comes is all that is made.
        (WHOLE, 6, {(0, 0), (0, 1), (1, 1)}),
        (WHOLE - 1, 4, {(0, 0), (0, 1), (1, 1)}),
        (2 * PIECE, 4, {(0, 0), (0, 1), (1, 1)}),
        # To stay as it is takes nothing, nor does a slice.
        (2 * PIECE - 1, 4, {(0, 0), (0, 1)}),
    ],
)
def test_what_is_sent_and_what_comes_fit_there_together(room: int, of_argument: int, between: Any) -> None:
    graph = tp.trace(sorted_twice, tp.TensorType({"a": 64, "b": 64}, jnp.float32))
    argument, value = modelled(problem_of(graph, abstract(d=8)), memory=PIECE + room).model.values
    assert (len(argument.seconds), set(value.seconds)) == (of_argument, between)
