"""Plans compute what their graphs compute; plans that do not are found."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laws
import tapestry_jax as tp
from tapestry_jax.shards.parts import Merge
from tests.tapestry_jax.shards.proof.test_damage import changed

X, W1, W2 = (
    tp.TensorType({"batch": 8, "embed": 12}),
    tp.TensorType({"embed": 12, "mlp": 16}),
    tp.TensorType({"mlp": 16, "out": 3}),
)
matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
gelu = tp.Map(jax.nn.gelu)
MLP = tp.trace(lambda x, w1, w2: matmul(gelu(matmul(x, w1)), w2), X, W1, W2)


@dataclass
class FakePlan:
    """A plan that runs any function of the arguments."""

    graph: Any
    run: Any
    name: str = "fake"

    def compile(self):
        return self.run


def reference(x, w1, w2):
    return jax.nn.gelu(x @ w1) @ w2


def without_psum(x, w1, w2):
    """Each of two devices folds half of `mlp`; the sum over the devices is forgotten."""
    return reference(x, w1[:, :8], w2[:8])


@jax.custom_vjp
def doubled_gradient(x):
    return x


doubled_gradient.defvjp(lambda x: (x, None), lambda _, slope: (2 * slope,))


def summed_twice(x, w1, w2):
    """Two devices add up a gradient that each of them has in full."""
    return reference(x, doubled_gradient(w1), w2)


class Unsteady:
    """A sum whose order depends on when it runs."""

    def __init__(self):
        self.count = itertools.count()

    def __call__(self, x, w1, w2):
        return reference(x, w1, w2) + np.float32(1e-7 * (next(self.count) % 2))


def is_traced(x):
    """A traced array has no numbers."""
    try:
        np.asarray(x)
    except jax.errors.TracerArrayConversionError:
        return True
    return False


@jax.custom_batching.custom_vmap
def wrongly_mapped(x):
    return x


@wrongly_mapped.def_vmap
def _(size, batched, x):
    del size, batched
    return x[::-1], True


@dataclass
class Blocked(FakePlan):
    """A plan of one block, which it puts in the wrong place."""

    def compile(self):
        return self.run

    def put(self, *args):
        return tuple(jnp.roll(arg, 1, axis=0) for arg in args)

    def take(self, result):
        return result


@dataclass
class Unmerged(FakePlan):
    """A plan in whose blocks the sum over the devices is forgotten; what it compiles is right."""

    def shards(self):
        whole = tp.plan(self.graph, tp.mesh(data=2, model=4), {"mlp": "model"}).shards()
        return changed(Merge, lambda step, _: replace(step, over=()))(whole)


def scaled(by: int) -> tp.Plan:
    """A sum in chunks, times a number."""
    total = tp.Reduce(lambda x: jnp.sum(x, axis=0) * by, "n -> ", tp.monoids.Sum)
    return tp.plan(tp.trace(total, tp.TensorType({"n": 8})), tp.mesh(data=1), {"n": tp.chunks(size=2)})


class Unproved(tp.Plan):
    """One that is not asked whether its schedule computes its program."""

    def verify(self):
        """Say nothing."""


def of_another(plan, graph):
    """A plan that says it runs another graph than its schedule holds."""
    return Unproved(**{field.name: getattr(plan, field.name) for field in fields(plan)} | {"graph": graph})


MUTANTS = {
    "plan.blocks": Unmerged(MLP, reference),
    "plan.values": without_psum,
    "plan.gradients": summed_twice,
    "plan.nesting": lambda x, w1, w2: reference(x, w1, w2) * (2 if is_traced(x) else 1),
    "plan.retry": Unsteady(),
    "plan.mapping": lambda x, w1, w2: reference(wrongly_mapped(x), w1, w2),
    "plan.blocking": Blocked(MLP, reference),
    "plan.streamed": of_another(scaled(2), scaled(3).graph),
}


@pytest.mark.parametrize("law", MUTANTS)
def test_law_rejects_its_mutant(law):
    mutant = MUTANTS[law]
    plan = mutant if isinstance(mutant, FakePlan | tp.Plan) else FakePlan(MLP, mutant)
    with pytest.raises(laws.LawError, match=f"LAW {law} FAILED  (fake|Plan|Unproved)"):
        laws.assert_lawful(plan, laws=law, examples=5, shrink=False)


TOP = tp.trace(tp.Reduce(lambda x: jnp.max(x, axis=0), "x -> ", tp.monoids.Max), tp.TensorType({"x": 32}))


@jax.custom_jvp
def shared_by_halves(x):
    """A maximum whose gradient is shared by the halves of its elements that attain it, and then inside of each."""
    return jnp.max(x)


@shared_by_halves.defjvp
def _(primals, tangents):
    def halves(x):
        return jnp.maximum(jnp.max(x[:16]), jnp.max(x[16:]))

    return shared_by_halves(*primals), jax.jvp(halves, primals, tangents)[1]


UNEVEN = FakePlan(TOP, shared_by_halves)


@jax.custom_jvp
def first_is_favoured(x):
    """Minima along both axes, whose gradient goes by half more than its share to the first element that attains one."""
    return jnp.min(x, 0), jnp.min(x, 1)


def _favoured(x, v, axis):
    ties = (x == jnp.min(x, axis, keepdims=True)).astype(x.dtype)
    count = ties.sum(axis, keepdims=True)
    first = jnp.cumsum(ties, axis) * ties == 1
    share = ties / count + jnp.where(count > 1, jnp.where(first, 0.5, -0.5 / (count - 1)) * ties, 0)
    return (v * share).sum(axis)


@first_is_favoured.defjvp
def _(primals, tangents):
    x, v = *primals, *tangents
    return first_is_favoured(x), (_favoured(x, v, 0), _favoured(x, v, 1))


def lowest(axis, signature):
    return tp.Reduce(lambda x: jnp.min(x, axis=axis), signature, tp.monoids.Min)


BOTTOM = tp.trace(
    lambda x: (lowest(0, "a b -> b")(x), lowest(1, "a b -> a")(x)), tp.TensorType({"a": 5, "b": 3}, jnp.float32)
)
FAVOURED = FakePlan(BOTTOM, first_is_favoured)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("plan", [UNEVEN, FAVOURED], ids=["uneven", "favoured"])
def test_gradient_that_is_wrong_at_ties_alone_is_found_by_every_seed(plan, seed):
    with pytest.raises(laws.LawError, match=r"LAW plan\.gradients FAILED"):
        laws.assert_equivalent(plan, seed=seed)
    with pytest.raises(laws.LawError, match=r"LAW plan\.gradients FAILED"):
        laws.assert_lawful(plan, laws="plan.gradients", examples=2, seed=seed, shrink=False)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("graph", "run"), [(TOP, jnp.max), (BOTTOM, lambda x: (jnp.min(x, 0), jnp.min(x, 1)))])
def test_gradient_that_is_shared_by_all_that_tie_passes(graph, run, seed):
    assert "plan.gradients" in laws.assert_equivalent(FakePlan(graph, run), seed=seed).held


def test_gradient_that_is_wrong_at_ties_alone_is_found():
    with pytest.raises(laws.LawError, match=r"LAW plan\.gradients FAILED"):
        laws.assert_lawful(UNEVEN, laws="plan.gradients", examples=20, shrink=False)
    with pytest.raises(laws.LawError, match=r"LAW plan\.gradients FAILED"):
        laws.assert_equivalent(UNEVEN, args=(jnp.zeros(32).at[jnp.array([1, 2, 20])].set(5.0),))
    assert "plan.gradients" in laws.assert_equivalent(FakePlan(TOP, jnp.max), args=(jnp.ones(32),)).held


BEFORE = {
    "quotient": lambda x: x / 3,
    "sum": lambda x: x + 0.1,
    "product and sum": lambda x: x * 0.3 + 0.1,
    "a product used twice": lambda x: jnp.square(y := x * 0.3) - y / 7,
    "root": lambda x: jnp.sqrt(x + 6),
    "sine": jnp.sin,
    "relu": lambda x: jax.nn.relu(x / 3),
}


@pytest.mark.parametrize("before", BEFORE)
def test_gradient_that_is_wrong_at_ties_behind_what_rounds_is_found(before):
    kernel = BEFORE[before]
    graph = tp.trace(tp.Reduce(lambda x: jnp.max(kernel(x)), "x -> ", tp.monoids.Max), tp.TensorType({"x": 32}))
    assert "plan.gradients" in laws.assert_equivalent(FakePlan(graph, lambda x: jnp.max(kernel(x)))).held
    with pytest.raises(laws.LawError, match=r"LAW plan\.gradients FAILED"):
        laws.assert_equivalent(FakePlan(graph, lambda x: shared_by_halves(kernel(x))))


def test_every_law_of_plans_has_a_mutant():
    # The one on a cluster needs one: tests/laws/test_embeddings.py.
    assert {*MUTANTS, "plan.clustered"} == {law.name for law in laws.catalogue if law.family == "plan"}


def test_equivalent_plan_passes():
    report = laws.assert_equivalent(FakePlan(MLP, reference))
    assert report.held == ("plan.values", "plan.gradients", "plan.nesting", "plan.retry")
    assert report.not_checked == {"plan.blocks": "`fake` has no shards"}


def test_blocks_are_run_before_anything_is_compiled():
    class Uncompiled(Unmerged):
        def compile(self):
            raise AssertionError("compiled")

    with pytest.raises(laws.LawError, match=r"LAW plan\.blocks FAILED"):
        laws.assert_equivalent(Uncompiled(MLP, reference))


def test_plans_of_many_blocks_are_not_run_block_by_block(mesh2x4):
    graph = tp.trace(tp.Map(jnp.tanh), tp.TensorType({"n": 8192}))
    report = laws.assert_equivalent(tp.plan(graph, mesh2x4, {"n": tp.chunks(size=1)}), grads=False)
    assert report.not_checked["plan.blocks"] == "`Plan` has 8192 blocks, more than 4096"


@pytest.mark.parametrize(("run", "law"), [(without_psum, "plan.values"), (summed_twice, "plan.gradients")])
def test_assert_equivalent_rejects(run, law):
    with pytest.raises(laws.LawError) as caught:
        laws.assert_equivalent(FakePlan(MLP, run))
    assert caught.value.law == law
    assert "float32(batch=8, embed=12)" in str(caught.value)


def test_gradients_can_be_left_out():
    report = laws.assert_equivalent(FakePlan(MLP, summed_twice), grads=False)
    assert report.not_checked == {"plan.blocks": "`fake` has no shards", "plan.gradients": "grads=False"}


def test_small_error_beyond_rounding_is_found():
    def nearly(x, w1, w2):
        return reference(x, w1, w2) * (1 + 3e-4)

    with pytest.raises(laws.LawError, match=r"plan.values"):
        laws.assert_equivalent(FakePlan(MLP, nearly))


def test_reordered_sum_is_rounding():
    def reordered(x, w1, w2):
        hidden = sum(x[:, i : i + 1] * w1[i : i + 1] for i in reversed(range(12)))
        return reference_tail(hidden, w2)

    def reference_tail(hidden, w2):
        return sum(jax.nn.gelu(hidden)[:, i : i + 4] @ w2[i : i + 4] for i in (12, 0, 8, 4))

    assert "plan.values" in laws.assert_equivalent(FakePlan(MLP, reordered)).held


def test_given_arguments_are_used():
    lookup = tp.Map(lambda table, row: table[row], "[v] e, b -> b e", name="lookup")
    graph = tp.trace(lookup, tp.TensorType({"v": 9, "e": 2}), tp.TensorType({"b": 3}, jnp.int32))
    args = (jnp.arange(18.0).reshape(9, 2), jnp.array([8, 0, 5], jnp.int32))
    seen = []

    def run(table, rows):
        seen.append(np.asarray(rows) if not is_traced(rows) else None)
        return table[rows]

    laws.assert_equivalent(FakePlan(graph, run), args=args)
    assert any(rows is not None and rows.tolist() == [8, 0, 5] for rows in seen)


def test_nothing_finite_is_not_equivalence():
    graph = tp.trace(tp.Map(lambda x: jnp.log(-1 - x * x), "n -> n", name="log of negatives"), tp.TensorType({"n": 4}))
    with pytest.raises(laws.LawError, match=r"without one finite result"):
        laws.assert_equivalent(FakePlan(graph, lambda x: jnp.log(-1 - x * x)), grads=False)


@pytest.mark.parametrize(
    "entries",
    [pytest.param({"mlp": "model"}, marks=pytest.mark.thorough), {"batch": "data", "embed": "model"}],
    ids=str,
)
def test_real_plans_are_equivalent(entries, mesh2x4):
    plan = tp.plan(MLP, mesh2x4, entries)
    assert {"plan.blocks", "plan.gradients"} <= set(laws.assert_equivalent(plan).held)


def test_real_plan_keeps_uneven_blocks_and_maps(mesh2x4):
    x = tp.TensorType({"batch": 7, "embed": 5})
    plan = tp.plan(tp.trace(tp.Map(jnp.tanh), x), mesh2x4, {"batch": "data"})
    assert laws.assert_lawful(plan, laws=["mapping", "blocking"], examples=2).held == ("plan.mapping", "plan.blocking")


def test_gradient_that_loses_digits_inside_is_not_refused(mesh2x4):
    """Where `tanh` saturates, the slope is `1 - y * y`, and no disturbance of the arguments explains its rounding."""
    x, w = tp.TensorType({"batch": 7, "embed": 5}), tp.TensorType({"embed": 5, "mlp": 6})
    graph = tp.trace(lambda x, w: tp.Map(jnp.tanh)(matmul(x, w)), x, w)
    plan = tp.plan(graph, mesh2x4, {"batch": "data", "embed": "model"})
    assert "plan.gradients" in laws.assert_equivalent(plan).held


def test_real_plan_against_the_wrong_graph_is_found(mesh2x4):
    plan = tp.plan(MLP, mesh2x4, {"batch": "data"})
    tanh = tp.trace(lambda x, w1, w2: matmul(tp.Map(jnp.tanh)(matmul(x, w1)), w2), X, W1, W2)
    with pytest.raises(laws.LawError, match=r"plan.values"):
        laws.assert_equivalent(FakePlan(tanh, plan.compile()))


def test_a_ceiling_behind_a_maximum_is_refused_where_it_is_met():
    # Half of it holds exactly the ceiling, the other half is above: blocks have half a derivative, the whole has none.
    capped = tp.Reduce(lambda x: jnp.minimum(jnp.max(x), 1.0), "n -> ", tp.monoids.Max, name="capped")
    plan = tp.plan(tp.trace(capped, tp.TensorType({"n": 4})), tp.mesh(model=2), {"n": "model"})
    with pytest.raises(laws.LawError, match=r"LAW plan\.gradients FAILED"):
        laws.assert_equivalent(plan, args=(jnp.array([1.0, 1.0, 3.0, 0.5]),))


def in_bfloat16(x, w1, w2):
    """Float32 outside, bfloat16 inside."""
    narrow = tp.Map(lambda v: v.astype(jnp.bfloat16))
    return tp.Map(lambda v: v.astype(jnp.float32))(matmul(gelu(matmul(narrow(x), narrow(w1))), narrow(w2)))


MIXED = tp.trace(in_bfloat16, X, W1, W2)


def test_steps_in_bfloat16_round_as_bfloat16_does(mesh2x4):
    plan = tp.plan(MIXED, mesh2x4, {"batch": "data", "mlp": "model"})
    assert {"plan.blocks", "plan.values", "plan.gradients"} <= set(laws.assert_equivalent(plan).held)


@jax.custom_vjp
def smaller_gradient(x):
    return x


smaller_gradient.defvjp(lambda x: (x, None), lambda _, slope: (0.9 * slope,))

OFF_IN_BFLOAT16 = {
    "a piece is dropped": (lambda x, w1, w2: MIXED(x, w1.at[:, 12:].set(0), w2), "plan.values"),
    "a tenth of a gradient is missing": (lambda x, w1, w2: MIXED(x, smaller_gradient(w1), w2), "plan.gradients"),
}


@pytest.mark.parametrize(("run", "law"), OFF_IN_BFLOAT16.values(), ids=OFF_IN_BFLOAT16)
def test_faults_in_bfloat16_are_found(run, law):
    with pytest.raises(laws.LawError) as caught:
        laws.assert_equivalent(FakePlan(MIXED, run))
    assert caught.value.law == law
