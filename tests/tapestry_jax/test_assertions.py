"""tp.assert_collectives: limits on what a plan communicates, as predicted and as compiled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp
from tapestry_jax import assertions
from tapestry_jax.plan import Plan

matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
gelu = tp.Map(jax.nn.gelu)


@tp.program("batch embed, embed mlp, mlp out -> batch out")
def mlp(x, w1, w2):
    return matmul(gelu(matmul(x, w1)), w2)


GRAPH = tp.trace(mlp, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((8, 6), (6, 16), (16, 4))))
ABSTRACT = AbstractMesh((2, 4), ("data", "model"))
ENTRIES = {"batch": "data", "mlp": "model"}
OVER = """the plan communicates more than it may
  all-reduce: at most 3, predicted 4{compiled}
    all-reduce over model: 96 B, matmul (gradient)
    all-reduce over data: 96 B, matmul (gradient)
    all-reduce over data: 64 B, matmul_1 (gradient)
    all-reduce over model: 64 B, matmul_1
  Place the dimensions of these operations elsewhere, or allow more."""


def error_of(plan, **asked):
    with pytest.raises(tp.PlanError) as caught:
        tp.assert_collectives(plan, **asked)
    return str(caught.value)


def test_limits_that_hold(mesh2x4):
    limits = {"all-reduce": 1, "all-gather": 0, "all-to-all": 0, "reduce-scatter": 0, "collective-permute": 0}
    for mesh in (mesh2x4, ABSTRACT):
        tp.assert_collectives(tp.plan(GRAPH, mesh, ENTRIES), at_most=limits)
    tp.assert_collectives(tp.plan(GRAPH, mesh2x4, ENTRIES), at_most=limits | {"all-reduce": 4}, grad=True)
    tp.assert_collectives(tp.plan(GRAPH, mesh2x4, ENTRIES), at_most={}, grad=True)


def test_too_many_by_prediction():
    plan = tp.plan(GRAPH, ABSTRACT, ENTRIES)
    assert error_of(plan, at_most={"all-reduce": 3, "all-gather": 0}, grad=True) == OVER.format(compiled="")


def test_too_many_by_prediction_shows_what_was_compiled(mesh2x4):
    # XLA combines the sums over each mesh axis into one instruction.
    text = error_of(tp.plan(GRAPH, mesh2x4, ENTRIES), at_most={"all-reduce": 3}, grad=True)
    assert text in [OVER.format(compiled=f", compiled {count}") for count in (2, 3, 4)]


def test_every_kind_that_has_too_many_is_listed():
    plan = tp.plan(GRAPH, ABSTRACT, ENTRIES, inputs={"x": {"embed": tp.padded("model")}}, outputs={"y": {}})
    text = error_of(plan, at_most={"all-reduce": 0, "all-gather": 1})
    assert (
        text
        == """the plan communicates more than it may
  all-reduce: at most 0, predicted 1
    all-reduce over model: 64 B, matmul_1
  all-gather: at most 1, predicted 2
    all-gather over model: 128 B, matmul
    all-gather over data: 128 B, output y
  Place the dimensions of these operations elsewhere, or allow more."""
    )


def test_what_was_compiled_counts_where_the_prediction_is_silent(mesh2x4, monkeypatch):
    monkeypatch.setattr(Plan, "collectives", lambda self, grad=False: ())
    text = error_of(tp.plan(GRAPH, mesh2x4, ENTRIES), at_most={"all-reduce": 0})
    head, found, remedy = text.split("\n  all-reduce: at most 0, predicted 0, compiled 1\n")[1].partition("\n")
    assert text.startswith("the plan communicates more than it may")
    # The compiled instruction names the operation in JAX's words.
    assert head.startswith("    all-reduce over model: 64 B, ")
    assert "matmul_1" in head
    assert (found, remedy) == ("\n", "  Place the dimensions of these operations elsewhere, or allow more.")


def test_executions_of_a_loop_count():
    step = tp.program("b e, e f -> b e")(lambda x, w: matmul(x, w).rename(f="e"))
    graph = tp.trace(
        lambda x, w: tp.iterate(step, 5)(x, w),
        *(tp.TensorType(n, jnp.float32) for n in ({"b": 4, "e": 8}, {"e": 8, "f": 8})),
    )
    plan = tp.plan(graph, ABSTRACT, {"e": "model"})
    tp.assert_collectives(plan, at_most={"reduce-scatter": 5, "all-reduce": 0})
    assert "reduce-scatter: at most 4, predicted 5" in error_of(plan, at_most={"reduce-scatter": 4})


@pytest.mark.parametrize(
    ("at_most", "text"),
    [
        (
            {"all-reduc": 0},
            "at_most limits 'all-reduc', which is no kind of collective\n"
            "  kinds: all-reduce, all-gather, reduce-scatter, all-to-all, collective-permute\n"
            "  Name one of them.",
        ),
        (
            {"all-reduce": "few"},
            "at_most gives 'all-reduce' a limit that is no number\n  got 'few'\n  Give a non-negative integer.",
        ),
        (
            ["all-reduce"],
            "at_most is a mapping from kinds of collectives to numbers\n"
            "  got list: ['all-reduce']\n"
            '  Write at_most={"all-gather": 0}.',
        ),
    ],
    ids=["kind", "limit", "mapping"],
)
def test_bad_limits_are_refused(at_most, text):
    assert error_of(tp.plan(GRAPH, ABSTRACT, ENTRIES), at_most=at_most) == text


def test_the_kinds_are_those_that_plans_predict():
    assert set(assertions.KINDS) == {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"}
