"""Bytes of values that are alive, counted by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import tapestry_jax as tp
from tapestry_jax.planning.prediction.alive import alive_at_once, alive_by_step

X = tp.TensorType({"batch": 8, "embed": 4})


def test_what_is_alive_at_once_is_what_the_steps_hold():
    # 128 bytes each: the argument, which stays to the end, its sine, and the cosine of that.
    graph = tp.trace(lambda x: tp.Map(jnp.cos)(tp.Map(jnp.sin)(x)), X)
    mesh = jax.sharding.AbstractMesh((2,), ("data",))
    whole, halves = (tp.plan(graph, mesh, entries).schedule for entries in ({}, {"batch": "data"}))
    assert [alive_at_once(each, grad) for each in (whole, halves) for grad in (False, True)] == [384, 384, 192, 192]
    steps = alive_by_step(halves, False)
    # The sine is gone when its cosine is made, unless a gradient needs it.
    assert [(each.before, each.most, each.after) for each in steps] == [(64, 128, 128), (128, 192, 128)]
    assert [each.after for each in alive_by_step(halves, True)] == [128, 192]
