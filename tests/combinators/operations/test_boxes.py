"""Kernels that read how many cells their block has: refused on boxes that do not come to the whole, taken otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import combinators as tp
from combinators.claims.provenance import holds_code
from combinators.errors import KernelError
from combinators.operations.boxes import check_numbers
from combinators.operations.results import Struct
from combinators.operations.shaped import block_structs, shape

MAPPED, FOLDED = "rows cols -> rows cols", "rows cols -> cols"


def by_table(x: Any) -> Any:
    return {True: jnp.sin, False: jnp.cos}[len(x) >= 6](x)


def windowed(x: Any, w: Any) -> Any:
    return x[:-2] * w[0] + x[2:] * (w[1] if x.shape[0] > 6 else w[0])


# Which JAX does in no bfloat16.
INTERPOLATES = "a place in what is sorted"
FALSE: dict[str, tuple[Any, dict[str, int]]] = {
    "a branch": (tp.Map(lambda x: x * 2 if x.shape[0] > 4 else x, MAPPED), {"rows": 2}),
    "a branch at one size": (tp.Map(lambda x: x * 2 if x.shape[0] == 5 else x, MAPPED), {"rows": 5}),
    "another operand": (tp.Map(lambda x: jnp.sin(x) * (x if len(x) > 4 else jnp.sin(x)), MAPPED), {"rows": 3}),
    "a number of a parameter": (
        tp.Map(lambda x: jnp.roll(x, len(x) // 2, axis=1), "rows [cols] -> rows [cols]"),
        {"rows": 4},
    ),
    "a table": (tp.Map(by_table, MAPPED), {"rows": 1}),
    "taken one by one": (tp.Map(lambda x: x * 2 if [*x][4:] else x, MAPPED), {"rows": 3}),
    "two dimensions": (tp.Map(lambda x: x if x.size > 6 else -x, MAPPED), {"rows": 3, "cols": 1}),
    "a composition": (tp.Map(lambda x: x if len(x) > 3 else -x, "(a b) c -> (a b) c", sizes={"b": 2}), {"a": 1}),
    "a window": (tp.Map(windowed, "(rows+[d]) cols, [d] -> rows cols"), {"rows": 2}),
    "a fold": (tp.Reduce(lambda x: x.sum(0) if len(x) > 3 else x.max(0), FOLDED, tp.monoids.Sum), {"rows": 2}),
    "a count": (tp.Reduce(lambda x: x.sum(0) * len(x), FOLDED, tp.monoids.Sum), {"rows": 4}),
    "one cell of a fold": (tp.Reduce(lambda x: x[0], FOLDED, tp.monoids.Max), {"rows": 2}),
    "places in a fold": (
        tp.Reduce(lambda x: (x > jax.lax.iota(x.dtype, 6)[:, None][: x.shape[0]]).sum(0), FOLDED, tp.monoids.Sum),
        {"rows": 3},
    ),
    "another reduction": (tp.Reduce(lambda x: x.max(0), FOLDED, tp.monoids.Sum), {"rows": 3}),
    "a root of a sum": (tp.Reduce(lambda x: jnp.sqrt((x * x).sum(0)), FOLDED, tp.monoids.Sum), {"rows": 3}),
    "a loop": (
        tp.Map(lambda x: jax.lax.scan(lambda c, row: (c + 1, row * c), 0.0, x)[1], MAPPED),
        {"rows": 3},
    ),
    "steps": (tp.Scan(tp.monoids.Sum, MAPPED, "rows", kernel=lambda x: x * min(len(x), 4)), {"rows": 2}),
    "a sum that stops far off": (tp.Reduce(lambda x: jnp.minimum(x.sum(0), 100), FOLDED, tp.monoids.Sum), {"rows": 3}),
    "a sum that is rounded": (
        tp.Reduce(lambda x: jnp.floor(x.sum(0) * 30_000) / 30_000, FOLDED, tp.monoids.Sum),
        {"rows": 3},
    ),
    "whole numbers of a sum": (tp.Reduce(lambda x: x.sum(0).astype(jnp.int32), FOLDED, tp.monoids.Sum), {"rows": 3}),
    "whole numbers of a product": (
        tp.Reduce(lambda x: (jnp.ones(len(x)) @ x).astype(jnp.int32).astype(x.dtype), FOLDED, tp.monoids.Sum),
        {"rows": 3},
    ),
    "the truth of a sum": (
        tp.Reduce(lambda x: x.sum(0).astype(bool).astype(x.dtype), FOLDED, tp.monoids.Sum),
        {"rows": 3},
    ),
    "a sum of few bits": (
        tp.Reduce(lambda x: (x * 30).astype(jnp.int8).sum(0, dtype=jnp.int8).astype(jnp.int32), FOLDED, tp.monoids.Sum),
        {"rows": 3},
    ),
    "no sum beside NaN": (
        tp.Reduce(lambda x: jnp.where(jnp.isnan(x.sum(0)), 0, x.sum(0)), FOLDED, tp.monoids.Sum),
        {"rows": 3},
    ),
    "nothing beside an infinity": (
        tp.Reduce(lambda x: jnp.where(jnp.isinf(x).any(0), 0, x.max(0)), FOLDED, tp.monoids.Max),
        {"rows": 3},
    ),
    # Functions of JAX as they are, which nobody wrote for a part of what they are given.
    "a gradient": (tp.Map(partial(jnp.gradient, axis=0), MAPPED), {"rows": 3}),
    # What a kernel sorts by itself rises, whatever it is given: to search in it asks nothing of operands.
    INTERPOLATES: (
        tp.Map(lambda x: jax.vmap(lambda c: jnp.interp(c, jnp.sort(c), c), 1, 1)(x), MAPPED),
        {"rows": 3},
    ),
    "a variance": (tp.Reduce(partial(jnp.var, axis=0), FOLDED, tp.monoids.Sum), {"rows": 3}),
    "a sum among extrema": (tp.Reduce(partial(jnp.sum, axis=0), FOLDED, tp.monoids.Max), {"rows": 3}),
    "a sum that another merges": (
        tp.Reduce(partial(jnp.sum, axis=0), FOLDED, tp.Monoid(0.0, lambda a, b: a + b + a * b)),
        {"rows": 3},
    ),
    "a variance of many": (
        tp.fold(tp.Aggregator(jnp.abs, tp.monoids.Sum, jnp.negative, partial(jnp.var, axis=0)), FOLDED),
        {"rows": 3},
    ),
}


def halved(x: Any) -> Any:
    while len(x) > 1:
        half = len(x) // 2
        x = jnp.concatenate([x[:half] + x[half : 2 * half], x[2 * half :]])
    return x[0]


def chaotic(x: Any) -> Any:
    """What is rounded in another way comes to another number."""
    y = jnp.abs(jnp.sin(x)) if len(x) > 3 else jnp.sqrt(1 - jnp.cos(x) ** 2)
    for _ in range(40):
        y = 3.99 * y * (1 - y)
    return y


def placed(x: Any, at: Any) -> Any:
    return x * at[: len(x), None] if len(x) > 3 else x * at[:, None]


def multiplied(x: Any) -> Any:
    """A product of matrices, in their order."""
    return x[0] if len(x) == 1 else multiplied(x[: len(x) // 2]) @ multiplied(x[len(x) // 2 :])


TRUE: dict[str, tuple[Any, dict[str, int]]] = {
    "the same branch": (tp.Map(lambda x: x * 2 if x.shape[0] > 1 else x, MAPPED), {"rows": 2}),
    "another way": (tp.Map(lambda x: jnp.sin(x) if len(x) > 3 else jnp.cos(jnp.pi / 2 - x), MAPPED), {"rows": 2}),
    "one by one": (tp.Map(lambda x: jnp.stack([x[i] * 2 for i in range(len(x))]), MAPPED), {"rows": 2}),
    "what is chaotic": (tp.Map(chaotic, MAPPED), {"rows": 3}),
    "what has no root": (tp.Map(lambda x: jnp.sqrt(x) if len(x) > 3 else x**0.5, MAPPED), {"rows": 3}),
    "coordinates": (tp.Map(placed, "rows cols, @rows -> rows cols"), {"rows": 2}),
    "a tree": (tp.Reduce(halved, FOLDED, tp.monoids.Sum), {"rows": 4}),
    "a sum of whole numbers": (
        tp.Reduce(lambda x: (x > 0).sum(0).astype(jnp.int8).astype(jnp.uint8), FOLDED, tp.monoids.Sum),
        {"rows": 3},
    ),
    "a count": (
        tp.Reduce(lambda x: jnp.full(x.shape[1:], x.shape[0], jnp.float32), FOLDED, tp.monoids.Sum),
        {"rows": 4},
    ),
    "a function of JAX": (tp.Map(jax.nn.gelu, MAPPED), {"rows": 2}),
    "a fold of JAX": (tp.Reduce(partial(jnp.max, axis=0), FOLDED, tp.monoids.Max), {"rows": 2}),
    "a monoid of one's own": (tp.fold(tp.Aggregator(jnp.abs, tp.Monoid(0.0, jnp.hypot), jnp.sin), FOLDED), {"rows": 2}),
    "an order": (tp.Reduce(multiplied, "rows [a] [b] -> [a] [b]", tp.monoids.MatrixProduct), {"rows": 2}),
    "padded for itself": (
        tp.Map(lambda x: jnp.pad(x, ((0, -len(x) % 4), (0, 0)))[: len(x)] * 2, MAPPED),
        {"rows": 5},
    ),
}


def cases(quick: str, names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in quick.split(", ") else pytest.mark.thorough) for name in names]


def marked(places: Any, x: Any, *, unique: bool) -> Any:
    return jnp.zeros(6).at[places.astype(int)].set(x, unique_indices=unique)


TOLD = "edges, rows -> rows", "rows, rows -> [n]"
TRUE.update(
    {
        "a sum without NaN": (tp.Reduce(lambda x: jnp.nansum(x, 0), FOLDED, tp.monoids.Sum), {"rows": 3}),
        "a loop without NaN": (
            tp.Reduce(
                lambda x: jax.lax.scan(lambda c, row: (c + jnp.where(jnp.isnan(row), 0, row), None), 0 * x[0], x)[0],
                FOLDED,
                tp.monoids.Sum,
            ),
            {"rows": 3},
        ),
    }
)
TRUE.update(
    {
        "sorted edges": (tp.Reduce(lambda e, x: jnp.searchsorted(e, x), TOLD[0], tp.monoids.Sum), {"edges": 3}),
        "a permutation": (
            tp.Reduce(lambda at, x: marked(at, x, unique=True), TOLD[1], tp.monoids.Sum, sizes={"n": 6}),
            {"rows": 4},
        ),
    }
)
FALSE.update(
    {
        "places that repeat": (
            tp.Reduce(lambda at, x: marked(at, x, unique=False), TOLD[1], tp.monoids.Sum, sizes={"n": 6}),
            {"rows": 4},
        ),
        "more than is looked up": (
            tp.Reduce(lambda e, x: jnp.searchsorted(e, x) + (x > e[0]), TOLD[0], tp.monoids.Sum),
            {"edges": 3},
        ),
    }
)


def bins(x: Any) -> Any:
    """Cells that a state has beside those that its signature names: how many rows are larger."""
    return (x[:, :, None] > jnp.arange(3)).sum(0).astype(x.dtype)


def until_large(x: Any) -> Any:
    """As many loops as rows, each with an end of its own."""
    return jax.vmap(lambda row: jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: 2 * c + 1, jnp.abs(row)))(x)


IN_ROWS = "rows [cols] -> rows [cols]"
TRUE["many loops"] = tp.Map(until_large, IN_ROWS), {"rows": 2}
FALSE["many loops by sizes"] = tp.Map(lambda x: until_large(x) * (1 if len(x) > 4 else 2), IN_ROWS), {"rows": 2}
FALSE.update(
    {
        "bins by sizes": (
            tp.Reduce(lambda x: bins(x) * (1 if len(x) > 4 else 2), FOLDED, tp.monoids.Sum),
            {"rows": 3},
        ),
        "shares of bins": (
            tp.Reduce(lambda x: bins(x) / (1 + bins(x).max(-1, keepdims=True)), FOLDED, tp.monoids.Sum),
            {"rows": 3},
        ),
        "bins of some columns": (
            tp.Reduce(lambda x: bins(x if x.shape[1] > 1 else -x), FOLDED, tp.monoids.Sum),
            {"cols": 1},
        ),
    }
)
TRUE.update(
    {
        "bins": (tp.Reduce(bins, FOLDED, tp.monoids.Sum), {"rows": 4}),
        "bins of columns": (tp.Reduce(bins, FOLDED, tp.monoids.Sum), {"rows": 4, "cols": 1}),
    }
)
SPLIT, EVERY_OTHER = "(h d) -> h d", "(2*t) -> t"
FALSE.update(
    {
        "the wrong way to split": (tp.Map(lambda x: x.reshape(3, -1).T, SPLIT, sizes={"d": 3}), {"h": 2}),
        "not every other": (tp.Map(lambda x: jnp.split(x, [(x.size + 1) // 2])[0], EVERY_OTHER), {"t": 3}),
    }
)
TRUE.update(
    {
        "a split": (tp.Map(lambda x: x.reshape(-1, 3), SPLIT, sizes={"d": 3}), {"h": 2}),
        "every other": (tp.Map(lambda x: x[::2], EVERY_OTHER), {"t": 3}),
    }
)


def held(arrow: Any, box: dict[str, int], dtype: Any = jnp.float32) -> None:
    """Hold the kernel of a leaf to a box of its index space."""
    signature = str(arrow.operation.signature)
    shapes = {"(rows+[d]) cols, [d] -> rows cols": ((8, 2), (3,)), "rows [a] [b] -> [a] [b]": ((6, 3, 3),)}
    shapes |= {SPLIT: ((12,),), EVERY_OTHER: ((11,),)}
    shapes |= {TOLD[0]: ((7,), (8,)), TOLD[1]: ((6,), (6,))}
    operands = tuple(Struct(each, dtype) for each in shapes.get(signature, ((6, 2),)))
    # The kernel of an aggregator is known where it is applied.
    traced = tp.trace(arrow, *(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in operands))
    operation = traced.nodes[-1].operation
    shaped = shape(operation, operands)
    sizes = {**shaped.sizes, **box}
    blocks = block_structs(shaped.signature, operands, sizes)
    check_numbers(shaped, operation.kernel, blocks, sizes, is_state=operation.kind != "map")


@pytest.mark.parametrize(
    "name",
    cases(
        "a number of a parameter, two dimensions, a window, a fold, one cell of a fold, a loop, the wrong way to "
        "split, a place in what is sorted, a sum that stops far off, a sum that is rounded, no sum beside NaN, "
        "nothing beside an infinity, bins by sizes, shares of bins, bins of some columns, many loops by sizes",
        FALSE,
    ),
)
def test_kernels_that_compute_something_else_on_boxes_are_refused(name: str) -> None:
    with pytest.raises(KernelError, match="such boxes do not come to what it gives for"):
        held(*FALSE[name])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize(
    "name",
    cases("a window, a fold, another reduction, a variance", [name for name in FALSE if name != INTERPOLATES]),
)
def test_they_are_refused_of_few_bits_too(name: str, dtype: Any) -> None:
    with pytest.raises(KernelError, match="such boxes do not come to what it gives for"):
        held(*FALSE[name], dtype)


def rounded(kernel: Any, size: int) -> None:
    """Hold a fold that rounds to 16 bits itself to a box of a third."""
    shaped = shape(tp.Reduce(kernel, FOLDED, tp.monoids.Sum).operation, (types := (Struct((size, 2), jnp.float32),)))
    sizes = {**shaped.sizes, "rows": -(-size // 3)}
    check_numbers(shaped, kernel, block_structs(shaped.signature, types, sizes), sizes, is_state=True)


@pytest.mark.parametrize("size", [6, 300])
def test_what_rounds_by_itself_is_judged_by_few_cells(size: int) -> None:
    rounded(lambda x: x.astype(jnp.bfloat16).sum(0).astype(jnp.float32), size)
    with pytest.raises(KernelError, match="such boxes do not come to what it gives for"):
        rounded(lambda x: x.max(0).astype(jnp.bfloat16), size)


def test_sums_of_few_bits_that_stand_still_are_taken() -> None:
    few = jnp.bfloat16
    rounded(lambda x: jax.lax.scan(lambda c, row: (c + row.astype(few), None), jnp.zeros(2, few), x)[0], 3000)


@pytest.mark.parametrize(
    "name",
    cases(
        "another way, what is chaotic, coordinates, an order, sorted edges, every other, a loop without NaN, "
        "bins, bins of columns, many loops",
        TRUE,
    ),
)
def test_other_ways_to_the_same_are_taken(name: str) -> None:
    held(*TRUE[name])


def turned(x: Any) -> Any:
    return x[::-1][0]


def runs(x: Any) -> Any:
    """Wrong where a run goes on in the next block; whole numbers that rise from block to block would hide it."""
    return (x[1:] < x[:-1]).sum(0)


OF_WHOLE = {
    "the first": (tp.Reduce(lambda x: x[0], FOLDED, tp.monoids.Min), jnp.int32),
    "the last": (tp.Reduce(lambda x: x[-1], FOLDED, tp.monoids.Max), jnp.uint8),
    "the last, turned round": (tp.Reduce(turned, FOLDED, tp.monoids.Max), jnp.int64),
    "the first of truths": (tp.Reduce(lambda x: x[0], FOLDED, tp.monoids.All), bool),
    "falls": (tp.Reduce(runs, FOLDED, tp.monoids.Sum), jnp.int8),
    "places in their order": (
        tp.Reduce(lambda x: jnp.arange(9)[x[-1]], FOLDED, tp.monoids.Max),
        jnp.int32,
    ),
}


@pytest.mark.parametrize("name", cases("the first, the first of truths, falls", OF_WHOLE))
def test_whole_numbers_do_not_rise_for_a_kernel_that_takes_them_to(name: str) -> None:
    arrow, dtype = OF_WHOLE[name]
    with pytest.raises(KernelError, match="such boxes do not come to what it gives for"):
        held(arrow, {"rows": 2}, dtype)


def one_key_for_a_block(keys: Any, x: Any) -> Any:
    def step(key: Any, row: Any) -> Any:
        return jax.random.split(key, 1)[0], row + jax.random.normal(key, row.shape)

    return jax.lax.scan(step, keys[0], x)[1]


def a_key_for_each_row(keys: Any, x: Any) -> Any:
    return x + jax.lax.map(lambda key: jax.random.normal(key, x.shape[1:]), keys)


@pytest.mark.parametrize(
    ("kernel", "is_true"),
    [(one_key_for_a_block, False), pytest.param(a_key_for_each_row, True, marks=pytest.mark.thorough)],
)
@pytest.mark.parametrize("impl", ["threefry2x32", pytest.param("rbg", marks=pytest.mark.thorough)])
def test_keys_are_drawn_as_numbers_are(kernel: Any, is_true: bool, impl: str) -> None:
    operation = tp.Map(kernel, "rows, rows [cols] -> rows [cols]").operation
    key = jax.eval_shape(lambda: jax.random.key(0, impl=impl)).dtype
    operands = [Struct((6,), key), Struct((6, 2), jnp.float32)]
    shaped = shape(operation, tuple(operands))
    sizes = {**shaped.sizes, "rows": 2}
    blocks = block_structs(shaped.signature, operands, sizes)
    with nullcontext() if is_true else pytest.raises(KernelError, match="box rows=2"):
        check_numbers(shaped, operation.kernel, blocks, sizes, is_state=False)


def test_two_parts_of_one_number_are_not_left_to_chance() -> None:
    operation = tp.Reduce(lambda x: x[0], "rows -> ", tp.monoids.Min).operation
    for dtype in (jnp.float32, jnp.int32):
        shaped = shape(operation, (Struct((2,), dtype),))
        with pytest.raises(KernelError, match="box rows=1"):
            check_numbers(shaped, operation.kernel, [Struct((1,), dtype)], {"rows": 1}, is_state=True)


def test_it_is_seen_of_many_cells_without_computing_all_of_them() -> None:
    operation = tp.Map(lambda x: x * 2 if len(x) > 4096 else x, MAPPED).operation
    shaped = shape(operation, (Struct((65_536, 4_096), jnp.float32),))

    def check(rows: int) -> None:
        sizes = {"rows": rows, "cols": 4_096}
        check_numbers(shaped, operation.kernel, [Struct((rows, 4_096), jnp.float32)], sizes, is_state=False)

    check(8_192)
    with pytest.raises(KernelError, match="box rows=4096, cols=4096"):
        check(4_096)


def test_kernels_are_asked_as_far_as_others_wrote_them_and_may_learn_a_size() -> None:
    def helper(x: Any) -> Any:
        return x * 2 if x.shape[0] > 3 else x

    ours = tp.einsum("rows cols -> cols rows").operation.kernel
    kernels: list[Callable[..., Any]] = [lambda x: jnp.sin(x) + 1, jnp.gradient, partial(jnp.var, axis=0), ours]
    assert [holds_code(kernel) for kernel in kernels] == [(True, False), (True, True), (True, True), (False, False)]
    assert holds_code(halved) == (True, True)
    assert holds_code(lambda x: helper(x) + 1) == (True, True)
