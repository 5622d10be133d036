"""The method that a search takes by itself: where memory binds, walks are not all that is asked."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from jax.sharding import AbstractMesh

import tapestry_jax as tp

MESH = AbstractMesh((2, 4), ("data", "model"))
MEMORY = 121_110_564
up, down = tp.einsum("batch embed, embed mlp -> batch mlp"), tp.einsum("batch mlp, mlp out -> batch out")


def layer(x: Any, a: Any, b: Any) -> Any:
    return x + down(tp.Map(jax.nn.gelu)(up(x, a)), b).rename(out="embed")


@pytest.mark.parametrize("seed", [0, 1])
def test_where_memory_binds_few_operations_are_solved_for_as_well(seed: int):
    pytest.importorskip("highspy")
    types = (
        tp.TensorType({"batch": 4096, "embed": 1024}),
        tp.TensorType({"layer": 4, "embed": 1024, "mlp": 4096}),
        tp.TensorType({"layer": 4, "mlp": 4096, "out": 1024}),
    )
    graph = tp.trace(lambda x, a, b: tp.stack(layer, 4)(x, a, b), *types)
    # Walks alone found one 42 times as dear, or none, by their seed.
    found = tp.search(graph, MESH, "H100", MEMORY, grad=True, seed=seed)
    solved = tp.search(graph, MESH, "H100", MEMORY, "milp", grad=True)
    assert found.memory(grad=True).total <= MEMORY
    assert found.cost(grad=True).seconds <= solved.cost(grad=True).seconds * (1 + 1e-9)
    assert found.gap is not None
