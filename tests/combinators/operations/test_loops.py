"""Kernels with loops that may never end: run in NumPy turn by turn, and refused where boxes are not the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import combinators as tp
from combinators.errors import KernelError
from combinators.operations.boxes import check_numbers
from combinators.operations.results import Struct
from combinators.operations.shaped import block_structs, shape

MAPPED, FOLDED = "rows cols -> rows cols", "rows cols -> cols"
Step = Callable[[Any, Any], tuple[Any, Any]]


def walked(x: Any, step: Step) -> tuple[Any, Any]:
    """Rows one after the other, in a loop that asks whether there is one more."""

    def turn(state: Any) -> Any:
        at, carry, found = state
        carry, row = step(carry, x[at])
        return at + 1, carry, found.at[at].set(row)

    _, carry, found = lax.while_loop(lambda state: state[0] < len(x), turn, (0, x[0] * 0, x * 0))
    return carry, found


def below_one(x: Any) -> Any:
    return lax.while_loop(lambda y: jnp.sum(y * y) > 1, lambda y: y / 2, x)


def root(v: Any) -> Any:
    """Newton's way, until all of them are found."""
    wanted = jnp.abs(v) + 0.1
    return lax.while_loop(
        lambda s: jnp.any(jnp.abs(s * s - wanted) > 1e-5 * wanted), lambda s: 0.5 * (s + wanted / s), wanted + 1
    )


def in_a_scan(x: Any) -> Any:
    return lax.scan(lambda carry, row: (below_one(carry + row), carry), x[0], x)[1]


def in_a_choice(x: Any) -> Any:
    return lax.cond(x[0, 0] > 0, lambda x: lax.while_loop(lambda y: y[0, 0] > 0.1, lambda y: y / 3, x), jnp.negative, x)


def on_a_platform(x: Any) -> Any:
    return lax.platform_dependent(x, cpu=below_one, default=below_one)


def powers(x: Any, times: Any) -> Any:
    return jax.vmap(lambda row, n: lax.fori_loop(0, n, lambda i, y: y * 1.1, row))(x, times)


def with_keys(keys: Any, x: Any, *, grows: bool) -> Any:
    def step(turns: Any, pair: Any) -> Any:
        key, row = pair
        drawn = lax.fori_loop(0, turns, lambda i, total: total + jax.random.uniform(key), jnp.float32(0))
        return turns + grows, row * drawn

    return lax.scan(step, jnp.int32(3), (keys, x))[1]


FALSE: dict[str, Any] = {
    "prefix sums": tp.Map(lambda x: walked(x, lambda c, row: (c + row, c + row))[1], MAPPED),
    "the last row": tp.Reduce(lambda x: walked(x, lambda c, row: (row, row))[0], FOLDED, tp.monoids.Max),
    "a decay": tp.Reduce(lambda x: walked(x, lambda c, row: (c * 0.5 + row, row))[0], FOLDED, tp.monoids.Sum),
    "turns by the block": tp.Map(lambda x: lax.fori_loop(0, (x[:, 0] > 0).sum(), lambda i, y: y * 1.1, x), MAPPED),
    "until all are small": tp.Map(below_one, MAPPED),
    "in a scan": tp.Map(in_a_scan, MAPPED),
    "in a choice": tp.Map(in_a_choice, MAPPED),
    "on a platform": tp.Map(on_a_platform, MAPPED),
    "with keys": tp.Map(lambda keys, x: with_keys(keys, x, grows=True), "rows, rows cols -> rows cols"),
}
TRUE: dict[str, Any] = {
    "roots": tp.Map(root, MAPPED),
    "each root": tp.Map(jax.vmap(jax.vmap(root)), MAPPED),
    "each row until it is small": tp.Map(jax.vmap(below_one), "rows [cols] -> rows [cols]"),
    "a sum": tp.Reduce(lambda x: walked(x, lambda c, row: (c + row, row))[0], FOLDED, tp.monoids.Sum),
    "turns of each row": tp.Map(powers, "rows [cols], rows -> rows [cols]"),
    "with keys": tp.Map(lambda keys, x: with_keys(keys, x, grows=False), "rows, rows cols -> rows cols"),
    "never": tp.Map(lambda x: lax.while_loop(lambda y: jnp.any(y < 1e9), lambda y: y + 0, x), MAPPED),
}
QUICK = "prefix sums, the last row, turns by the block, in a scan, roots, turns of each row"


def held(arrow: Any, box: int, name: str, dtype: Any = jnp.float32) -> None:
    operation = arrow.operation
    first = {"with keys": jax.eval_shape(lambda: jax.random.key(0)).dtype, "turns of each row": jnp.int32}.get(name)
    operands = [Struct((6, 2), dtype)]
    if first is not None:
        operands.insert(int(first == jnp.int32), Struct((6,), first))
    shaped = shape(operation, tuple(operands))
    sizes = {**shaped.sizes, "rows": box}
    blocks = block_structs(shaped.signature, operands, sizes)
    check_numbers(shaped, operation.kernel, blocks, sizes, is_state=operation.kind != "map")


def cases(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in QUICK.split(", ") else pytest.mark.thorough) for name in names]


@pytest.mark.parametrize("name", cases(FALSE))
def test_loops_that_compute_something_else_on_boxes_are_refused(name: str) -> None:
    with pytest.raises(KernelError, match="such boxes do not come to what it gives for"):
        held(FALSE[name], 3, name)


@pytest.mark.parametrize("name", cases(TRUE))
def test_loops_that_each_cell_ends_by_itself_are_taken(name: str) -> None:
    held(TRUE[name], 2, name)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["bfloat16", "complex64", "int8", "float64"])
def test_loops_run_on_numbers_of_every_kind(dtype: str) -> None:
    with jax.enable_x64(True), pytest.raises(KernelError):
        held(FALSE["prefix sums"], 3, "", dtype)


def many(x: Any, *, of_first: bool) -> Any:
    """More equations than are compiled."""
    for _ in range(30):
        x = jnp.sin(x) + x * 0.5
    return x[0] if of_first else x


@pytest.mark.parametrize("is_false", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_programs_of_many_equations_are_run(is_false: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("combinators.declared.runnable._EQUATIONS", 64)
    false = tp.Reduce(lambda x: many(x, of_first=True), FOLDED, tp.monoids.Max)
    true = tp.Map(lambda x: many(x, of_first=len(x) < 0), MAPPED)
    with pytest.raises(KernelError, match="box rows=3") if is_false else nullcontext():
        held(false if is_false else true, 3, "")


def test_an_end_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("combinators.claims.boxed._EFFORT", 1 << 10)
    held(TRUE["never"], 2, "never")
