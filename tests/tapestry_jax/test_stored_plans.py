"""Plans with every item, as an earlier layout of the files stored them: they are read, proved, and run."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.planning.entries.items import Chunks, Halo, Padded, Ring, Striped

STORED = json.loads((Path(__file__).parent / "data" / "plans_2.json").read_text())


@functools.cache
def read(name: str) -> tp.Plan:
    stored = STORED[name]
    return tp.Plan.from_json(stored["plan"], tp.Graph.from_json(stored["graph"]))


def test_they_hold_every_item():
    plans = [read(name) for name in STORED]
    given = [items for plan in plans for entries in (plan.entries, *dict(plan.inputs).values()) for _, items in entries]
    assert {type(item) for items in given for item in items} == {str, Chunks, Halo, Padded, Ring, Striped}
    language = read("language")
    assert language.ops and language.accumulate == (("", "float32"),) and language.platforms == ("cpu", "cuda")
    assert read("around").outputs


@pytest.mark.parametrize("name", sorted(STORED))
def test_they_say_what_they_said(name: str):
    plan = read(name)
    plan.verify()
    said = json.loads(plan.to_json())
    # Files of that time did not say where another graph differs.
    assert said.pop("marks")
    assert said == json.loads(STORED[name]["plan"])


@pytest.mark.parametrize("name", ["around", "steps"])
def test_they_compute_the_program(name: str):
    plan = read(name)
    rng = np.random.default_rng(0)
    arrays = [jnp.asarray(np.float32(rng.standard_normal(node.results[0].shape))) for node in plan.graph.inputs]
    args = jax.tree.unflatten(plan.graph.in_tree, arrays)
    np.testing.assert_allclose(plan.take(plan.compile()(*plan.put(*args))), plan.graph(*args), rtol=1e-5, atol=1e-6)
