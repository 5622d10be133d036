"""What XLA for TPUs makes of small programs, counted by hand; `tests/aot/test_memory.py` asks the compiler."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tapestry_jax.memory.compilers.tpu import as_on_tpus
from tapestry_jax.memory.liveness import peak
from tapestry_jax.memory.read import read_program

N = 1024
SQUARE = jax.ShapeDtypeStruct((N, N), jnp.float32)


def squares(function):
    # Products that round nothing: what they read would take half.
    with jax.default_matmul_precision("highest"):
        program = read_program(jax.make_jaxpr(function)(SQUARE, SQUARE))
    return tuple(round(peak(each).bytes / (4 * N * N), 1) for each in (program, as_on_tpus(program)))


def test_what_several_operations_read_is_computed_for_each_of_them():
    def both(x, w):
        scores = x @ w
        weights = jnp.exp(scores)
        return jnp.sum(weights * x), jnp.sum(weights * w), jnp.max(scores)

    elsewhere, there = squares(both)
    assert there == elsewhere - 1


def test_so_it_is_in_loops_and_what_loops_are_given_stands_in_memory():
    def turns(x, w):
        weights = jnp.exp(x @ w)
        return jax.lax.fori_loop(0, 4, lambda _, y: jnp.exp(weights + y) @ w, x)

    elsewhere, there = squares(turns)
    assert there == elsewhere
