"""Exchanges by tables are refused where a device would not have what it reads, whatever answers at the ends."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_jax.planning.arrivals.tables import table_fault
from tapestry_jax.planning.geometry.halo import NeighbourExchange, neighbour_exchange
from tapestry_jax.planning.geometry.layout import Cut, Window
from tapestry_jax.planning.geometry.pieces import Piece
from tests.boundaries import PADS
from tests.exchanged import simulated
from tests.thoroughly import some

Problem = tuple[Cut, Cut, int, int]


@st.composite
def problems(draw: Any) -> Problem:
    """Windows that reach over several devices, and over the whole axis more than once."""
    devices, block = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    size = draw(st.integers(1, block * devices))
    window = Window(draw(st.integers(-14, 6)), draw(st.integers(1, 20)), 1, size, draw(st.sampled_from(list(PADS))))
    return Cut(("x",), block), Cut(("x",), block, window), size, devices


def _is_right(exchange: NeighbourExchange, problem: Problem) -> bool:
    """Whether every device has what its indices read, held against `np.pad`."""
    source, cut, size, devices = problem
    assert cut.window is not None
    cells = np.arange(1.0, size + 1)
    around = 40 * size
    padded = np.pad(cells, around, mode=PADS[cut.window.mode])
    blocks = np.pad(cells, (0, source.block * devices - size)).reshape(devices, source.block)
    for device, got in enumerate(simulated(exchange, list(blocks))):
        count = min(cut.block, size - device * cut.block) - 1 + cut.window.width
        first = around + device * cut.block + cut.low
        if count >= cut.window.width and (got[:count] != padded[first : first + count]).any():
            return False
    return True


@settings(max_examples=some(150))
@given(problems())
def test_what_is_right_is_proved(problem: Problem) -> None:
    exchange = neighbour_exchange(*problem)
    assert _is_right(exchange, problem)
    assert table_fault(exchange, *problem) is None


@settings(max_examples=some(300))
@given(problems(), st.randoms(use_true_random=False))
def test_what_is_proved_is_right(problem: Problem, rng: Random) -> None:
    exchange = neighbour_exchange(*problem)
    at = rng.randrange(len(exchange.held))
    held = list(exchange.held)
    held[at] = _damaged(held[at], rng)
    wrong = NeighbourExchange(exchange.hops, tuple(held), exchange.inside)
    if table_fault(wrong, *problem) is None:
        assert _is_right(wrong, problem)


def _damaged(piece: Piece, rng: Random) -> Piece:
    """Another start or place on one device, or another mask; within what there is."""
    if piece.table is None:
        device = rng.randrange(len(piece.starts))
        starts = [*piece.starts]
        starts[device] = max(starts[device] - rng.randint(0, 2), 0)
        return replace(piece, starts=tuple(starts), masked=rng.choice([piece.masked, False]))
    table: Any = piece.table.copy()
    row, column = (rng.randrange(length) for length in table.shape)
    table[row, column:] = rng.randrange(int(table.max()) + 1)
    return replace(piece, table=table)


@pytest.mark.parametrize("mode", list(PADS))
def test_two_runs_in_one_place_must_agree(mode: str) -> None:
    problem = Cut(("x",), 4), Cut(("x",), 4, Window(-2, 5, 1, 12, mode)), 12, 3
    exchange = neighbour_exchange(*problem)
    first = exchange.held[0]
    assert table_fault(exchange, *problem) is None
    for at in (first.at + 1, 5):
        # Behind all others in one case: what is wanted is found before it is met.
        wrong = NeighbourExchange(exchange.hops, (*exchange.held, replace(first, at=at)), exchange.inside)
        assert table_fault(wrong, *problem) is not None


def test_places_in_front_of_what_a_table_points_into_hold_nothing() -> None:
    # Backwards from place 1 of the range [2, 6) of a block: below place 0 lies the cell of nobody, and not cell 1.
    problem = None, Cut(("x",), 3, Window(-2, 3, 1, 3, "reflect")), 6, 1
    right = Piece(0, 5, 0, (), np.array([[2, 1, 0, 1, 2]]), ((0, 0, 6),), masked=False)
    wrong = replace(right, table=np.array([[0, -1, -2, -1, 0]]), ranges=((0, 2, 6),))
    for piece, is_right in ((right, True), (wrong, False)):
        fault = table_fault(NeighbourExchange((), (piece,), ((2, 8),)), *problem)
        assert (fault is None) == is_right


@pytest.mark.parametrize("mode", ["edge", "reflect", "periodic"])
def test_the_proof_costs_what_bends_and_not_what_is_read(mode: str) -> None:
    # Cell by cell the runs of every cell that a boundary answers were sought among those of all others.
    size = 8 * 2**14
    problem = Cut(("x",), 2**14), Cut(("x",), 2**14, Window(-(2**13), 2**14, 1, size, mode)), size, 8
    exchange = neighbour_exchange(*problem)
    began = time.process_time()
    assert table_fault(exchange, *problem) is None
    assert time.process_time() - began < 0.3
