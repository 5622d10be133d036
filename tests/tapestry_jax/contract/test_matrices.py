"""The contract on chains of matrix products: data, tensor and sequence parallelism, even and uneven."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tests.contract import assert_holds, inside
from tests.tapestry_jax.draw import named, normal

gelu = tp.Map(jax.nn.gelu)
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)


@tp.program("batch embed, embed mlp, mlp out -> batch out")
def mlp(x, w1, w2):
    return matmul(gelu(matmul(x, w1)), w2)


@jax.jit
def reference_mlp(x, w1, w2):
    return jax.nn.gelu(x @ w1) @ w2


def mlp_arguments(batch, embed, width, out):
    return normal(batch, embed), normal(embed, width, seed=1), normal(width, out, seed=2)


EVEN, UNEVEN = (8, 16, 32, 4), (7, 5, 13, 3)


@pytest.mark.parametrize(
    ("entries", "sizes"),
    [
        pytest.param({"batch": "data", "mlp": "model"}, EVEN, marks=pytest.mark.thorough),
        pytest.param({"batch": "data", "mlp": "model"}, UNEVEN, marks=pytest.mark.thorough),
        pytest.param({"batch": ("data", "model")}, UNEVEN, marks=pytest.mark.thorough),
        pytest.param({"embed": "data", "mlp": "model"}, EVEN, marks=pytest.mark.thorough),
        pytest.param({"embed": "model", "batch": "data", "out": "model"}, EVEN, marks=pytest.mark.thorough),
        ({"embed": "model", "batch": "data", "out": "model"}, UNEVEN),
        pytest.param({"mlp": ("model", "data")}, UNEVEN, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_contract_mlp(mesh2x4, entries, sizes):
    args = mlp_arguments(*sizes)
    assert_holds(tp.plan(tp.trace(mlp, *args), mesh2x4, entries), args, reference=reference_mlp)


def test_contract_mlp_by_some_arguments(mesh2x4):
    args = mlp_arguments(*UNEVEN)
    plan = tp.plan(tp.trace(mlp, *args), mesh2x4, {"batch": "data", "mlp": "model"})
    assert_holds(plan, args, grad=(1, 2))


@pytest.mark.parametrize("batch", [pytest.param(6, marks=pytest.mark.thorough), 7])
def test_contract_mlp_on_three_devices(batch):
    args = mlp_arguments(batch, 5, 8, 4)
    plan = tp.plan(
        tp.trace(mlp, *args), tp.mesh(three=3), {"batch": "three"}, ops={"matmul": {"batch": None, "mlp": "three"}}
    )
    assert_holds(plan, args, reference=reference_mlp)


def test_contract_mlp_axes_of_size_one():
    args = mlp_arguments(4, 6, 8, 4)
    plan = tp.plan(tp.trace(mlp, *args), tp.mesh(data=1, model=2), {"batch": "data", "mlp": "model"})
    assert_holds(plan, args, reference=reference_mlp)
    assert {axis for each in plan.collectives(grad=True) for axis in each.axes} == {"model"}


def test_contract_one_device():
    args = mlp_arguments(4, 6, 8, 4)
    plan = tp.plan(tp.trace(mlp, *args), tp.mesh(data=1), {"batch": "data"})
    assert_holds(plan, args, reference=reference_mlp)
    assert plan.collectives(grad=True) == ()


@pytest.mark.parametrize("size", [pytest.param(8, marks=pytest.mark.thorough), 7])
def test_contract_sequence_parallel_reduces_and_scatters(mesh8, size):
    # Each device has a part of the hidden dimension, and wants the sums of its own rows only.
    @tp.program("row embed, embed mlp, mlp out -> row out")
    def block(x, w1, w2):
        return gelu(matmul(gelu(matmul(x, w1)), w2))

    args = (normal(size, 8), normal(8, 16, seed=1), normal(16, 8, seed=2))
    whole = {"row": None}
    plan = tp.plan(
        tp.trace(block, *args),
        mesh8,
        {"mlp": "data", "row": "data"},
        ops={"matmul": whole, "matmul_1": whole, "gelu": whole},
    )
    assert_holds(plan, args, reference=lambda x, w1, w2: jax.nn.gelu(reference_mlp(x, w1, w2)))
    assert [each.kind for each in inside(plan)] == ["reduce-scatter"]


# Under another name it is in every run.
@pytest.mark.thorough
def test_contract_scattered_output(mesh8):
    args = (normal(8, 16), normal(16, 5, seed=1))
    graph = tp.trace(tp.program("row k, k out -> row out")(lambda a, b: matmul(a, b)), *args)
    plan = tp.plan(graph, mesh8, {"k": "data"}, outputs={"y": {"row": "data"}})
    assert_holds(plan, args, reference=jnp.matmul)
    assert [each.kind for each in plan.collectives()] == ["reduce-scatter"]


def test_contract_scattered_output_under_another_name(mesh8):
    args = (normal(8, 16), normal(16, 5, seed=1))
    graph = tp.trace(lambda a, b: matmul(a, b).rename(row="other"), *named("row k, k out", *args))
    plan = tp.plan(graph, mesh8, {"k": "data"}, outputs={"y": {"other": "data"}})
    assert_holds(plan, args, reference=jnp.matmul)
    assert [each.kind for each in plan.collectives()] == ["reduce-scatter"]


def test_contract_parameter_stored_over_the_batch_axis(mesh8):
    # FSDP: gathered where it is used, its gradient scattered back.
    args = mlp_arguments(8, 16, 8, 4)
    plan = tp.plan(
        tp.trace(mlp, *args), mesh8, {"batch": "data"}, inputs={"w1": {"embed": "data"}, "w2": {"mlp": "data"}}
    )
    assert_holds(plan, args, reference=reference_mlp)
    kinds = [(each.kind, each.backward) for each in plan.collectives(grad=True)]
    assert kinds.count(("all-gather", False)) == 2
    assert kinds.count(("reduce-scatter", True)) == 2


def test_contract_einsum_of_three(mesh2x4):
    b, s, d = 5, 9, 3
    args = (normal(b, s, d), normal(d, 4, 2, seed=1), normal(b, 4, seed=2))
    product = tp.einsum("b s k, k h d, b h -> s h d")
    graph = tp.trace(tp.program("b s k, k h d, b h -> s h d")(lambda x, w, m: product(x, w, m)), *args)
    plan = tp.plan(graph, mesh2x4, {"b": "data", "s": "model"})
    assert_holds(plan, args, reference=lambda x, w, m: jnp.einsum("bsk,khd,bh->shd", x, w, m))


def test_contract_one_gather_for_two_readers(mesh8):
    # `x` is stored cut; both products read it whole, so it is gathered once.
    @tp.program("row k, k a, k b -> row a, row b")
    def two(x, w, v):
        return matmul(x, w), matmul(x, v)

    args = (normal(8, 4), normal(4, 8, seed=1), normal(4, 16, seed=2))
    plan = tp.plan(tp.trace(two, *args), mesh8, {"a": "data", "b": "data"}, inputs={"x": {"row": "data"}})
    assert_holds(plan, args, reference=lambda x, w, v: (x @ w, x @ v))
    assert [each.kind for each in plan.collectives()] == ["all-gather"]
