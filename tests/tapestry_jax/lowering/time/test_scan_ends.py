"""What scans begin with and end in, of states whose cells have axes of their own: the Python loop under every plan."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp


def _later(left: Any, right: Any) -> Any:
    """The last row that is not empty: of a whole row, and not of its entries."""
    return jnp.where(jnp.any(right != 0), right, left)


FILL = tp.Monoid(0.0, _later, name="Fill")
ROWS = np.array([[0, 0], [1, 0], [0, 0], [0, 2], [0, 0]], np.float32)
MATRICES = np.random.default_rng(4).standard_normal((5, 2, 2)).astype(np.float32)
PRODUCT = tp.Monoid(lambda kind: jnp.eye(2, dtype=kind.dtype), jnp.dot)
SEVEN = np.array([7, 8], np.float32)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("monoid", "signature", "steps", "first"),
    [
        (FILL, "t [c] -> t [c]", ROWS, SEVEN),
        (tp.monoids.MatrixProduct, "t [i] [j] -> t [i] [j]", MATRICES, MATRICES[3]),
        (PRODUCT, "t [i] [j] -> t [i] [j]", MATRICES, MATRICES[3]),
    ],
)
def test_the_ends_of_states_of_one_leaf_are_merged_whole(
    mesh8: Any, monoid: tp.Monoid, signature: str, steps: Any, first: Any, reverse: bool, exclusive: bool
) -> None:
    def both(steps: Any, first: Any) -> Any:
        scan = tp.Scan(monoid, signature, over="t", init=first, final=True, reverse=reverse, exclusive=exclusive)
        return scan(steps)

    total, before, after = jnp.asarray(first), [], []
    for step in steps[::-1] if reverse else steps:
        before.append(total)
        total = monoid.merge(step, total) if reverse else monoid.merge(total, step)
        after.append(total)
    expected = jnp.stack((before if exclusive else after)[:: -1 if reverse else 1])
    graph = tp.trace(both, steps, first)
    for found in (graph, tp.plan(graph, mesh8, {}).compile(), tp.plan(graph, mesh8, {"t": "data"}).compile()):
        prefixes, last = found(steps, first)
        np.testing.assert_allclose(prefixes, expected, rtol=2e-5, atol=1e-5)
        np.testing.assert_allclose(last, total, rtol=2e-5, atol=1e-5)
