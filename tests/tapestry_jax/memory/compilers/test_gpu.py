"""What XLA for GPUs makes of small programs, counted by hand; `tests/aot/test_memory.py` asks the compiler."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tapestry_jax.memory.compilers import gpu
from tapestry_jax.memory.compilers.gpu import as_on_gpus
from tapestry_jax.memory.liveness import peak
from tapestry_jax.memory.program import FUSED, VIEW
from tapestry_jax.memory.read import read_program

N = 1024
SQUARE = jax.ShapeDtypeStruct((N, N), jnp.float32)


def program(function, *structs):
    return as_on_gpus(read_program(jax.make_jaxpr(function)(*structs)))


def squares(function):
    return round(peak(program(function, SQUARE, SQUARE)).bytes / (4 * N * N))


@pytest.mark.parametrize(
    ("batch", "rows", "columns", "inner", "parts"),
    [
        # As the compiler of the H100 cut them in the gallery.
        (1, 512, 128, 512, 8),
        (1, 1024, 64, 256, 4),
        (4, 256, 64, 2048, 8),
        (1, 512, 512, 128, 1),
        (4, 256, 2048, 64, 1),
    ],
)
def test_products_are_cut_into_as_many_parts_as_are_cheapest(batch, rows, columns, inner, parts):
    left, right = (jax.ShapeDtypeStruct((batch, *shape), jnp.float32) for shape in ((rows, inner), (inner, columns)))
    found = program(lambda a, b: jnp.sum(jnp.sort(a @ b)), left, right)
    (product,) = (node for node in found.nodes if node.name == "dot_general")
    assert found.values[product.results[0]].bytes == 4 * batch * rows * columns * parts


def softmax(x: Any, w: Any) -> Any:
    return jax.lax.top_k(jax.nn.softmax(x @ w), 8)[0]


def shifted(x: Any, w: Any) -> Any:
    scores = x @ w
    return jax.lax.top_k(jnp.exp(scores - jnp.max(scores, 1, keepdims=True)), 8)[0]


def by_columns(x: Any, w: Any) -> Any:
    return jax.lax.top_k(jax.nn.softmax(x @ w, 0), 8)[0]


def turned(x: Any, w: Any) -> Any:
    return jnp.fft.fft(jnp.sort(x @ w).T).real


def taken_in(x: Any, w: Any) -> Any:
    return jnp.sort(x @ w).T @ w


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (softmax, 2),  # one kernel, which reads the scores and writes elsewhere
        (shifted, 1),  # over the scores
        (by_columns, 1),  # nor is it one by columns
        (turned, 4),  # a transposition, which is complex already, and its transform
        (taken_in, 1),  # unless a product takes it in
    ],
)
def test_buffers_are_those_counted_by_hand(function, count):
    assert squares(function) == count


def given(x: Any, w: Any) -> Any:
    return jnp.sort((x @ w).T)


@pytest.mark.parametrize(("function", "kind"), [(turned, FUSED), (taken_in, VIEW), (given, VIEW)])
def test_transpositions_copy_unless_a_product_reads_or_makes_them(function, kind):
    assert [node.kind for node in program(function, SQUARE, SQUARE).nodes if node.name == "transpose"] == [kind]


@pytest.mark.parametrize(("function", "kind"), [(turned, FUSED), (taken_in, VIEW)])
def test_transpositions_in_loops_are_those_outside(function, kind):
    def looped(x, w):
        return jax.lax.scan(lambda carry, _: (function(carry, w), None), x, None, length=3)[0]

    (loop,) = (node for node in program(looped, SQUARE, SQUARE).nodes if node.bodies)
    assert [node.kind for node in loop.bodies[0].nodes if node.name == "transpose"] == [kind]


@pytest.mark.parametrize(("cut", "copies"), [(1, 2), (0, 1)])
def test_all_to_alls_send_along_the_first_dimension_of_a_copy(mesh8: Any, cut: int, copies: int):
    def sent(x: Any) -> Any:
        return jnp.fft.fft(jax.lax.all_to_all(jnp.fft.fft(x), "data", cut, 1 - cut, tiled=True))

    spec = jax.P("data", None)
    mapped = jax.shard_map(sent, mesh=mesh8, in_specs=spec, out_specs=spec)
    found = program(mapped, jax.ShapeDtypeStruct((N, N), "complex64"))
    assert [node.library for node in found.nodes].count("turns") == copies


def looked_up(x: Any, w: Any) -> Any:
    """The gradient of logits: that of a lookup, and that of their exponentials."""

    def loss(scores: Any) -> Any:
        return jnp.sum(jnp.exp(scores)) - jnp.sum(jnp.take_along_axis(scores, jnp.zeros((N, 1), int), 1))

    return jnp.sort(jax.grad(loss)(jnp.sort(x @ w)))


def test_a_gradient_is_scattered_into_the_one_that_it_is_added_to(monkeypatch: Any) -> None:
    added = squares(looked_up)
    monkeypatch.setattr(gpu, "added", lambda program: program)
    assert squares(looked_up) == added + 1
