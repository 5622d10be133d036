"""Norms take no more cycles of a TPU than Flax's own, by its compiler's estimate: a fusion that falls apart shows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

import tapestry_jax as tp
from tapestry_jax.hlo.cycles import costed
from tapestry_jax.hlo.text import read

BATCH, EMBED = 65536, 1024


def _loss(norm: Any, x: Any) -> Any:
    y = norm(x * 2.0)
    return jnp.sum(y * jnp.tanh(y))


@pytest.mark.parametrize("machine", ["v5e:2x4"], indirect=True)
@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm"])
def test_norms_take_the_cycles_of_flax(machine: str, name: str) -> None:
    ours, theirs = getattr(tp.nnx, name)(EMBED, rngs=nnx.Rngs(0)), getattr(nnx, name)(EMBED, rngs=nnx.Rngs(0))
    mesh, x = tp.topology(machine, data=8), tp.TensorType({"batch": BATCH, "embed": EMBED}, jnp.float32)
    head, tail = tp.Map(lambda x: x * 2.0), tp.Map(lambda y: y * jnp.tanh(y))
    graph = tp.trace(head >> ours >> tail >> tp.fold(tp.aggregators.Sum(), "b e ->"), x)
    seen = tp.plan(graph, mesh, {"batch": "data"}).compile_only(grad=True)
    parts, state = nnx.split(theirs)
    whole, rows = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("data", None)))
    automatic = jax.jit(
        jax.value_and_grad(lambda state, x: _loss(nnx.merge(parts, state), x), argnums=(0, 1)),
        in_shardings=(whole, rows),
        out_shardings=(whole, (whole, rows)),
    )
    compiled = automatic.trace(state, jax.ShapeDtypeStruct((BATCH, EMBED), jnp.float32)).lower().compile()
    expected = sum(each.cycles * each.times for each in costed(read(compiled.as_text() or "")))
    assert seen.cycles is not None
    assert seen.cycles <= 1.02 * expected
