"""Kernels of more cells than are ever run are held to their boxes as well: on fewer, where that is the same code."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import combinators as tp
from combinators.errors import KernelError, SignatureError
from combinators.operations.boxes import check_numbers, derivative_problem
from combinators.operations.results import Struct
from combinators.operations.shaped import block_structs, shape

MAPPED, FOLDED, IN_ROWS = "rows cols -> rows cols", "rows cols -> cols", "rows [cols] -> rows [cols]"
MANY = {"rows": 6 << 20, "cols": 4}
PART = MANY["rows"] // 4


def in_groups(x: Any) -> Any:
    """Which takes rows by the thousand."""
    return jax.lax.scan(lambda c, group: (c + group.sum(0), None), 0 * x[0], x.reshape(-1, 1024, x.shape[1]))[0]


def root_of_groups(x: Any) -> Any:
    return jnp.sqrt(in_groups(x * x))


def in_two_ways(x: Any) -> Any:
    return x * 2 if len(x) > PART else x + x


def two_functions(x: Any) -> Any:
    return x * 2 if len(x) > PART else x


def a_sum_that_stops(x: Any) -> Any:
    return jnp.where(jnp.arange(len(x))[:, None] < PART + 7, x, 0).sum(0)


def of_pairs(x: Any) -> Any:
    """Another program of every number of rows."""
    return jax.lax.associative_scan(jnp.add, x)[-1]


def of_products(x: Any) -> Any:
    return of_pairs(x) ** 2


TRUE = {
    "the last of a sort": tp.Reduce(lambda x: jnp.sort(x, 0)[-1], FOLDED, tp.monoids.Max),
    "groups": tp.Reduce(in_groups, FOLDED, tp.monoids.Sum),
    "two ways": tp.Map(in_two_ways, MAPPED),
    "pairs": tp.Reduce(of_pairs, FOLDED, tp.monoids.Sum),
    "rows": tp.Map(lambda x: jnp.sort(x, 1), IN_ROWS),
    "a count": tp.Reduce(lambda x: jnp.full(x.shape[1:], len(x), jnp.float32), FOLDED, tp.monoids.Sum),
    "a count beside a sum": tp.Reduce(
        lambda x: jnp.stack([x.sum(0), 0 * x[0] + len(x)]), "rows [cols] -> [k] [cols]", tp.monoids.Sum, sizes={"k": 2}
    ),
}
FALSE = {
    "a root of a sum": tp.Reduce(lambda x: jnp.sqrt((x * x).sum(0)), FOLDED, tp.monoids.Sum),
    "another reduction": tp.Reduce(lambda x: x.max(0), FOLDED, tp.monoids.Sum),
    "one cell of a fold": tp.Reduce(lambda x: x[0], FOLDED, tp.monoids.Max),
    "a root of groups": tp.Reduce(root_of_groups, FOLDED, tp.monoids.Sum),
    "two functions": tp.Map(two_functions, MAPPED),
    "two functions of a sum": tp.Reduce(lambda x: two_functions(x).sum(0), FOLDED, tp.monoids.Sum),
    "products of pairs": tp.Reduce(of_products, FOLDED, tp.monoids.Sum),
    "a roll": tp.Map(lambda x: jnp.roll(x, 1, 0), MAPPED),
}


def held(arrow: Any, sizes: dict[str, int] = MANY, rows: int = PART) -> None:
    """Hold the kernel of a leaf to a box of some rows; nothing is as large as its operand."""
    operation = arrow.operation
    types = (Struct(tuple(sizes.values()), jnp.float32),)
    shaped = shape(operation, types)
    box = {**shaped.sizes, "rows": rows}
    check_numbers(
        shaped,
        operation.kernel,
        block_structs(shaped.signature, types, box),
        box,
        is_state=operation.kind != "map",
    )


@pytest.mark.parametrize("name", FALSE)
def test_kernels_of_many_cells_that_compute_something_else_on_boxes_are_refused(name: str) -> None:
    with pytest.raises(KernelError, match="such boxes do not come to what it gives for"):
        held(FALSE[name])


@pytest.mark.parametrize("boxes", [4, 20, 3])
@pytest.mark.parametrize("name", TRUE)
def test_other_ways_of_many_cells_to_the_same_are_taken(name: str, boxes: int) -> None:
    many = {**MANY, "rows": 20 << 19}
    held(TRUE[name], many, many["rows"] // boxes // 1024 * 1024)


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [({"rows": 1 << 40, "cols": 2}, 1 << 20), ({"rows": 4, "cols": 1 << 30}, 1), ({"rows": 9_999_991, "cols": 3}, 77)],
    ids=["many boxes", "many columns", "a last box of fewer"],
)
def test_they_are_of_any_sizes(sizes: dict[str, int], rows: int) -> None:
    held(TRUE["the last of a sort"], sizes, rows)
    for name in ("a root of a sum", "another reduction"):
        with pytest.raises(KernelError, match="such boxes do not come to what it gives for"):
            held(FALSE[name], sizes, rows)


@pytest.mark.parametrize(("dtype", "rows"), [(jnp.float32, 1 << 24), (jnp.float32, 1 << 27), (jnp.bfloat16, 1000)])
def test_a_mean_of_more_rows_than_floats_count_is_refused(dtype: Any, rows: int) -> None:
    """One row more is the same number."""
    for kernel in (lambda x: x.mean(0), lambda x: x.sum(0) / x.shape[0]):
        with pytest.raises(SignatureError, match="divides by how many cells of `rows`"):
            shape(tp.Reduce(kernel, FOLDED, tp.monoids.Sum).operation, (Struct((rows, 2), dtype),))


def test_counts_of_an_aggregator_are_those_of_its_boxes() -> None:
    mean = tp.trace(tp.fold(tp.aggregators.Mean(), FOLDED), jax.ShapeDtypeStruct((10_240, 1024), jnp.float32))
    for rows in (512, 1024, 2560):
        held(mean.nodes[-1], {"rows": 10_240, "cols": 1024}, rows)


@pytest.mark.parametrize(("part", "is_even"), [(1_250_000, True), (1_250_001, False)])
def test_every_other_row_is_the_same_of_even_boxes_alone(part: int, is_even: bool) -> None:
    every_other = tp.Map(lambda x: x.at[::2].multiply(2), MAPPED)
    if is_even:
        held(every_other, {"rows": 4 * part, "cols": 3}, part)
        return
    with pytest.raises(KernelError, match="such boxes do not come to what it gives for"):
        held(every_other, {"rows": 4 * part, "cols": 3}, part)


def test_a_place_that_few_cells_do_not_reach_is_asked_for() -> None:
    many = {"rows": 1 << 18, "cols": 2}
    kernel = tp.Reduce(
        lambda x: jax.lax.scan(lambda c, row: (c + 1, row * (c < 100_000)), 0, x)[1].sum(0), FOLDED, tp.monoids.Sum
    )
    with pytest.raises(KernelError, match="such boxes do not come to what it gives for"):
        held(kernel, many, many["rows"] // 4)


def test_what_they_pull_back_is_asked_as_well() -> None:
    chosen = tp.Map(lambda x: x if len(x) > PART else jax.lax.stop_gradient(x), MAPPED)
    types = (Struct(tuple(MANY.values()), jnp.float32),)
    for arrow, is_other in ((chosen, True), (tp.Map(lambda x: jnp.sort(x, 1), IN_ROWS), False)):
        shaped = shape(arrow.operation, types)
        box = {**shaped.sizes, "rows": PART}
        blocks = block_structs(shaped.signature, types, box)
        assert bool(derivative_problem(shaped, arrow.operation.kernel, blocks, box, is_state=False)) == is_other
