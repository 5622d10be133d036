"""What XLA for CPUs makes of small programs, counted by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tapestry_jax.memory.compilers.cpu import as_on_cpus
from tapestry_jax.memory.compilers.order import breadth_first
from tapestry_jax.memory.liveness import peak
from tapestry_jax.memory.read import read_program

N = 128
SQUARE = jax.ShapeDtypeStruct((N, N), jnp.float32)
ONE = 4 * N * N


def buffers(function, *structs):
    """How many squares are alive at once, as other compilers have it and as XLA for CPUs does."""
    program = read_program(jax.make_jaxpr(function)(*structs))
    return peak(program).bytes // ONE, peak(as_on_cpus(program)).bytes // ONE


def mean_square(x, w):
    return jnp.sum((jnp.tanh(x @ w) @ w) ** 2)


def masked(x, w):
    scores = x @ w
    return jnp.sum(jnp.max(jnp.where(x > 0, scores, -1.0), 1)) + jnp.sum(jnp.sort(scores))


def beside(x, w):
    long = jnp.concatenate([x, w])
    return long[1 : N + 1] @ w, long[2 : N + 2] @ w


def turned(x, w):
    rows = (x.reshape(8, N // 8, N) * 2).transpose(1, 0, 2)
    return jax.lax.scan(lambda carry, row: (carry + row, None), w[:8], rows)[0]


def scattered(x, w):
    zeros = jnp.zeros((N, N)).at[jnp.arange(N), 0].add(x[0])
    return jnp.sort(jnp.sort(w) + zeros)


def chosen(x, w):
    zeros = jnp.zeros((N, N))
    y, z = jax.lax.cond(x[0, 0] > 0, lambda: (zeros, zeros), lambda: (zeros, jnp.sort(x)))
    return jnp.sort(z) @ w + y


@pytest.mark.parametrize(
    ("function", "elsewhere", "here"),
    [
        (mean_square, 2, 0),  # one kernel: both products, the arithmetic between, and the sum
        (masked, 2, 3),  # the scores and what is sorted; here a maximum reads the choice from memory, too
        (beside, 1, 3),  # by our rule both arrays, once for both products; XLA fuses these, and allots 1
        (turned, 1, 2),  # computed in the order of its operand, then copied for the loop
        (chosen, 2, 2),  # what is constant in every branch is no result
    ],
)
def test_buffers_are_those_counted_by_hand(function, elsewhere, here):
    assert buffers(function, SQUARE, SQUARE) == (elsewhere, here)


def test_both_readers_of_a_value_come_before_what_follows_them():
    def sorted_twice(x):
        y = jnp.sort(x)
        return jnp.sort(jnp.sort(y, 0), 1), jnp.sort(y, 0)

    program = read_program(jax.make_jaxpr(sorted_twice)(SQUARE))
    first, then, last, other = (node.results for node in program.nodes)
    assert [node.results for node in breadth_first(program).nodes] == [first, then, other, last]


def test_what_is_scattered_into_zeros_and_added_is_scattered_into_the_other():
    program = as_on_cpus(read_program(jax.make_jaxpr(scattered)(SQUARE, SQUARE)))
    (numbers,) = (node.results[0] for node in program.nodes if node.operands == (1,))
    (scatter,) = (node for node in program.nodes if numbers in node.operands)
    (after,) = (node for node in program.nodes if scatter.results[0] in node.operands)
    assert after.results[0] in program.outputs
