"""Repetitions until a condition holds, whose turns are passes over rows, and whose state stays on the devices.

Whole numbers, beside NumPy: a turn too few or too many has another state, and another number of turns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.streaming.kept import checkpoint
from tests.tapestry_jax.streaming.kept.stops import Stop
from tests.tapestry_jax.streaming.whole import whole

agg = tp.aggregators
ROWS = np.random.default_rng(0).integers(-3, 4, (24, 3)).astype(np.int32)
START = np.ones(3, np.int32)
MOST = 6
reduced = tp.Map(lambda a: a % 101)
less = tp.Map(lambda a, b: a - b, "row c, c -> row c")


def solver(limit: int) -> Any:
    """Turns of two passes each, and a pass behind them: every row less the state, the turns, and whether it held."""

    @tp.program("row c, c -> row c, , ")
    def program(x, v):
        def turn(w, x):
            below = less(x, tp.fold(agg.Max(), "row c -> c")(x))
            return reduced(tp.einsum("row c, row -> c")(below, tp.einsum("row c, c -> row")(below, w)))

        last = tp.iterate(turn, until=lambda w: tp.fold(agg.Max(), "c -> ")(w) > limit, at_most=MOST)(v, x)
        return less(x, last.state), last.steps, last.converged

    return program


def expected(limit: int) -> tuple[np.ndarray, int, bool]:
    state, steps, below = START, 0, ROWS - ROWS.max(0)
    while steps < MOST and not state.max() > limit:
        state, steps = below.T @ (below @ state) % 101, steps + 1
    return ROWS - state, steps, bool(state.max() > limit)


def equal(found: Any, wanted: Any) -> None:
    for each, want in zip(map(whole, jax.tree.leaves(found, is_leaf=_is_stored)), wanted, strict=True):
        np.testing.assert_array_equal(each, want)


def _is_stored(leaf: Any) -> bool:
    return hasattr(leaf, "read")


# Before the first turn, in the middle, and never.
@pytest.mark.parametrize(("limit", "steps"), [(0, 0), (90, 4), (100, MOST)])
def test_a_loop_ends_where_its_condition_holds(limit: int, steps: int) -> None:
    job = tp.stream(solver(limit), {"row": tp.chunks(size=5)}, (ROWS, START))
    assert expected(limit)[1] == steps
    equal(job.run(), expected(limit))
    # All turns stand in the plan; those that are left out read nothing.
    assert len(job.split.passes) == 2 * MOST + 1
    assert job.metrics.stage("read").bytes == ROWS.nbytes * (2 * steps + 1)


def test_a_loop_that_is_stopped_at_every_state_ends_with_the_same_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", ROWS)
    program, write, left = solver(90), checkpoint.save, [0]

    def stopping(*given: Any) -> int:
        left[0] -= 1
        written = write(*given)
        if left[0] == 0:
            raise Stop
        return written

    monkeypatch.setattr(checkpoint, "save", stopping)
    stops = 0
    while True:
        left[0] = 2
        sources, sinks = (tp.open(tmp_path / "x.npy"), START), {"y/0": tp.create(tmp_path / "y.npy")}
        over = {"row": tp.chunks(size=(4, 2)[stops % 2])}
        try:
            found = tp.stream(program, over, sources, sinks, checkpoint=tmp_path / "run", save_every=5).run()
            break
        except Stop:
            stops += 1
            assert stops < 90
    equal(found, expected(90))
    assert stops > 6
