"""Declared neutral values: refused where they change what a kernel gives, and left unused where kernels mind them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import combinators as tp
from combinators import monoids
from combinators.errors import KernelError
from combinators.operations.results import Struct
from combinators.operations.shaped import block_structs, shape
from tapestry_jax.lowering.exchange.neutral import neutral_in

FOLDED, WEIGHED = "rows cols -> cols", "rows cols, cols -> cols"
INF = math.inf


def largest(x: Any) -> tuple[Any, Any]:
    """Of infinities alone it is NaN."""
    top = x.max(0)
    return top, jnp.exp(x - top).sum(0)


def counted(x: Any) -> tuple[Any, Any]:
    return x.sum(0), jnp.full(x.shape[1:], x.shape[0], x.dtype)


MEAN = tp.Monoid((0.0, 0.0), lambda a, b: (a[0] + b[0], a[1] + b[1]), commutative=True, name="Mean")

FALSE: dict[str, Any] = {
    "one for a sum": tp.Reduce(lambda x: x.sum(0), FOLDED, monoids.Sum, pad=(1,)),
    "nearly zero for a sum": tp.Reduce(lambda x: x.sum(0), FOLDED, monoids.Sum, pad=(1e-3,)),
    "zero for a sum of exponentials": tp.Reduce(lambda x: jnp.exp(x).sum(0), FOLDED, monoids.Sum, pad=(0,)),
    "zero for a maximum": tp.Reduce(lambda x: x.max(0), FOLDED, monoids.Max, pad=(0,)),
    "little for a maximum": tp.Reduce(lambda x: x.max(0), FOLDED, monoids.Max, pad=(-500,)),
    "infinity times a weight": tp.Reduce(lambda x, w: (x * w).max(0), WEIGHED, monoids.Max, pad=(-INF, None)),
    "zero for a product": tp.Reduce(lambda x: x.prod(0), FOLDED, monoids.Prod, pad=(0,)),
    "a count of rows": tp.Reduce(counted, FOLDED, MEAN, pad=(0,), present=lambda state: state[0] / state[1]),
    "a coordinate that repeats": tp.Reduce(
        lambda x, at: x.sum(0) + (at[-1] == at[-2]), "rows cols, @rows -> cols", monoids.Sum, pad=(0,)
    ),
    # As an edited file may hold it.
    "one for a kernel of ours": replace(tp.einsum("rows cols, rows cols -> cols").operation, pad=(1, 1)),
}
TRUE: dict[str, Any] = {
    "a sum": tp.Reduce(lambda x: (x * x).sum(0), FOLDED, monoids.Sum, pad=(0,)),
    "a maximum": tp.Reduce(lambda x: x.max(0), FOLDED, monoids.Max, pad=(-INF,)),
    "a product": tp.Reduce(lambda x: x.prod(0), FOLDED, monoids.Prod, pad=(1,)),
    "a product of two": tp.Reduce(lambda x, w: (x * w).sum(0), WEIGHED, monoids.Sum, pad=(0, None)),
    "exponentials": tp.Reduce(lambda x: jnp.exp(x).sum(0), FOLDED, monoids.Sum, pad=(-INF,)),
    "a kernel of ours": tp.einsum("rows cols, rows cols -> cols"),
}


def serves(arrow: Any, *, empty: bool = True, dtype: Any = jnp.float32, rows: int = 3) -> bool:
    """Whether blocks of three of ten rows, or of more, may be filled."""
    operation = getattr(arrow, "operation", arrow)
    operands = [Struct((10, 2), dtype)] * sum(each.coordinate is None for each in operation.signature.operands)
    if len(operation.signature.operands[-1].axes) == 1 and len(operands) == 2:
        operands[1] = Struct((2,), dtype)
    shaped = shape(operation, tuple(operands))
    sizes = {"rows": rows, "cols": 2}
    return neutral_in(shaped, block_structs(shaped.signature, operands, sizes), ["rows"], sizes, empty=empty)


@pytest.mark.parametrize("name", FALSE)
def test_values_that_change_what_a_kernel_gives_are_refused(name: str) -> None:
    with pytest.raises(KernelError, match="which is not neutral to it"):
        serves(FALSE[name])


def test_the_error_says_what_was_declared_where_and_what_to_do() -> None:
    with pytest.raises(KernelError) as caught:
        serves(tp.Reduce(lambda x: x.max(0), FOLDED, monoids.Max, pad=(0,), name="top"))
    assert str(caught.value) == (
        "the kernel of `top` declares pad=(0), which is not neutral to it\n"
        "  signature rows cols -> cols\n"
        "  this plan fills blocks with such cells along `rows`, and they change what it gives\n"
        "  Declare what changes nothing (0 for a sum, -inf for a maximum, 1 for a product), or no pad=."
    )


@pytest.mark.parametrize("name", TRUE)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
def test_neutral_values_are_filled_in(name: str, dtype: Any) -> None:
    assert serves(TRUE[name], dtype=dtype)


def test_whole_numbers_are_asked_too() -> None:
    least = int(jnp.iinfo(jnp.int32).min)
    assert serves(tp.Reduce(lambda x: x.max(0), FOLDED, monoids.Max, pad=(least,)), dtype=jnp.int32)
    for kernel, monoid in ((lambda x: x.max(0), monoids.Max), (lambda x: x.min(0), monoids.Min)):
        with pytest.raises(KernelError, match="which is not neutral"):
            serves(tp.Reduce(kernel, FOLDED, monoid, pad=(0,)), dtype=jnp.int32)


def test_blocks_are_asked_with_as_many_cells_as_a_device_holds() -> None:
    fold = tp.Reduce(lambda x: x.sum(0) + (x == 0).sum(0) * (len(x) > 5), FOLDED, monoids.Sum, pad=(0,))
    assert serves(fold, rows=3)
    with pytest.raises(KernelError, match="which is not neutral to it"):
        serves(fold, rows=7)


def test_blocks_of_padding_alone_must_give_an_identity() -> None:
    fold = tp.Reduce(largest, FOLDED, monoids.LogSumExp, pad=(-INF,), present=monoids.logsumexp_value)
    assert serves(fold, empty=False)
    assert not serves(fold, empty=True)


def test_slopes_beside_such_cells_are_asked_too() -> None:
    root = tp.Reduce(lambda x, w: jnp.sqrt(jnp.abs(x * w)).sum(0), WEIGHED, monoids.Sum, pad=(0, None))
    assert not serves(root), "the slope by the weight is NaN beside a root of zero"

    @jax.custom_jvp
    def summed(x: Any) -> Any:
        return x.sum(0)

    summed.defjvp(lambda primals, tangents: (summed(*primals), (tangents[0] * (primals[0] != 0).all(0)).sum(0)))
    assert not serves(tp.Reduce(summed, FOLDED, monoids.Sum, pad=(0,)))


def test_the_answer_is_kept() -> None:
    operands = (Struct((10, 2), jnp.float32),)
    shaped = shape(TRUE["a sum"].operation, operands)
    blocks, sizes = block_structs(shaped.signature, operands, {"rows": 3, "cols": 2}), {"rows": 3, "cols": 2}
    assert neutral_in(shaped, blocks, ["rows"], sizes, empty=True)
    known = len(shaped.known)
    assert neutral_in(shaped, blocks, ["rows"], sizes, empty=False)
    assert len(shaped.known) == known
