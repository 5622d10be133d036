"""Gradients of scans beside infinities: what no prefix is made of is not merged, since a slope of 0 would be NaN."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from combinators.numerics import row_scan
from tests.damaged import damaged
from tests.simulated.sampled import in_numpy

SIZE = 11
PREFIXES = {
    (reverse, exclusive): np.array(
        [[(j < t if not reverse else j > t) or (j == t and not exclusive) for j in range(SIZE)] for t in range(SIZE)]
    )
    for reverse in (False, True)
    for exclusive in (False, True)
}


def slopes(x: np.ndarray, prefixes: np.ndarray) -> np.ndarray:
    """Of the sum of all products over prefixes: of each element the products of the others."""
    found = np.zeros(SIZE)
    for row in prefixes:
        for at in np.flatnonzero(row):
            found[at] += np.prod(x[row & (np.arange(SIZE) != at)])
    return found


def compare(scan: Any, x: np.ndarray, prefixes: np.ndarray) -> None:
    found = in_numpy(jax.grad(lambda x: jnp.sum(scan(x))))(x)
    np.testing.assert_allclose(found, slopes(x, prefixes), rtol=1e-6)


def product(reverse: bool, exclusive: bool) -> Any:
    return tp.scan(tp.aggregators.Prod(), "t -> t", over="t", reverse=reverse, exclusive=exclusive)


def numbers(at: int) -> np.ndarray:
    x = np.random.default_rng(at).integers(1, 3, SIZE).astype(np.float32)
    x[at] = np.inf
    return x


@pytest.mark.parametrize("rows", [row_scan.ROWS, row_scan.Rows(4, 8)], ids=["tree", "rows"])
@pytest.mark.parametrize(("reverse", "exclusive"), PREFIXES)
def test_slopes_of_prefixes_are_those_of_their_own_steps(
    reverse: bool, exclusive: bool, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_scan, "ROWS", rows)
    for at in (0, 5, SIZE - 1):
        compare(product(reverse, exclusive), numbers(at), PREFIXES[reverse, exclusive])


def test_padding_is_not_merged_with_what_comes_before() -> None:
    scan, x = product(False, False), numbers(0)
    plan = tp.plan(tp.trace(scan, x), tp.mesh(data=4), {"t": "data"})
    compare(plan.compile(), x, PREFIXES[False, False])


def test_a_total_that_comes_before_no_row_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_scan, "ROWS", row_scan.Rows(4, 8))
    # As where somebody reads the total.
    planted = damaged(row_scan.row_scan, "reverse, read, flagged", "reverse, True, flagged")
    with planted, pytest.raises(AssertionError):
        compare(product(False, False), numbers(SIZE - 1), PREFIXES[False, False])
