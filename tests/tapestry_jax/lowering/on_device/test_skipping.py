"""Blocks of which nothing is seen are skipped where that saves time: in loops over queries and keys, and on CPUs."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tests.contract import assert_contract, assert_same

RING = {"queries": "data", "keys": tp.ring("data")}
LOOPS = {"queries": tp.chunks(4), "keys": tp.chunks(4)}


@pytest.fixture(scope="module")
def graph() -> tp.Graph:
    types = [tp.TensorType({"heads": 2, rows: 16, "d": 4}, jnp.float32) for rows in ("queries", "keys", "keys")]
    return tp.trace(lambda q, k, v: tp.attention(q, k, v, causal=True), *types)


@pytest.mark.parametrize(
    ("entries", "platforms", "skips"),
    [
        (RING, None, True),
        (RING, ("cpu", "tpu"), True),
        # In each turn of a ring some device computes, and is waited for.
        (RING, "tpu", False),
        (RING, "cuda", False),
        ({"queries": ("data", tp.chunks(2)), "keys": tp.ring("data")}, "tpu", False),
        # The last device computes in all turns over the keys.
        ({"queries": "data", "keys": tp.chunks(4)}, "tpu", False),
        (LOOPS, "tpu", True),
        ({"queries": ("data", tp.chunks(2)), "keys": tp.chunks(4)}, "tpu", True),
    ],
    ids=str,
)
def test_a_block_is_skipped_where_all_devices_may_skip_and_on_cpus(
    graph: tp.Graph, entries: Any, platforms: Any, skips: bool
) -> None:
    plan = tp.plan(graph, tp.mesh(data=4), entries, platforms=platforms)
    assert ("cond[" in str(plan.compile().jaxpr())) is skips


def test_a_ring_that_computes_every_block_has_the_same_values_gradients_and_collectives(graph: tp.Graph) -> None:
    plan = tp.plan(graph, tp.mesh(data=4), RING, platforms="tpu")
    rng = np.random.default_rng(0)
    assert_contract(plan)
    assert_same(plan, [jnp.asarray(rng.standard_normal(node.results[0].shape), jnp.float32) for node in graph.inputs])


def test_a_mesh_says_what_its_devices_are(graph: tp.Graph) -> None:
    assert tp.plan(graph, tp.mesh(data=4), RING).schedule.platforms == ("cpu",)
    assert tp.plan(graph, tp.mesh(data=4), RING, platforms=("tpu", "cuda")).schedule.platforms == ("tpu", "cuda")
