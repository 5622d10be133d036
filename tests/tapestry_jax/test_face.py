"""What a user sees first: names, version, help, and how long things are when they are shown."""

from __future__ import annotations

import importlib.metadata
import pydoc
import re
import subprocess
import sys
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import combinators
import tapestry_jax as tp
from tests.house.public_names import handed_on

X = tp.TensorType({"batch": 8, "embed": 4})


def deep(x):
    for _ in range(60):
        x = tp.Map(jnp.tanh)(x) + 1
    return x


def test_names_are_those_that_are_documented():
    assert {"Map", "plan", "mesh", "monoids", "Plan", "random", "chunks"} <= set(tp.__all__)
    assert not [name for name in tp.__all__ if name.startswith("_") or not hasattr(tp, name)]
    modules = {name for name in handed_on(tp) if isinstance(getattr(tp, name), ModuleType)}
    assert set(handed_on(tp)) - set(tp.__all__) - modules == set()
    assert {"laws", "nnx", "__version__", *tp.__all__} <= set(dir(tp))
    assert "plan_json" not in dir(tp)
    assert tp.__version__ == importlib.metadata.version("tapestry-jax")


@pytest.mark.parametrize(
    "module", [tp, combinators, tp.aggregators, tp.monoids, tp.nnx, tp.laws], ids=lambda m: m.__name__
)
def test_help_begins_with_every_name_by_subject(module):
    """`help` lists the files of a package, and no name that it hands on from them."""
    shown = pydoc.plain(pydoc.render_doc(module)).split("PACKAGE CONTENTS")[0]
    written = set(re.findall(r"\w+", shown))
    names = [name for name in handed_on(module) if not isinstance(getattr(module, name), ModuleType)]
    assert len(names) > 10
    assert [name for name in names if name not in written] == []


def test_help_of_random_shows_what_makes_numbers_and_no_kernel():
    shown = pydoc.plain(pydoc.render_doc(tp.random))
    assert [name for name in tp.random.__all__ if f"{name}(" not in shown] == []
    assert "CLASSES" not in shown


def test_importing_every_name_needs_neither_hypothesis_nor_flax():
    code = "from tapestry_jax import *; import sys; assert Map; assert not {'hypothesis', 'flax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_graphs_are_shown_on_one_line():
    graph = tp.trace(deep, X)
    assert repr(graph) == "Graph(deep: 1 input, 120 operations -> y float32(batch=8, embed=4))"
    many = tp.trace(lambda x: [x * i for i in range(2, 9)], X)
    assert len(repr(many)) < 200
    assert len(repr(tp.plan(graph, jax.sharding.AbstractMesh((2,), ("data",)), {"batch": "data"}))) < 600


def test_what_is_printed_of_a_compiled_plan_and_of_a_job_says_what_they_run() -> None:
    x = np.ones((4, 2), np.float32)
    graph = tp.trace(tp.fold(tp.aggregators.Sum(), "row col -> col"), x)
    shown = "Graph(Sum: 1 input, 1 operation -> y float32(col=2))"
    assert repr(tp.plan(graph, tp.mesh(data=2), {"row": "data"}).compile()) == f"Compiled({shown}, data=2)"
    assert repr(tp.stream(graph, {"row": tp.chunks(2)}, sources={"x": x})) == f"Job({shown}, over row)"
