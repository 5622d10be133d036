"""How many bytes of chunks are under way: pieces of boxes, their order, and errors of one of them."""

from __future__ import annotations

import math
from concurrent.futures import Future
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from combinators.errors import FormatError
from tapestry_jax.storage.chunked.gate import Gate, pieces


@st.composite
def boxes(draw: Any) -> Any:
    axes = draw(st.integers(0, 3))
    chunks = tuple(draw(st.integers(1, 5)) for _ in range(axes))
    starts = [draw(st.integers(0, 9)) for _ in range(axes)]
    return tuple((start, start + draw(st.integers(1, 12))) for start in starts), chunks


@given(boxes(), st.integers(1, 60))
def test_pieces_cover_a_box_once_and_touch_few_chunks(drawn: Any, most: int) -> None:
    box, chunks = drawn
    seen = np.zeros([stop for _, stop in box], int)
    for piece, cost in pieces(box, chunks, 1, most):
        seen[tuple(slice(*each) for each in piece)] += 1
        count = math.prod(-(-stop // size) - start // size for (start, stop), size in zip(piece, chunks, strict=True))
        assert cost == count * math.prod(chunks)
        assert cost <= most or count == 1
    inside = tuple(slice(*each) for each in box)
    assert (seen[inside] == 1).all()
    assert seen.sum() == seen[inside].size


def _error(found: Exception) -> FormatError:
    return FormatError(str(found))


def test_gate_begins_what_fits_in_order_and_one_in_any_case() -> None:
    begun, theirs = list[int](), [Future[None]() for _ in range(5)]

    def part(number: int, cost: int) -> Any:
        return cost, lambda: begun.append(number) or theirs[number]

    gate = Gate(10)
    ours = gate.begin([part(n, cost) for n, cost in enumerate((4, 6, 5, 30, 1))], _error, lambda: None)
    assert begun == [0, 1]
    theirs[1].set_result(None)
    assert begun == [0, 1, 2]
    theirs[0].set_result(None)
    assert begun == [0, 1, 2]
    theirs[2].set_result(None)
    assert begun == [0, 1, 2, 3]
    theirs[3].set_result(None)
    assert not ours.done()
    theirs[4].set_result(None)
    assert ours.result(0) is None


def test_gate_tells_an_error_once_all_parts_are_done() -> None:
    first, second = Future[None](), Future[None]()

    def broken() -> Any:
        raise ValueError("not begun")

    gate = Gate()
    ours = gate.begin([(1, lambda: first), (1, broken), (1, lambda: second)], _error, lambda: None)
    first.set_result(None)
    assert not ours.done()
    second.set_exception(OSError("late"))
    with pytest.raises(FormatError, match="not begun"):
        ours.result(0)
    assert gate.begin([], _error, lambda: None).result(0) is None


def test_gate_goes_on_behind_thousands_that_are_done_at_once() -> None:
    done: Future[None] = Future()
    done.set_result(None)
    assert Gate(1).begin([(1, lambda: done)] * 5000, _error, lambda: None).result(0) is None
