"""Small programs, one for each rule of memory on CPUs, held against what XLA allots when it compiles them.

Each function says in its comment which rule it would be wrong without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.tapestry_jax.memory.compiled import N, assert_as_compiled


def product_and_loss(x: Any, w: Any, y: Any) -> Any:
    return jnp.mean((jax.nn.relu(x @ w) @ w - y) ** 2)  # the library computes both products with the sum


def reshaped(x: Any, w: Any, y: Any) -> Any:
    return jnp.sum((x @ w).reshape(-1) * 2)  # it looks through what only moves


def two_sums(x: Any, w: Any, y: Any) -> Any:
    h = jnp.sin(x @ w)
    return jnp.sum(jnp.exp(jnp.sum(h * y, 1))) + jnp.sum(h)  # what both sums read is written


def normalised(x: Any, w: Any, y: Any) -> Any:
    h = x @ w
    return (
        h * lax.rsqrt(jnp.mean(h * h, 1, keepdims=True) + 1e-6)
    ) @ y  # what is read outside of the kernel is written


def both_read(x: Any, w: Any, y: Any) -> Any:
    # A kernel does not grow down to one of several readers.
    return jax.grad(lambda x: jnp.sum(jax.nn.logsumexp(x @ w, axis=1)))(x)


def given_and_summed(x: Any, w: Any, y: Any) -> Any:
    h = jnp.sort(x) * y + w
    return h, jnp.sum(h @ w)  # a result is not the kernel's own


def few_elements(x: Any, w: Any, y: Any) -> Any:
    return jnp.sum(jnp.tanh(x[:32, :64] @ w[:64, :64]))  # no call of the library


def tiny(x: Any, w: Any) -> Any:
    products = jnp.einsum("bij,bjk->bik", x.reshape(-1, 4, 4), w.reshape(-1, 4, 4))
    return jnp.sum(products**2)  # products of 4 x 4 are none of the library's


def of_truths(x: Any, w: Any, y: Any) -> Any:
    return jnp.sum((x @ w > y).astype(jnp.float32))  # nor are comparisons


def read_by_columns(x: Any, w: Any, y: Any) -> Any:
    return jnp.sum(jnp.tanh(jnp.einsum("ki,kj->ij", x, w) @ y))  # nor what reads its left operand by columns


def copied_for_the_library(x: Any, w: Any) -> Any:
    return jnp.sum(jnp.tanh(jnp.einsum("akb,kc->abc", x, w)))  # unless that is copied before


def masked(x: Any, w: Any, y: Any) -> Any:
    scores = x @ w
    return jnp.sum(jnp.max(jnp.where(x > 0, scores, -1.0), 1)) + jnp.sum(jnp.sort(scores))  # nor choices


def library_in_a_loop(x: Any, w: Any, y: Any) -> Any:
    return lax.scan(lambda carry, _: (carry + jnp.sum((jnp.tanh(carry @ w) @ y) ** 2), None), x, length=3)[0]


def turned_twice(x: Any, w: Any) -> Any:
    return jnp.einsum("abk,akc->bc", x, x.transpose(0, 2, 1) + 1)  # copies in the order of the product


def in_order(x: Any, w: Any) -> Any:
    return jnp.einsum("abk,bck->ac", x, w.transpose(1, 0, 2))  # one operand needs none


def batch_in_the_middle(x: Any, w: Any) -> Any:
    return jnp.einsum("abk,cbk->bac", x, w)


def one_more_axis(x: Any, w: Any) -> Any:
    return jnp.einsum("abk,ibkc->aic", x, w.reshape(1, 16, 128, 8))  # axes of one index have no order


def turned_for_loops(x: Any, w: Any, y: Any) -> Any:
    rows = (x.reshape(8, 16, N) * 2).transpose(1, 0, 2)  # copied once for both loops
    first = lax.scan(lambda carry, row: (carry + row, None), w[:8], rows)[0]
    return first, lax.scan(lambda carry, row: (carry * row, None), w[:8], rows)[0]


def turned_back(x: Any, w: Any, y: Any) -> Any:
    return lax.map(lambda row: jnp.sort(row) @ y, jnp.sort(x).T.T)  # a transposition of a transposition is none


def turned_by_nothing(x: Any, w: Any, y: Any) -> Any:
    rows = (x * 2).reshape(N, 1, N).transpose(1, 0, 2)
    return lax.scan(lambda carry, row: (carry + row, None), w, rows)[0]


def scattered(x: Any, w: Any, y: Any) -> Any:
    # The gradient of a lookup is scattered into the sum that it is added to.
    return jax.grad(lambda x: jnp.sum(jnp.tanh(x[jnp.arange(N)] @ w) + jnp.tanh(x @ y)))(x)


def scattered_over(x: Any, w: Any, y: Any) -> Any:
    # And does not take the place of what it reads.
    return jax.grad(lambda x: jnp.sum(jnp.tanh(x[jnp.arange(N)] @ w) + x @ y @ w))(x)


def padded(x: Any, w: Any, y: Any) -> Any:
    around = jnp.pad(x, ((1, 1), (0, 0)))
    return jnp.sin(around[:-2]) * around[2:] + around[1:-1]  # written for its readers


def behind_a_barrier(x: Any, w: Any, y: Any) -> Any:
    return jnp.sort(lax.optimization_barrier(jnp.sin(x)) + w) @ y  # barriers are gone


def computed_again(x: Any, w: Any, y: Any) -> Any:
    h = x + w
    return (h @ y) @ jnp.sort(h), jnp.cumsum(h * y, 0)  # what is cheap is not kept for others; breadth first


def breadth_first(x: Any, w: Any, y: Any) -> Any:
    a, b, c = jnp.sort(x @ w), jnp.sort(w @ y), jnp.sort(y @ x)
    return (a @ b) @ c, jnp.sort(a + b + c, 0)


def lent_in_turn(x: Any, w: Any, y: Any) -> Any:
    scale = jnp.max(jnp.cumsum(x, 0) @ w)
    return y * jnp.max(jnp.cumsum(w * scale, 0) @ y)  # two never lie in one place at once, nor where one still reads


def lent_the_largest(x: Any, w: Any, y: Any) -> Any:
    a = jnp.sort(x) @ w
    scale = jnp.sum(jnp.sort(a[:64]) @ y) * 2
    return w[:64] * scale, y * jnp.max(a) * scale  # the places of results go to what is largest


def written_in_place(x: Any, w: Any, y: Any) -> Any:
    b = jnp.sort(y, 0)
    return jnp.tanh(x @ jnp.sort(b, 1)) @ w + jnp.sort(b, 1)  # what becomes a result lies in its place


def written_and_changed(x: Any, w: Any, y: Any) -> Any:
    scale = jnp.max(jnp.sort(y) @ w)
    return (x @ w).at[0].set(scale).at[1].set(2.0)  # which is taken from where the first of them is written


def one_turn(x: Any, w: Any, y: Any) -> Any:
    return lax.scan(lambda carry, row: (carry + row @ w, carry), x, y[None])[0]


def read_once(x: Any, w: Any, y: Any) -> Any:
    h = x * w  # two arrays of its size: written for the product, and read by the rest
    return (h @ y) @ jnp.sort(y), jnp.sort(jnp.tanh(h) + y, 0) @ jnp.sort(h)


def exchanged(x: Any, w: Any, y: Any) -> Any:
    # The gradient by weights is a product that is transposed: it runs after the one by its input.
    return jax.grad(lambda w, y: jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ y) ** 2), (0, 1))(w, y)


def placed_and_added(x: Any, w: Any, y: Any) -> Any:
    def turn(carry: Any, at: Any) -> Any:
        row = jnp.sort(lax.dynamic_slice(x, (at, 0), (8, N)) @ w, 0)
        return carry + lax.dynamic_update_slice(jnp.zeros((N, N)), row, (at, 0)), None

    return lax.scan(turn, y, jnp.arange(0, N, 8))[0]


def taken_in(x: Any, w: Any) -> Any:
    late = jnp.sort(jnp.concatenate([w, w], 2), 0)[..., :N]
    return jnp.max(
        jnp.einsum("abk,abj->kj", late, x).T @ jnp.ones((N, 8))
    )  # unless a product takes in the transposition


def copied_anew(x: Any, w: Any) -> Any:
    # Written for one product; the copy for the other one is computed from the operands, and is there as early.
    h, late = x * w, jnp.sort(jnp.concatenate([w, w], 2), 2)[..., :N]
    second = jnp.einsum("abk,abj->kj", h, late)
    return jnp.max(second) + jnp.max(jnp.sort(jnp.einsum("abk,kc->abc", h, x.reshape(N, N))))


def of_no_more(x: Any, w: Any, y: Any) -> Any:
    both = lax.complex(x, w)  # two arrays of half the size: computed again
    return jnp.sort(jnp.real(jnp.fft.fft(both)) @ y, 0) * jnp.abs(both)


_SHAPES = {
    **dict.fromkeys(
        (turned_twice, in_order, batch_in_the_middle, one_more_axis, taken_in, copied_anew),
        ((8, N // 8, N),) * 2,
    ),
    tiny: ((N, 64),) * 2,
    copied_for_the_library: ((8, N // 2, N), (N // 2, N)),
}
"""Of the operands; elsewhere they are three squares."""


@pytest.mark.parametrize(
    "function",
    [
        *(
            product_and_loss,
            reshaped,
            two_sums,
            normalised,
            both_read,
            given_and_summed,
            few_elements,
            of_truths,
            masked,
        ),
        *(
            read_by_columns,
            library_in_a_loop,
            turned_for_loops,
            turned_by_nothing,
            turned_back,
            scattered,
            scattered_over,
            padded,
        ),
        *(behind_a_barrier, computed_again, breadth_first, lent_in_turn, lent_the_largest, written_in_place),
        *(written_and_changed, one_turn, read_once, placed_and_added, of_no_more, *_SHAPES),
        # In the order of XLA 0.12 both gradients are there at once.
        *([exchanged] if jax.__version_info__ < (0, 12) else []),
    ],
)
def test_temporaries_are_those_that_the_compiler_allots(function: Callable[..., Any]):
    assert_as_compiled(function, _SHAPES.get(function, ((N, N),) * 3))
