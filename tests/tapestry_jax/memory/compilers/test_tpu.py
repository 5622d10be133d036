"""What XLA for TPUs makes of small programs, counted by hand; `tests/aot/test_memory.py` asks the compiler."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tapestry_jax.memory.compilers.tpu import as_on_tpus
from tapestry_jax.memory.liveness import peak
from tapestry_jax.memory.program import COSTLY
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


def test_products_compute_what_they_read():
    def both(x, w):
        scores = x @ w
        weights = jnp.exp(scores)
        return weights @ x, weights @ w, jnp.max(scores)

    elsewhere, there = squares(both)
    assert there == elsewhere - 1


def residual(x, w, total):
    added = total(x @ w, w @ x)
    beside = jnp.sort(w)
    return jnp.sum(jnp.exp(added) * beside), jnp.max(added * beside)


@pytest.mark.parametrize(
    ("total", "alive"),
    [
        (jnp.add, 2),
        (lambda a, b: jnp.exp(a) + b * 2, 2),
        # As cheap to compute anew as to read: what is behind it is one array, or a small one beside it.
        (lambda a, b: a + jnp.exp(a), 2),
        (lambda a, b: a + jnp.max(b, 0), 2),
        # What is no sum is computed anew, from both.
        (jnp.multiply, 3),
    ],
)
def test_a_sum_of_two_arrays_that_several_read_is_written(total, alive):
    _, there = squares(lambda x, w: residual(x, w, total))
    assert there == alive


@pytest.mark.parametrize("total", [lambda a, b: a + jnp.exp(a), lambda a, b: a + jnp.max(b, 0)])
def test_a_sum_of_one_array_is_computed_where_it_is_read(total):
    found = as_on_tpus(read_program(jax.make_jaxpr(lambda x, w: residual(x, w, total))(SQUARE, SQUARE)))
    assert COSTLY not in {node.kind for node in found.nodes}


def test_what_is_looked_up_stands_for_itself():
    def looked_up(x, w):
        rows = jnp.sort(x)[jnp.array([3, 1, 4, 1])]
        beside = jnp.sort(w)
        return jnp.max(rows[:, None] * beside), jnp.sum(rows + beside[:4])

    elsewhere, there = squares(looked_up)
    assert there == elsewhere - 1


@pytest.mark.parametrize(("cells", "alive"), [(1, 1), (2, 2)])
def test_one_cell_that_is_added_in_each_row_is_chosen_by_its_number(cells, alive):
    def gradient(x, w):
        def loss(scores):
            found = jnp.take_along_axis(scores, jnp.arange(N * cells).reshape(N, cells) % N, 1)
            return jnp.sum(jnp.exp(scores)) - jnp.sum(found)

        scores = x @ w
        slopes = jax.grad(loss)(scores)
        return slopes @ x, slopes @ w, jnp.max(scores)

    _, there = squares(gradient)
    assert there == alive
