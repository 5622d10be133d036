"""Second derivatives of functions whose authors wrote the first: no loop in time forgets what they wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.ruled import odd

N, K, LAYERS = 8, 6, 4
SOURCE = np.random.default_rng(0)
X = jnp.asarray(SOURCE.standard_normal((N, K)), jnp.float32)
W = jnp.asarray(SOURCE.standard_normal((LAYERS, K)), jnp.float32)
MOVED = jnp.asarray(SOURCE.standard_normal((N, K)), jnp.float32)


def either(x: Any) -> Any:
    return jax.lax.cond(jnp.zeros(()) > 1e9, jnp.cos, odd, x)


def again(x: Any) -> Any:
    return jax.checkpoint(odd)(x)


def jitted(x: Any) -> Any:
    return jax.jit(lambda x: odd(x) * 2)(x)


def many(x: Any) -> Any:
    return jax.vmap(jax.vmap(odd))(x)


@jax.custom_jvp
def doubled(x: Any) -> Any:
    return 2 * x


@doubled.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return doubled(*primals), doubled(*tangents)


@jax.custom_jvp
def linear_inside(x: Any) -> Any:
    """Its derivative calls another one of tangents, which is turned around with it."""
    return odd(x)


@linear_inside.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (moved,) = primals, tangents
    return linear_inside(x), linear_inside(x) * doubled(moved) + doubled(odd(x) * moved)


KERNELS = {
    "odd": odd,
    "either": either,
    "again": again,
    "jitted": jitted,
    "many": many,
    "linear": linear_inside,
    "softplus": jax.nn.softplus,
}


def mapped(kernel: Any) -> Callable[..., Any]:
    return tp.program("n k -> n k")(lambda x: tp.Map(kernel, "n k -> n k")(x))


def folded(kernel: Any) -> Callable[..., Any]:
    fold = tp.Reduce(lambda x: kernel(x).sum(0), "n k -> k", tp.monoids.Sum)
    return tp.program("n k -> k")(lambda x: fold(x))


def peaked(kernel: Any) -> Callable[..., Any]:
    fold = tp.fold(tp.aggregators.LogSumExp(), "n k -> k")
    return tp.program("n k -> k")(lambda x: fold(tp.Map(kernel, "n k -> n k")(x)))


def scanned(kernel: Any) -> Callable[..., Any]:
    scan = tp.Scan(tp.monoids.Sum, "n k -> n k", "n", kernel=kernel)
    return tp.program("n k -> n k")(lambda x: scan(x))


def paired(kernel: Any) -> Callable[..., Any]:
    fold = tp.Reduce(lambda x, y: kernel(x[:, None] + y).sum(1), "n k, m k -> n k", tp.monoids.Sum)
    return tp.program("n k -> n k")(lambda x: fold(x, x.rename(n="m")))


def stepped(kernel: Any) -> Callable[..., Any]:
    step = tp.Map(lambda x: kernel(x[:-2]) + x[2:], "(n+[w]-1) k -> n k", sizes={"w": 3}, boundary="zero")
    return tp.program("n k -> n k")(lambda x: tp.iterate(step, 3)(x))


def in_steps(kernel: Any) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        for _ in range(3):
            wide = jnp.pad(x, ((1, 1), (0, 0)))
            x = kernel(wide[:-2]) + wide[2:]
        return x

    return run


@jax.custom_jvp
def times(a: Any, b: Any) -> Any:
    """A product, of which JAX knows half of the derivative if nobody tells."""
    return a * jax.lax.stop_gradient(b)


@times.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (a, b), (of_a, of_b) = primals, tangents
    return times(a, b), of_a * b + a * of_b


PRODUCT = tp.Monoid(1, times, commutative=True)


def multiplied(kernel: Any) -> Callable[..., Any]:
    scan = tp.Scan(PRODUCT, "n k -> n k", "n", kernel=kernel)
    return tp.program("n k -> n k")(lambda x: scan(x))


CHUNKS, MESH = {"n": tp.chunks(4)}, {"n": ("data", tp.chunks(2))}
RING = {"n": "data", "m": tp.ring("data")}
PROGRAMS: dict[str, tuple[Any, Callable[..., Any], list[Any]]] = {
    "mapped": (mapped, lambda kernel: kernel, [CHUNKS, MESH]),
    "folded": (folded, lambda kernel: lambda x: kernel(x).sum(0), [CHUNKS, MESH]),
    "peaked": (peaked, lambda kernel: lambda x: jax.nn.logsumexp(kernel(x), 0), [CHUNKS, MESH]),
    "scanned": (scanned, lambda kernel: lambda x: jnp.cumsum(kernel(x), 0), [CHUNKS, MESH]),
    "multiplied": (multiplied, lambda kernel: lambda x: jnp.cumprod(kernel(x), 0), [{}, CHUNKS, MESH, {"n": "model"}]),
    "paired": (paired, lambda kernel: lambda x: kernel(x[:, None] + x).sum(1), [RING, {"m": tp.chunks(2)}]),
    "stepped": (stepped, in_steps, [{}, {"n": "model"}, {"k": tp.chunks(3)}]),
}
CASES = [
    *((program, "odd", plan) for program, (_, _, plans) in PROGRAMS.items() for plan in plans),
    *(("mapped", kernel, CHUNKS) for kernel in KERNELS if kernel != "odd"),
    ("mapped", "linear", MESH),
]


def forward_over_reverse(function: Callable[..., Any], x: Any, moved: Any) -> Any:
    return jax.jvp(jax.grad(lambda x: (function(x) ** 3).sum()), (x,), (moved,))[1]


def reverse_over_reverse(function: Callable[..., Any], x: Any, moved: Any) -> Any:
    first = jax.grad(lambda x: (function(x) ** 3).sum())
    return jax.grad(lambda x: (first(x) * moved).sum())(x)


SECOND = pytest.mark.parametrize("second", [forward_over_reverse, reverse_over_reverse])


@SECOND
@pytest.mark.parametrize(("program", "kernel", "plan"), CASES)
def test_plans_in_time_keep_derivatives_that_somebody_wrote(
    mesh2x4: Any, second: Any, program: str, kernel: str, plan: Any
) -> None:
    made, plain, _ = PROGRAMS[program]
    # Where softplus has a slope of its author's own.
    x = X.at[:2].set(0) if kernel == "softplus" else X
    run = tp.plan(tp.trace(made(KERNELS[kernel]), x), mesh2x4, plan).compile()
    close(second(run, x, MOVED), second(plain(KERNELS[kernel]), x, MOVED))


@SECOND
@pytest.mark.parametrize(
    ("plan", "remat"),
    [
        ({}, False),
        ({}, True),
        ({"n": tp.chunks(2)}, True),
        ({"layer": "model", "n": tp.chunks(2)}, False),
        ({"layer": "model", "n": ("data", tp.chunks(2))}, True),
    ],
)
def test_so_do_layers_and_stages(mesh2x4: Any, second: Any, plan: Any, remat: bool) -> None:
    layer = tp.program("n k, k -> n k")(tp.Map(lambda x, w: odd(x * w), "n k, k -> n k"))
    graph = tp.trace(tp.stack(layer, LAYERS), X, tp.TensorType({"layer": LAYERS, "k": K}, jnp.float32))
    run = tp.plan(graph, mesh2x4, plan, remat={"stack": True} if remat else None).compile()

    def in_layers(x: Any) -> Any:
        for w in W:
            x = odd(x * w)
        return x

    close(second(lambda x: run(x, W), X, MOVED), second(in_layers, X, MOVED))


@SECOND
def test_so_do_plans_that_are_mapped(mesh2x4: Any, second: Any) -> None:
    run = tp.plan(tp.trace(mapped(odd), X), mesh2x4, CHUNKS).compile()
    close(second(lambda x: jax.vmap(run)(x[None])[0], X, MOVED), second(odd, X, MOVED))


@SECOND
@pytest.mark.parametrize("flag", [False, True])
def test_so_do_choices_that_stand_still(mesh2x4: Any, second: Any, flag: bool) -> None:
    choose = tp.Map(lambda x, flag: jax.lax.cond(flag, odd, jnp.cos, x), "n k,  -> n k")
    graph = tp.trace(choose, X, tp.TensorType({}, jnp.bool_))
    run = tp.plan(graph, mesh2x4, CHUNKS).compile()
    close(second(lambda x: run(x, jnp.asarray(flag)), X, MOVED), second(odd if flag else jnp.cos, X, MOVED))


@SECOND
@pytest.mark.parametrize("entry", ["data", tp.chunks(2), ("data", tp.chunks(2))])
@pytest.mark.parametrize("turns", [1, 3])
def test_so_do_extrema_over_devices_in_loops(mesh2x4: Any, second: Any, entry: Any, turns: int) -> None:
    # Their derivative is written, and sends.
    largest = tp.fold(tp.aggregators.Max(), "n k -> k")
    grown = tp.Map(lambda top, x: x + 0.1 * jnp.sin(top) ** 2, "k, n k -> n k")
    function = tp.iterate(lambda x: grown(largest(x), x), turns)
    run = tp.plan(tp.trace(function, X), mesh2x4, {"n": entry}).compile()
    close(second(run, X, MOVED), second(unrolled(turns), X, MOVED))


def unrolled(turns: int) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for _ in range(turns):
            x = x + 0.1 * jnp.sin(x.max(0)) ** 2
        return x

    return run


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * float(jnp.abs(expected).max()))
