"""What the parts of a frame make of which leaves is the same for every size of what is mapped over."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from combinators.graphs.nodes import Apply
from tapestry_jax.planning.folding import framed as subject
from tapestry_jax.planning.folding.framed import framed, of_few_cells
from tapestry_jax.planning.folding.merges import Merge, merges

FOLDS = {
    "moments": tp.fold(tp.aggregators.Moments(), "row k col -> row col"),
    "logsumexp": tp.fold(tp.aggregators.LogSumExp(), "row k col -> row col"),
    "covariance": tp.fold(tp.aggregators.Covariance(), "row k [col] -> row"),
}


def state_of(fold: Any, rows: int, columns: int) -> tuple[Merge, list[Any], list[Any]]:
    """How the state of a fold merges: by a frame; with the axes of its leaves and their types."""
    graph = tp.trace(fold, tp.TensorType({"row": rows, "k": 4, "col": columns}))
    shaped = next(graph.shaped(number) for number, node in enumerate(graph.nodes) if isinstance(node, Apply))
    assert shaped.operation.monoid is not None
    (merge,) = merges(shaped)
    assert merge.kind == "frame"
    return merge, list(shaped.carrier), list(shaped.state)


@pytest.mark.parametrize("fold", FOLDS.values(), ids=list(FOLDS))
@pytest.mark.parametrize(
    "sizes", [(1, 3), *(pytest.param(each, marks=pytest.mark.thorough) for each in ((2, 1), (7, 5)))]
)
def test_framed_is_what_blocks_of_their_own_size_say(fold, sizes):
    merge, carrier, blocks = state_of(fold, *sizes)
    own = subject._framed(merge, tuple(carrier), tuple(blocks))  # nothing made smaller
    assert framed(merge, carrier, blocks) == own


def test_framed_is_traced_once_for_many_sizes():
    subject._framed.cache_clear()
    for size in (2, 3, 64, 4096):
        merge, carrier, blocks = state_of(FOLDS["logsumexp"], size, 8)
        assert all(each.shape == (size, 8) for each in framed(merge, carrier, blocks).addends)
    assert subject._framed.cache_info().misses == 1


def test_of_few_cells_leaves_what_a_cell_has_of_its_own():
    leaves = [jax.ShapeDtypeStruct((8, 6), jnp.float32), jax.ShapeDtypeStruct((1, 8), jnp.int32)]
    few = of_few_cells([("row", "~0"), ("col", "row")], leaves)
    assert [each.shape for each in few] == [(2, 6), (1, 2)]
    assert [each.dtype for each in few] == [each.dtype for each in leaves]
