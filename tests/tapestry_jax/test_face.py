"""What a user sees first: names, version, help, and how long things are when they are shown."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys

import jax
import jax.numpy as jnp

import tapestry_jax as tp
from tapestry_jax.report.explain import explain

X = tp.TensorType({"batch": 8, "embed": 4})


def deep(x):
    for _ in range(60):
        x = tp.Map(jnp.tanh)(x) + 1
    return x


def test_names_are_those_that_are_documented():
    assert {"Map", "plan", "mesh", "monoids", "Plan", "random", "chunks"} <= set(tp.__all__)
    assert not [name for name in tp.__all__ if name.startswith("_") or not hasattr(tp, name)]
    assert {"laws", "nnx", "__version__", *tp.__all__} <= set(dir(tp))
    assert "plan_json" not in dir(tp)
    assert tp.__version__ == importlib.metadata.version("tapestry-jax")


def test_help_begins_with_every_name_by_subject():
    written = set(re.findall(r"\w+", tp.__doc__ or ""))
    assert [name for name in tp.__all__ if name not in written] == []


def test_importing_every_name_needs_neither_hypothesis_nor_flax():
    code = "from tapestry_jax import *; import sys; assert Map; assert not {'hypothesis', 'flax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_graphs_are_shown_on_one_line():
    graph = tp.trace(deep, X)
    assert repr(graph) == "Graph(deep: 1 input, 120 operations -> y float32(batch=8, embed=4))"
    many = tp.trace(lambda x: [x * i for i in range(2, 9)], X)
    assert len(repr(many)) < 200
    assert len(repr(tp.plan(graph, jax.sharding.AbstractMesh((2,), ("data",)), {"batch": "data"}))) < 600


def test_rows_of_explain_do_not_wrap():
    graph = tp.trace(tp.fold(tp.aggregators.Moments(order=4) & tp.aggregators.LogSumExp(), "batch embed -> embed"), X)
    plan = tp.plan(graph, jax.sharding.AbstractMesh((2, 2), ("data", "model")), {"batch": ("data", "model")})
    lines = plan.explain(grad=True).splitlines()
    assert max(map(len, lines)) < 200
    # Nothing is lost: every collective is listed.
    assert sum(line.count(" B") for line in lines) >= len(plan.collectives(grad=True))
    assert explain(graph, plan.schedule, True) == plan.explain(grad=True)
