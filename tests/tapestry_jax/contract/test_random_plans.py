"""Small programs drawn at random under placements drawn at random: values, gradients and the contract."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
from hypothesis import strategies as st

import tapestry_jax as tp
from tests.contract import assert_contract, assert_same
from tests.tapestry_jax.draw import named, normal
from tests.thoroughly import thoroughly

matmul = tp.einsum("i k, k n -> i n")
tanh = tp.Map(jnp.tanh)
DIMS = ("a", "b")


def smooth(block: Any) -> Any:
    return (block[:-2] + 2 * block[1:-1] + block[2:]) / 4


# Every step with what it is in jnp. `x` has the axes `a b`; `axis` is 0 or 1; `w` is a square matrix for `b`.


def _softmax(x: Any, w: Any, axis: int) -> Any:
    signature = ("[a] b -> [a] b", "a [b] -> a [b]")[axis]
    return tp.Map(jax.nn.softmax if axis else _softmax_rows, signature)(x)


def _softmax_rows(x: Any) -> Any:
    return jax.nn.softmax(x, 0)


def _cumulative(x: Any, w: Any, axis: int) -> Any:
    return tp.Scan(tp.monoids.Sum, "a b -> a b", over=DIMS[axis], reverse=bool(axis))(x)


def _centred(x: Any, w: Any, axis: int) -> Any:
    return x - tp.fold(tp.aggregators.Mean(), f"a b -> {DIMS[1 - axis]}")(x)


def _log_normalised(x: Any, w: Any, axis: int) -> Any:
    return x - tp.fold(tp.aggregators.LogSumExp(), f"a b -> {DIMS[1 - axis]}")(x)


def _product(x: Any, w: Any, axis: int) -> Any:
    return matmul(x, w).rename(c="b")


def _residual(x: Any, w: Any, axis: int) -> Any:
    return x + tanh(matmul(tanh(matmul(x, w).rename(c="b")), w)).rename(c="b") * 0.5


def _stencil(x: Any, w: Any, axis: int) -> Any:
    if axis:
        return x
    return tp.Map(smooth, "(y+[dy]-1) x -> y x", sizes={"dy": 3}, boundary="edge")(x)


def _stencil_in_jnp(x: Any, w: Any, axis: int) -> Any:
    return x if axis else smooth(jnp.pad(x, ((1, 1), (0, 0)), mode="edge"))


def _relaxed(x: Any, w: Any, axis: int) -> Any:
    step = tp.Map(smooth, "(y+[dy]-1) x -> y x", sizes={"dy": 3}, boundary="periodic")
    return tp.iterate(step, 3)(x) if axis == 0 else x


def _relaxed_in_jnp(x: Any, w: Any, axis: int) -> Any:
    for _ in range(3 if axis == 0 else 0):
        x = smooth(jnp.pad(x, ((1, 1), (0, 0)), mode="wrap"))
    return x


STEPS = {
    "tanh": (lambda x, w, axis: tanh(x), lambda x, w, axis: jnp.tanh(x)),
    "softmax": (_softmax, lambda x, w, axis: jax.nn.softmax(x, axis)),
    "cumulative": (
        _cumulative,
        lambda x, w, axis: jnp.cumsum(x[:, ::-1], 1)[:, ::-1] if axis else jnp.cumsum(x, 0),
    ),
    "centred": (_centred, lambda x, w, axis: x - jnp.mean(x, axis, keepdims=True)),
    "log normalised": (_log_normalised, lambda x, w, axis: x - jax.nn.logsumexp(x, axis, keepdims=True)),
    "product": (_product, lambda x, w, axis: x @ w),
    "residual": (_residual, lambda x, w, axis: x + jnp.tanh(jnp.tanh(x @ w) @ w) * 0.5),
    "stencil": (_stencil, _stencil_in_jnp),
    "relaxed": (_relaxed, _relaxed_in_jnp),
}
# What each dimension may be given so that no mesh axis is used twice.
AXES = ((), ("data",), ("model",), ("data", "model"), ("model", "data"))
PLACEMENTS = [
    {dim: axes for dim, axes in zip("abc", chosen, strict=True) if axes}
    for chosen in itertools.product(AXES, repeat=3)
    if not set(chosen[0]) & set(chosen[1])
    and not set(chosen[0]) & set(chosen[2])
    and not set(chosen[1]) & set(chosen[2])
]

LOOP_ITEMS = type(tp.chunks(2)), type(tp.ring("data"))
LOOPS = (tp.chunks(2), tp.chunks(size=1), tp.chunks(size=2))


@st.composite
def placements(draw: Any) -> dict[str, tuple[Any, ...]]:
    """Mesh axes in blocks or stripes, rings, chunks and halos for every dimension, in any order of loops."""
    axes: dict[str, tuple[Any, ...]] = dict.fromkeys("abc", ()) | draw(st.sampled_from(PLACEMENTS))
    taken = {dim: set(each) for dim, each in axes.items()}
    for dim in axes:
        kind = draw(st.sampled_from(("mesh", "mesh", "chunks", "chunks", "ring", "halo")))
        if axes[dim] and draw(st.integers(0, 3)) == 0:
            axes[dim] = (tp.striped(*axes[dim]),)
        if kind == "halo":
            axes[dim] = (*axes[dim], tp.halo(draw(st.integers(1, 3))))
        others = sorted(set().union(*(each for other, each in taken.items() if other != dim)) - taken[dim])
        if kind == "ring" and others:
            axes[dim] = (*axes[dim], tp.ring(draw(st.sampled_from(others))))
        if kind == "chunks" or (kind == "ring" and draw(st.booleans())):
            axes[dim] = (*axes[dim], draw(st.sampled_from(LOOPS)))
    order = draw(st.permutations("abc"))
    return {dim: axes[dim] for dim in order if axes[dim]}


# What a plan may be refused for: a placement that the program has no use for, or that it cannot hold.
REFUSALS = (
    "cuts nothing",
    "whole everywhere",
    "no dimension of the graph",
    "nothing else is placed",
    "is folded",
    "on the mesh axis",
    "more than it has cells",
    "share the loop",
    "go round the mesh axis",
    "goes round a ring",
    "a halo, but",
)
# Two by four devices, and three, among which nothing divides.
MESHES = ({"data": 2, "model": 4}, {"data": 3, "model": 1}, {"data": 1, "model": 3})

programs = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 1)), min_size=1, max_size=4)
sizes = st.sampled_from([(8, 4), (5, 6), (3, 4)])
layouts = st.sampled_from(
    [{}, {"a": tp.padded("data")}, {"b": tp.padded("model")}, {"a": tp.padded("model"), "b": tp.padded("data")}]
)

# Each is compiled three times, and every run draws the same; it draws pairs of tests/pairs besides.
EXAMPLES = 12 if thoroughly() else 3


@hypothesis.given(
    st.sampled_from(MESHES), programs, sizes, placements(), layouts, layouts, st.randoms(use_true_random=False)
)
@hypothesis.settings(max_examples=EXAMPLES, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck))
def test_any_plan_of_any_program_is_the_program(devices, steps, shape, entries, stored, wanted, random):
    mesh = tp.mesh(jax.devices("cpu"), **devices)
    args = (normal(*shape), normal(shape[1], shape[1], seed=1, scale=0.5))

    def program(x, w):
        for step, axis in steps:
            x = STEPS[step][0](x, w, axis)
        return x

    def reference(x, w):
        for step, axis in steps:
            x = STEPS[step][1](x, w, axis)
        return x

    graph = tp.trace(program, *named("a b, b c", *args))
    paths = sorted({node.path for node in graph.nodes[2:] if hasattr(node, "operation")})
    exceptions = {path: {"a": None} for path in paths if "a" in entries and random.random() < 0.3}
    try:
        plan = tp.plan(graph, mesh, entries, ops=exceptions, inputs={"x": stored}, outputs={"y": wanted})
    except tp.PlanError as error:
        if not any(text in str(error) for text in REFUSALS):
            raise
        hypothesis.reject()
    plan.verify()
    assert_contract(plan, at_most=any(isinstance(item, LOOP_ITEMS) for items in entries.values() for item in items))
    assert_same(plan, args, reference=reference)
