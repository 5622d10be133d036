"""The table that explains a plan: rows that do not wrap, and nothing left out."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import tapestry_jax as tp
from tapestry_jax.report.alive import alive_at_once
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


def test_columns_are_as_wide_as_their_widest_cell():
    rows = [("path", "bytes"), ("a/b/c", "7"), ("d", "1,024")]
    assert aligned(rows, right=[1]) == [("path ", "bytes"), ("a/b/c", "    7"), ("d    ", "1,024")]


def test_what_is_alive_at_once_is_what_the_steps_hold():
    # 128 bytes each: the argument, which stays to the end, its sine, and the cosine of that.
    graph = tp.trace(lambda x: tp.Map(jnp.cos)(tp.Map(jnp.sin)(x)), X)
    mesh = jax.sharding.AbstractMesh((2,), ("data",))
    whole, halves = (tp.plan(graph, mesh, entries).schedule for entries in ({}, {"batch": "data"}))
    assert [alive_at_once(each, grad) for each in (whole, halves) for grad in (False, True)] == [384, 384, 192, 192]
