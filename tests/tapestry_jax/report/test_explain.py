"""The table that explains a plan: rows that do not wrap, and nothing left out."""

from __future__ import annotations

import jax
import jax.numpy as jnp

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
