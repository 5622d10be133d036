"""The table that explains a plan: rows that do not wrap, and nothing left out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tapestry_jax.report.explain import explain
from tapestry_jax.report.table import aligned

X = tp.TensorType({"batch": 8, "embed": 4})


def test_rows_of_explain_do_not_wrap():
    graph = tp.trace(tp.fold(tp.aggregators.Moments(order=4) & tp.aggregators.LogSumExp(), "batch embed -> embed"), X)
    plan = tp.plan(graph, jax.sharding.AbstractMesh((2, 2), ("data", "model")), {"batch": ("data", "model")})
    lines = plan.explain(grad=True).splitlines()
    assert max(map(len, lines)) < 200
    # Nothing is lost: every collective is listed.
    assert sum(line.count(" B") for line in lines) >= len(plan.collectives(grad=True))
    assert explain(graph, plan.schedule, True) == plan.explain(grad=True)


def test_arguments_of_many_dimensions_go_on_in_the_next_line():
    names = [f"a_dimension_of_a_long_name_{number}" for number in range(12)]
    plan = tp.plan(
        tp.trace(tp.Map(jnp.sin), tp.TensorType(dict.fromkeys(names, 2))),
        jax.sharding.AbstractMesh((2,), ("data",)),
        {names[0]: "data"},
    )
    text = plan.explain()
    assert max(map(len, text.splitlines())) < 200
    assert f"{names[-1]}=2): {names[0]}:data" in " ".join(text.split())


def test_columns_are_as_wide_as_their_widest_cell():
    rows = [("path", "bytes"), ("a/b/c", "7"), ("d", "1,024")]
    assert aligned(rows, right=[1]) == [("path ", "bytes"), ("a/b/c", "    7"), ("d    ", "1,024")]


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        (jnp.sin, {"a": 2**64, "b": 2}),
        (lambda x: jnp.sin(jnp.broadcast_to(x, (4, *x.shape)).max(0)), {"a": 2**61, "b": 3}),
    ],
)
def test_sizes_and_kernels_that_xla_cannot_hold_are_explained(kernel, sizes):
    graph = tp.trace(tp.Map(kernel, "a b -> a b", name="sin"), tp.TensorType(sizes))
    plan = tp.plan(graph, jax.sharding.AbstractMesh((2,), ("d",)), {"a": "d"})
    assert "more cells than XLA counts" in plan.explain()


@pytest.mark.parametrize("grad", [False, True])
def test_what_xla_cannot_count_is_said(grad: bool):
    graph = tp.trace(tp.Map(jnp.sin, "a b -> a b"), tp.TensorType({"a": 2**62, "b": 3}))
    plan = tp.plan(graph, jax.sharding.AbstractMesh((2,), ("d",)), {"a": "d"})
    text = plan.explain(grad=grad)
    (row,) = (line for line in text.splitlines() if line.startswith("sin  "))
    assert f"{2 * 2**61 * 3 * 4 / 1e12:.3g}" == "5.53e+07"
    assert row.split() == ["sin", "a:d", "b", "5.53e+07", "T", "more", "cells", "than", "XLA", "counts"]
    assert "one device, forward: at least 0 FLOP" in text
