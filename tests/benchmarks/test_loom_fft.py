"""The pencil FFT at a small size: what all programs compute, and what ours sends beside XLA's. No times."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks import loom, loom_fft
from benchmarks.costs import collective_bytes
from tests.contract import table

SIZE = 32


@pytest.mark.parametrize(("back", "exchanges"), [(False, 1), (True, 2)], ids=["rows to columns", "rows to rows"])
def test_pencil_fft_exchanges_and_gathers_nothing(back, exchanges):
    case = loom_fft.case(SIZE, back)
    built = loom.compiled(case)
    expected = np.fft.fft2(np.asarray(case.arguments[0]))
    for program in (built.ours, built.automatic, built.by_hand):
        np.testing.assert_allclose(np.asarray(program(*built.arguments)), expected, rtol=1e-5, atol=1e-4)
    piece = SIZE * SIZE * 8 // 8
    assert loom.executions(built.ours, built.mesh) == {"all-to-all": exchanges}
    assert collective_bytes(built.ours, built.mesh) == {"all-to-all": exchanges * piece}
    assert table(built.plan.collectives()) == {("all-to-all", frozenset({"data"})): exchanges * piece}
    # Both are what is written by hand; XLA by itself transforms the whole image on every device.
    assert loom.executions(built.by_hand, built.mesh) == loom.executions(built.ours, built.mesh)
    assert collective_bytes(built.automatic, built.mesh)["all-gather"] == 8 * piece
    assert loom.temporaries(built.ours) <= loom.temporaries(built.automatic) / 4
    assert jax.tree.leaves(built.ours.output_shardings)[0].is_equivalent_to(
        jax.tree.leaves(built.by_hand.output_shardings)[0], 2
    )
