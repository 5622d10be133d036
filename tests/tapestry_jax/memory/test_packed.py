"""Where blocks of memory lie: small programs against what XLA allots, and blocks placed by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from jax import lax

from tapestry_jax.memory.blocks import Block, joined, lent
from tapestry_jax.memory.packed import packed
from tapestry_jax.memory.program import OPAQUE, Node, Value
from tests.tapestry_jax.memory.compiled import N, assert_as_compiled


def with_gaps(x: Any, w: Any, y: Any) -> Any:
    # Two squares lie in one place; what is made of the first and what the second reads have no room beside both.
    first = x @ w
    upper, lower = jnp.sort(first[: N // 2], 0), jnp.sort(first[N // 2 :], 0)
    second = jnp.concatenate([y[:8, : N // 2].T @ upper[:8], y[:8, N // 2 :].T @ lower[:8]]) @ w
    return jnp.max(jnp.sort(second, 0) + upper[0] + lower[0])


def places_from_the_beginning(x: Any, w: Any, y: Any) -> Any:
    # What a loop gives is written into a place that is there before anything runs.
    a = jnp.sort(jnp.sort(jnp.sort(x, 0), 1), 0)
    rows = lax.scan(lambda carry, row: (carry + row, carry), a[0], a)[1]
    return jnp.max(jnp.sort(rows @ w, 0))


def sorted_in_place(x: Any, w: Any, y: Any) -> Any:
    return jnp.max(jnp.sort(x @ w) @ y)  # nobody else reads the product


def sorted_elsewhere(x: Any, w: Any, y: Any) -> Any:
    a = x @ w
    return jnp.max(jnp.sort(a) @ y) + jnp.max(a * 2)


def updated_elsewhere(x: Any, w: Any, y: Any) -> Any:
    a = jnp.exp(x @ w)
    s = jnp.max(a)
    # What is updated is not written over what it is computed from.
    return jnp.max((a * s).at[jnp.arange(N), 0].add(y[0]) @ w)


@pytest.mark.parametrize(
    "function", [with_gaps, places_from_the_beginning, sorted_in_place, sorted_elsewhere, updated_elsewhere]
)
def test_temporaries_are_those_that_the_compiler_allots(function: Callable[..., Any]):
    assert_as_compiled(function, ((N, N),) * 3)


def block(start: int, end: int, size: int, over: Block | None = None, joint: bool = False) -> Block:
    return Block(start, end, Value(size, f"uint8[{size}]"), Node(OPAQUE, (), (), ""), over, joint)


@pytest.mark.parametrize(
    ("blocks", "size"),
    [
        ([], 0),
        ([(0, 1, 4), (1, 2, 4)], 8),  # one is read while the other is written
        ([(0, 1, 4), (2, 3, 4)], 4),
        # Both large ones lie at the bottom: what lives from one to the other has no room but above.
        ([(0, 3, 4), (6, 9, 4), (2, 5, 2), (2, 5, 2), (4, 6, 2), (4, 6, 2)], 12),
        # The smallest gap with room is taken: the one of 2 under what is placed already, and that of 4 stays.
        ([(0, 9, 8), (0, 3, 4), (0, 9, 6), (0, 3, 2), (0, 9, 5), (4, 9, 2), (4, 9, 4)], 25),
        ([(0, 1, 4096), (0, 1, 4)], 4096),  # what is tiny fills gaps
    ],
)
def test_blocks_take_what_lies_between_them_as_well(blocks, size):
    assert packed([block(*each) for each in blocks]) == size


def test_what_outputs_lend_goes_to_the_largest_and_to_one_at_a_time():
    large, small, later, beside = block(0, 2, 4), block(0, 1, 2), block(3, 4, 2), block(2, 4, 2)
    assert lent([small, large, later, beside], [(4, 5)]) == [small, beside]
    assert lent([large], [(4, 2)]) == lent([large], [(3, 5)]) == [large]


def test_what_is_written_over_another_shares_its_place_unless_it_is_updated_later():
    first = block(0, 2, 4)
    second = block(2, 4, 4, first)
    assert [(each.start, each.end) for each in joined([first, second])] == [(0, 4)]
    assert lent([first, second], [(4, 5)]) == []
    assert len(joined([first, block(2, 4, 4, first, True)])) == 2
    assert len(joined([second])) == 1
