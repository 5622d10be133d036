"""Blocks priced by arithmetic: equal to blocks counted, at sizes that nobody has looked at."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import tapestry_jax as tp
from combinators.graphs.graph import Graph
from combinators.operations.shaped import Shaped
from tapestry_jax.planning.pricing import marginal as subject
from tapestry_jax.planning.pricing.counting.traced import trace, trace_backward
from tapestry_jax.planning.pricing.marginal import Part, marginal


def graph_of(program: Any, *shapes: tuple[int, ...]) -> Graph:
    return tp.trace(program, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))


linear = tp.einsum("b k, k n -> b n")


@tp.program("b k, k n -> b n")
def product(x, w):
    return linear(x, w)


@tp.program("b s e -> b s e")
def elementwise(x):
    return tp.Map(jax.nn.gelu)(x)


@tp.program("b k -> b")
def moments(x):
    return tp.fold(tp.aggregators.LogSumExp(), "b k -> b")(x)


@tp.program("heads queries d, heads keys d, heads keys e -> heads queries e")
def attention(q, k, v):
    return tp.attention(q, k, v)


@tp.program("b t -> b t")
def transform(x):
    return tp.Map(lambda row: jnp.abs(jnp.fft.fft(row)), "b [t] -> b [t]")(x)


@tp.program("b y x, o -> b o")
def unused(x, o):
    return tp.Map(lambda x, o: x.sum((1, 2))[:, None] * o[None], "b [y] [x], o -> b o")(x, o)


@tp.program("y x -> y x")
def stencil(u):
    def step(block):
        return block[1:-1] + block[2:] - block[:-2]

    return tp.Map(step, "(y+[w]-1) x -> y x", sizes={"w": 3}, boundary="zero")(u)


@tp.program("t d -> t d")
def scan(x):
    return tp.Scan(tp.monoids.Sum, "t d -> t d", over="t")(x)


PROGRAMS: dict[str, Callable[[], Graph]] = {
    "product": lambda: graph_of(product, (64, 96), (96, 160)),
    "elementwise": lambda: graph_of(elementwise, (16, 24, 40)),
    "fold": lambda: graph_of(moments, (48, 112)),
    "attention": lambda: graph_of(attention, (4, 48, 16), (4, 80, 16), (4, 80, 24)),
    "transform": lambda: graph_of(transform, (48, 128)),
    "reduction in a map": lambda: graph_of(unused, (12, 8, 10), (24,)),
    "stencil": lambda: graph_of(stencil, (96, 64)),
    "scan": lambda: graph_of(scan, (96, 32)),
}


def operation_of(graph: Graph) -> tuple[Shaped, tuple[Any, ...]]:
    """The operation of a program that has the most to compute."""
    found: list[tuple[Shaped, tuple[Any, ...]]] = []
    for number, node in enumerate(graph.nodes):
        if hasattr(node, "operation"):
            shaped = graph.shaped(number)
            found.append((shaped, tuple(graph.type_of(ref).struct for ref in node.operands)))
    return found[-1]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arithmetic_is_counting_at_sizes_nobody_looked_at(name: str, backward: bool):
    shaped, operands = operation_of(PROGRAMS[name]())
    part = Part("result", frozenset(), by=(0,) if backward else ())
    found = marginal(shaped.operation, operands, part)
    chance = random.Random(name)
    for _ in range(3):
        sizes = {dim: chance.randint(2, size) if dim in found.names else size for dim, size in shaped.sizes.items()}
        exact, fitted = found.exact(tuple(sorted(sizes.items()))), found.at(sizes)
        assert fitted.form == exact.form
        # Which value is the largest may change, and only its magnitude counts.
        assert fitted.largest == pytest.approx(exact.largest, rel=0.3, abs=8)
        fitted, exact = (replace(each, largest=0.0) for each in (fitted, exact))
        assert fitted.numbers == pytest.approx(exact.numbers, rel=1e-3, abs=8)


@pytest.mark.parametrize("name", ["product", "elementwise", "fold", "attention", "transform", "stencil"])
def test_kernels_are_linear_along_their_dimensions(name: str):
    shaped, operands = operation_of(PROGRAMS[name]())
    assert marginal(shaped.operation, operands, Part("result", frozenset())).is_linear


def test_one_more_row_costs_a_row():
    shaped, operands = operation_of(PROGRAMS["product"]())
    found = marginal(shaped.operation, operands, Part("result", frozenset()))
    sizes = {**shaped.sizes, **dict(zip(shaped.signature.dims, (10, 20, 30), strict=True))}
    b, k, n = shaped.signature.dims
    assert found.step(b, sizes).flops == pytest.approx(2 * sizes[k] * sizes[n])
    assert found.step(k, sizes).flops == pytest.approx(2 * sizes[b] * sizes[n])


def test_a_cost_that_is_not_linear_is_counted_anew():
    @tp.program("b t -> b t")
    def squares(x):
        def kernel(rows):
            return rows + sum(rows.shape[0] * jnp.tanh(rows) for _ in range(rows.shape[0]))

        return tp.Map(kernel, "b [t] -> b [t]")(x)

    # It computes more for each row the more rows there are, which no law allows; its price is right all the same.
    shaped, operands = operation_of(graph_of(squares, (16, 8)))
    found = marginal(shaped.operation, operands, Part("result", frozenset()))
    assert not found.is_linear
    sizes = {**shaped.sizes, found.names[0]: 6}
    assert found.at(sizes).transcendental == 6 * 6 * 8


def found_for(kernel: Any, signature: str, *shapes: tuple[int, ...], **options: Any) -> Any:
    graph = graph_of(tp.Map(kernel, signature, **options), *shapes)
    shaped, operands = operation_of(graph)
    return marginal(shaped.operation, operands, Part("result", frozenset()))


def test_dimensions_that_stand_together_are_one_but_for_windows_and_coordinates():
    together = found_for(jnp.tanh, "b s -> b s", (64, 48))
    assert together.groups == (("b", "s"),)
    windows = found_for(lambda x: x[1:] + x[:-1], "(y+[w]) x -> y x", (65, 48), sizes={"w": 2})
    assert windows.groups == (("y",), ("x",))
    coordinates = found_for(lambda x, at: x * at, "b s, @s -> b s", (64, 48))
    assert coordinates.groups == (("b",), ("s",))


def test_where_dimensions_that_stand_together_are_not_one_each_is_by_itself():
    # A row more or less whatever the rows: linear in each dimension, not in their product.
    found = found_for(
        lambda x: x + jnp.tanh(lax.dynamic_slice_in_dim(x, jnp.argmin(x[0, 0] * 0), 1)), "b s -> b s", (64, 48)
    )
    assert found.is_linear and found.groups == (("b",), ("s",))
    assert found.at({"b": 20, "s": 10}).transcendental == pytest.approx(10)
    # The sum, and where the row stands.
    assert found.at({"b": 20, "s": 10}).other == pytest.approx(205)


def test_kernels_that_refuse_sizes_are_counted_as_they_come():
    def eights(x: Any) -> Any:
        if x.shape[0] % 24:
            raise ValueError("a multiple of 24")
        return jnp.tanh(x)

    found = found_for(eights, "b s -> b s", (72, 48))
    assert not found.is_linear
    assert found.at({"b": 24, "s": 48}).transcendental == 24 * 48


def test_kernels_that_read_something_else_at_some_sizes_are_counted_as_they_come():
    found = found_for(lambda x, y: x + (y if x.shape[0] > 40 else x), "b s, b s -> b s", (64, 48), (64, 48))
    assert found.at({"b": 64, "s": 48}).reads == (1.0, 1.0)
    assert found.at({"b": 20, "s": 48}).reads == (1.0, 0.0)


def test_platforms_and_gradients_share_the_programs_of_kernels(monkeypatch: pytest.MonkeyPatch):
    """A block of prime sizes and the whole one are traced forwards once; backwards the first alone: they are one."""
    traced: list[bool] = []
    monkeypatch.setattr(subject, "trace", lambda *given: traced.append(False) or trace(*given))
    monkeypatch.setattr(subject, "trace_backward", lambda *given: traced.append(True) or trace_backward(*given))
    shaped, operands = operation_of(graph_of(tp.Map(lambda x: jnp.sinh(x) + 0.125, "b s -> b s"), (14, 22)))
    for platform in ("cuda", "tpu", ""):
        for by in ((), (0,)):
            assert marginal(shaped.operation, operands, Part("result", frozenset(), platform, by)).is_linear
    assert sorted(traced) == [False] * 2 + [True]


def test_gradients_that_look_at_sizes_by_themselves_are_counted_as_they_come():
    """The forward pass is one program at all sizes, and so says nothing of a rule that is the user's own."""

    @jax.custom_vjp
    def passed(x: Any) -> Any:
        return x * 2.0

    def back(x: Any, cotangent: Any) -> tuple[Any]:
        return ((jnp.sin(x) if x.shape[0] > 40 else x) * cotangent,)

    passed.defvjp(lambda x: (x * 2.0, x), back)
    shaped, operands = operation_of(graph_of(tp.Map(passed, "b s -> b s"), (64, 48)))
    found = marginal(shaped.operation, operands, Part("result", frozenset(), by=(0,)))
    assert found.at({"b": 64, "s": 48}).transcendental == 64 * 48
    assert found.at({"b": 20, "s": 48}).transcendental == 0
