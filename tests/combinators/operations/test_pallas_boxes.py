"""Kernels that call Pallas are held to their boxes as others are: its interpreter runs them, whatever they are for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

import combinators as tp
from combinators.declared.programs import alike_but_sizes
from combinators.errors import KernelError
from combinators.operations.boxes import check_numbers, derivative_problem
from combinators.operations.results import Struct
from combinators.operations.shaped import block_structs, shape

IN_ROWS, FOLDED = "rows [cols] -> rows [cols]", "rows [cols] -> [cols]"
GROUP = 8


def _in_groups(body: Callable[..., None], x: Any) -> Any:
    block = pl.BlockSpec((GROUP, x.shape[1]), lambda i: (i, 0))
    groups = len(x) // GROUP
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(body, grid=(groups,), in_specs=[block], out_specs=block, out_shape=out)(x)


def _doubled(x: Any, y: Any) -> None:
    y[...] = x[...] * 2


def _by_group(x: Any, y: Any) -> None:
    y[...] = x[...] * (1 + pl.program_id(0))


def _added(x: Any, y: Any) -> None:
    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        y[...] = jnp.zeros_like(y)

    y[...] += x[...].sum(0, keepdims=True)


def doubled(x: Any) -> Any:
    return _in_groups(_doubled, x)


def by_group(x: Any) -> Any:
    """Rows by the number of their group: those of a block begin anew."""
    return jax.jit(lambda y: _in_groups(_by_group, y))(x)


def added(x: Any) -> Any:
    cols = x.shape[1]
    rows, all_of = pl.BlockSpec((GROUP, cols), lambda i: (i, 0)), pl.BlockSpec((1, cols), lambda i: (0, 0))
    out = jax.ShapeDtypeStruct((1, cols), x.dtype)
    return pl.pallas_call(_added, grid=(len(x) // GROUP,), in_specs=[rows], out_specs=all_of, out_shape=out)(x)[0]


def with_slopes(pulled: Callable[[Any], Any]) -> Any:
    function = jax.custom_vjp(doubled)
    function.defvjp(lambda x: (doubled(x), None), lambda _, given: (pulled(given),))
    return function


def held(arrow: Any, rows: int = 32, ask: Callable[..., Any] = check_numbers) -> Any:
    operation, types = arrow.operation, (Struct((rows, 4), jnp.float32),)
    shaped = shape(operation, types)
    box = {**shaped.sizes, "rows": rows // 2}
    blocks = block_structs(shaped.signature, types, box)
    return ask(shaped, operation.kernel, blocks, box, is_state=operation.kind != "map")


@pytest.mark.parametrize("rows", [32, 1 << 22])
def test_kernels_of_pallas_are_held_to_their_boxes(rows: int) -> None:
    held(tp.Map(doubled, IN_ROWS), rows)
    held(tp.Reduce(added, FOLDED, tp.monoids.Sum), rows)
    for wrong in (tp.Map(by_group, IN_ROWS), tp.Reduce(added, FOLDED, tp.monoids.Max)):
        with pytest.raises(KernelError, match="such boxes do not come to what it gives for"):
            held(wrong, rows)


def test_a_choice_by_sizes_between_them_is_refused() -> None:
    with pytest.raises(KernelError, match="such boxes do not come to what it gives for"):
        held(tp.Map(lambda x: doubled(x) if len(x) > 16 else x, IN_ROWS))


def test_programs_of_more_groups_are_alike() -> None:
    """Else each kernel that reads how many rows there are would be asked at further sizes, and for its slopes."""
    programs = [jax.make_jaxpr(added)(jax.ShapeDtypeStruct((rows, 4), jnp.float32)) for rows in (32, 64)]
    assert alike_but_sizes(*programs)
    assert not alike_but_sizes(*(jax.make_jaxpr(each)(jnp.ones((32, 4))) for each in (doubled, by_group)))


def test_derivatives_that_call_pallas_are_held_to_their_boxes() -> None:
    assert not held(tp.Map(with_slopes(doubled), IN_ROWS), ask=derivative_problem)
    assert held(tp.Map(with_slopes(by_group), IN_ROWS), ask=derivative_problem)
