"""Planned loops that end by a condition: the steps of every mesh are those of one device, and nothing hangs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse.linalg import cg as scipy_cg

import tapestry_jax as tp
from tapestry_jax.planning.proof.prove import prove
from tapestry_jax.planning.scheduling.schedule import Repeat
from tests.contract import assert_contract, assert_same

RNG = np.random.default_rng(0)
MATVEC, DOT = tp.einsum("i j, j -> i"), tp.einsum("i, i -> ")
A = RNG.normal(size=(13, 13))
A = (A @ A.T / 20 + np.eye(13)).astype(np.float32)
B = RNG.normal(size=13).astype(np.float32)
POINTS = RNG.permutation(
    np.concatenate([RNG.normal(size=(14, 2)) + centre for centre in ([0, 0], [7, 0], [0, 8])])
).astype(np.float32)


@tp.program("i j, i -> i, , ")
def gradients(a: Any, b: Any) -> Any:
    """Conjugate gradients."""

    def step(x: Any, r: Any, p: Any, rr: Any) -> Any:
        q = MATVEC(a, p.rename(i="j"))
        length = rr / DOT(p, q)
        x, r = x + length * p, r - length * q
        after = DOT(r, r)
        return x, r, r + after / rr * p, after

    found = tp.iterate(step, until=lambda x, r, p, rr: rr < 1e-8, at_most=40)(0 * b, b, b, DOT(b, b))
    return found.state[0], found.steps, found.converged


@tp.program("n d, k d -> k d, , ")
def means(points: Any, centres: Any) -> Any:
    """k-means."""

    def step(centres: Any) -> Any:
        apart = tp.Map(lambda p, c: ((p[:, None] - c[None]) ** 2).sum(-1), "n [d], k [d] -> n k")(points, centres)
        near = tp.Map(lambda far: jax.nn.one_hot(far.argmin(-1), far.shape[-1]), "n [k] -> n [k]")(apart)
        return tp.einsum("n k, n d -> k d")(near, points) / tp.einsum("n k -> k")(near)

    return tuple(tp.iterate(step, until=tp.unchanged(atol=1e-5), at_most=20)(centres))


@tp.program("n, k -> k, k, , ")
def mixture(points: Any, centres: Any) -> Any:
    """Expectation and maximisation: means and weights of normal distributions of variance 1."""
    softmax = tp.Map(jax.nn.softmax, "n [k] -> n [k]")

    def step(centres: Any, weights: Any) -> Any:
        logits = tp.Map(lambda x, c, w: jnp.log(w)[None] - (x[:, None] - c[None]) ** 2 / 2, "n, k, k -> n k")
        share = softmax(logits(points, centres, weights))
        total = tp.einsum("n k -> k")(share)
        return tp.einsum("n k, n -> k")(share, points) / total, total / points.shape[0]

    found = tp.iterate(step, until=tp.unchanged(atol=1e-4), at_most=60)(centres, centres * 0 + 1 / centres.shape[0])
    return (*found.state, found.steps, found.converged)


def numpy_means(points: Any, centres: Any) -> tuple[Any, int]:
    for count in range(1, 21):
        nearest = ((points[:, None] - centres[None]) ** 2).sum(-1).argmin(-1)
        after = np.stack([points[nearest == k].mean(0) for k in range(len(centres))])
        if np.abs(after - centres).max() <= 1e-5:
            return after, count
        centres = after
    raise AssertionError


def numpy_mixture(points: Any, centres: Any) -> tuple[Any, Any, int]:
    weights = np.full(len(centres), 1 / len(centres))
    for count in range(1, 61):
        dense = weights * np.exp(-((points[:, None] - centres) ** 2) / 2)
        share = dense / dense.sum(1, keepdims=True)
        before = centres, weights
        weights = share.mean(0)
        centres = (share * points[:, None]).sum(0) / share.sum(0)
        if max(np.abs(centres - before[0]).max(), np.abs(weights - before[1]).max()) <= 1e-4:
            return centres, weights, count
    raise AssertionError


def test_until_blocks_are_stored() -> None:
    plan = tp.plan(tp.trace(gradients, A, B), tp.mesh(**UNEVEN), {"i": "data"})
    shards = plan.shards()
    assert type(shards).from_json(shards.to_json()).abstract() == plan.graph


def holds(plan: Any, args: Any, *, compiled: bool = False) -> None:
    """Proof, blocks, their oracle in NumPy, what is lowered, and values."""
    plan.verify()
    shards = plan.shards()
    shards.verify(plan.graph)
    shards.verify_lowered(plan.compile().jaxpr())
    assert shards.abstract() == plan.graph
    for ours, theirs in zip(jax.tree.leaves(shards.run(*args)), jax.tree.leaves(plan.graph(*args)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert_same(plan, args, grad=False)
    if compiled:
        assert_contract(plan, False, bounded=True)


MESH = {"data": 2, "model": 4}
UNEVEN = {"data": 3}


def test_until_conjugate_gradients_are_those_of_scipy() -> None:
    counted: list[Any] = []
    wanted, info = scipy_cg(A.astype(float), B.astype(float), rtol=0, atol=1e-4, callback=counted.append)
    x, steps, converged = gradients(A, B)
    assert (info, int(steps), bool(converged)) == (0, len(counted), True)
    np.testing.assert_allclose(x, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("mesh", "entries"),
    [
        (MESH, {"i": "model", "j": "data"}),
        pytest.param(UNEVEN, {"i": "data"}, marks=pytest.mark.thorough),
        pytest.param(MESH, {"i": ("data", "model"), "j": tp.chunks(3)}, marks=pytest.mark.thorough),
        pytest.param({"data": 1}, {"i": ("data", tp.chunks(2))}, marks=pytest.mark.thorough),
    ],
    ids=["two axes", "uneven", "chunks", "one device"],
)
def test_until_conjugate_gradients_planned(mesh: dict[str, int], entries: dict[str, Any]) -> None:
    plan = tp.plan(tp.trace(gradients, A, B), tp.mesh(**mesh), entries)
    holds(plan, (A, B), compiled=mesh is MESH and "j" in entries and entries["j"] == "data")


@pytest.mark.parametrize(
    "entries",
    [
        {"n": ("model", tp.chunks(3)), "k": "data"},
        pytest.param({"n": tp.chunks(5), "d": "data"}, marks=pytest.mark.thorough),
    ],
)
def test_until_means_are_those_of_numpy(entries: dict[str, Any]) -> None:
    args = POINTS, POINTS[:3]
    wanted, count = numpy_means(*(each.astype(float) for each in args))
    plan = tp.plan(tp.trace(means, *args), tp.mesh(**MESH), entries)
    holds(plan, args)
    centres, steps, converged = plan.compile()(*plan.put(*args))
    np.testing.assert_allclose(centres, wanted, rtol=1e-4, atol=1e-4)
    assert (int(steps), bool(converged)) == (count, True)


@pytest.mark.thorough  # of sums over rows in uneven chunks, as the means are
def test_until_mixture_is_that_of_numpy() -> None:
    args = POINTS[:, 0] + POINTS[:, 1], np.array([1.0, 6.0], np.float32)
    wanted = numpy_mixture(*(each.astype(float) for each in args))
    plan = tp.plan(tp.trace(mixture, *args), tp.mesh(**UNEVEN), {"n": ("data", tp.chunks(2))})
    holds(plan, args)
    centres, weights, steps, converged = plan.compile()(*plan.put(*args))
    np.testing.assert_allclose(centres, wanted[0], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(weights, wanted[1], rtol=1e-3, atol=1e-3)
    assert bool(converged) and abs(int(steps) - wanted[2]) <= 1


def test_until_collectives_are_bounds() -> None:
    plan = tp.plan(tp.trace(gradients, A, B), tp.mesh(**MESH), {"i": "model"})
    inside = [each for each in plan.collectives() if each.path.startswith("iterate/")]
    assert inside and all(each.bound and each.times == 40 and "x40" in str(each) for each in inside)
    assert all(str(each).endswith(", at most") for each in inside)
    assert "at most 40 turns" in plan.explain()
    assert plan.cost("h100").seconds > 0 and plan.timeline("h100").makespan > 0
    tp.search(plan.graph, plan.mesh, machine="h100").verify()


def test_until_gradients_are_refused_before_anything_is_compiled() -> None:
    plan = tp.plan(tp.trace(gradients, A, B), tp.mesh(**MESH), {"i": "model"})
    for ask in (plan.collectives, plan.explain, lambda grad: plan.cost("h100", grad=grad)):
        with pytest.raises(tp.PlanError, match=r".iterate. has no gradient: how many turns it takes depends on data"):
            ask(grad=True)
    with pytest.raises(tp.GraphError, match=r".iterate. has no gradient"):
        jax.grad(lambda b: plan.compile()(A, b)[0].sum())(B)


def test_until_derivative_forwards_is_that_of_one_device() -> None:
    plan = tp.plan(tp.trace(gradients, A, B), tp.mesh(**MESH), {"i": "model"})
    run = plan.compile()
    # The solution is linear in the right side.
    value, slope = jax.jvp(lambda b: run(A, b)[0], (B,), (B,))
    np.testing.assert_allclose(slope, value, rtol=1e-4, atol=1e-5)


def test_until_every_right_side_of_a_vmap_ends_by_itself() -> None:
    run = tp.plan(tp.trace(gradients, A, B), tp.mesh(**MESH), {"i": "model"}).compile()
    sides = np.stack([B, 0 * B])
    _, steps, converged = jax.vmap(run, in_axes=(None, 0))(A, sides)
    assert steps.tolist() == [int(gradients(A, side)[1]) for side in sides] and converged.all()


def test_until_is_passed_by_gradients_that_do_not_need_it() -> None:
    """A loop in time hands zeros back to what it reads; a loop without a gradient must not be asked for one."""

    @tp.program("n -> ")
    def loss(x: Any) -> Any:
        largest = tp.fold(tp.aggregators.Max(), "n -> ")
        found = tp.iterate(lambda u: u * 0.5, until=lambda u: largest(u) < 0.1, at_most=50)(x)
        return tp.fold(tp.aggregators.Sum(), "n -> ")(x * tp.Map(jax.lax.stop_gradient)(found.state))

    plan = tp.plan(tp.trace(loss, B), tp.mesh(**UNEVEN), {"n": ("data", tp.chunks(3))})
    plan.verify()
    assert_same(plan, (B,))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"derivative": "unrolled"}, marks=pytest.mark.thorough),
        {"derivative": "implicit", "terms": 12},
    ],
)
def test_until_gradients_of_plans_are_predicted(options: dict[str, Any]) -> None:
    a = 0.1 * A

    @tp.program("i j, i -> i")
    def solve(a: Any, b: Any) -> Any:
        def step(x: Any) -> Any:
            return MATVEC(a, x.rename(i="j")) + b

        return tp.iterate(step, until=tp.unchanged(atol=1e-4), at_most=12, **options)(0 * b).state

    plan = tp.plan(tp.trace(solve, a, B), tp.mesh(**MESH), {"i": "model", "j": "data"})
    plan.verify()
    assert_same(plan, (a, B))
    assert_contract(plan, bounded=True)


def test_until_proof_sees_a_loop_that_ends_otherwise() -> None:
    schedule = tp.plan(tp.trace(gradients, A, B), tp.mesh(**MESH), {"i": "model"}).schedule
    steps = [replace(step, until=False) if isinstance(step, Repeat) else step for step in schedule.steps]
    with pytest.raises(
        tp.PlanError, match=r".iterate. ends after all turns, where its program ends when a carry holds"
    ):
        prove(replace(schedule, steps=tuple(steps)))


def test_until_refuses_deep_halos_and_recomputing() -> None:
    blur = tp.Map(lambda u: (u[:-2] + u[2:]) / 2, "(x+[dx]-1) -> x", sizes={"dx": 3}, boundary="edge")

    @tp.program("x -> x")
    def smooth(u: Any) -> Any:
        return tp.iterate(blur, until=tp.unchanged(atol=1e-2), at_most=32)(u).state

    graph, mesh = tp.trace(smooth, B), tp.mesh(**UNEVEN)
    with pytest.raises(tp.PlanError, match="ends when a condition holds, so its turns cannot be taken 4 at once"):
        tp.plan(graph, mesh, {"x": ("data", tp.halo(depth=4))})
    with pytest.raises(tp.PlanError, match="names nothing that is repeated"):
        tp.plan(graph, mesh, {"x": "data"}, remat={"iterate": True})
    holds(tp.plan(graph, mesh, {"x": ("data", tp.halo(depth=1))}), (B,))


def test_until_asked_every_few_turns_takes_deep_halos() -> None:
    blur = tp.Map(lambda u: (u[:-2] + u[2:]) / 2, "(x+[dx]-1) -> x", sizes={"dx": 3}, boundary="edge")

    @tp.program("x -> x, ")
    def smooth(u: Any) -> Any:
        found = tp.iterate(lambda u: tp.iterate(blur, 4)(u), until=tp.unchanged(atol=1e-2), at_most=32)(u)
        return found.state, found.steps

    u = np.cos(np.arange(24, dtype=np.float32))
    plan = tp.plan(tp.trace(smooth, u), tp.mesh(**UNEVEN), {"x": ("data", tp.halo(depth=4))})
    holds(plan, (u,))
    assert sum(each.kind == "collective-permute" for each in plan.collectives()) == 2
