"""Where blocks of memory lie: small programs against what XLA allots, and blocks placed by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
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
    parts = w[: N // 2, : N // 2] @ upper, w[: N // 2, N // 2 :] @ lower
    return jnp.max(jnp.sort(jnp.concatenate(parts) @ y, 0))


def places_from_the_beginning(x: Any, w: Any, y: Any) -> Any:
    # What a loop gives is written into a place that is there before anything runs.
    rows = jnp.sort(jnp.concatenate([x, w], 1), 0)[:, :N]
    return jnp.max(jnp.sort(lax.scan(lambda carry, row: (carry + row, carry), x[0], rows)[1] @ w, 0))


def sorted_in_place(x: Any, w: Any, y: Any) -> Any:
    return jnp.max(jnp.sort(x @ w) @ y)  # nobody else reads the product


def sorted_elsewhere(x: Any, w: Any, y: Any) -> Any:
    a = x @ w
    return jnp.max(jnp.sort(a) @ y) + jnp.max(a * 2)


def updated_elsewhere(x: Any, w: Any, y: Any) -> Any:
    # What is updated is not written over what it is computed from.
    def loss(w: Any) -> Any:
        logits = x @ w
        return jnp.mean(jax.nn.logsumexp(logits, 1) - jnp.take_along_axis(logits, jnp.arange(N)[:, None], 1)[:, 0])

    return jnp.max(jax.grad(loss)(w))


def sent_in_parts(x: Any) -> Any:
    turned = jnp.sort(lax.all_to_all(jnp.sort(x, 0), "data", 1, 0, tiled=True), 1)
    return jnp.sort(lax.all_to_all(jnp.sort(turned, 0), "data", 0, 1, tiled=True), 1)


@pytest.mark.parametrize(
    "function", [with_gaps, places_from_the_beginning, sorted_in_place, sorted_elsewhere, updated_elsewhere]
)
def test_temporaries_are_those_that_the_compiler_allots(function: Callable[..., Any]):
    assert_as_compiled(function, ((N, N),) * 3)


def test_parts_of_an_all_to_all_are_buffers_of_their_own_on_both_sides(mesh8: Any):
    spec = jax.P("data", None)
    assert_as_compiled(jax.shard_map(sent_in_parts, mesh=mesh8, in_specs=spec, out_specs=spec), ((8 * N, N),))


def block(start: int, end: int, size: int, over: Block | None = None, joint: bool = False) -> Block:
    return Block(start, end, Value(size, f"uint8[{size}]"), Node(OPAQUE, (), (), ""), over, end, joint)


@pytest.mark.parametrize(
    ("blocks", "size"),
    [
        ([], 0),
        ([(0, 1, 4), (1, 2, 4)], 8),  # one is read while the other is written
        ([(0, 1, 4), (2, 3, 4)], 4),
        # Both large ones lie at the bottom: what lives from one to the other has no room but above.
        ([(0, 3, 4), (6, 9, 4), (2, 5, 2), (2, 5, 2), (4, 6, 2), (4, 6, 2)], 12),
        ([(0, 1, 4), (4, 5, 4), (1, 3, 2), (1, 3, 2), (3, 4, 2), (3, 4, 2)], 8),  # unless the longest come first
        # The smallest gap with room is taken: that of 14 for 12, and that of 16 has room for two of 8.
        ([(5, 14, size) for size in (20, 15, 13)] + [(0, 9, 16), (0, 9, 14), (10, 19, 12), *[(10, 19, 8)] * 2], 78),
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
