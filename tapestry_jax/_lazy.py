"""What `tp` loads on first use: laws need hypothesis, nnx needs flax, and few programs need the other rooms."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

from combinators.lazy import lazily

_PLACES = {
    "Fabric": "tapestry_jax.fabric.fabric:Fabric",
    "FabricError": "tapestry_jax.fabric.errors:FabricError",
    "Inferred": "tapestry_jax.inference.inferred:Inferred",
    "ShardedGraph": "tapestry_jax.shards.sharded_graph:ShardedGraph",
    "StorageError": "tapestry_jax.storage.errors:StorageError",
    "aggregators": "combinators.aggregators",
    "assert_collectives": "tapestry_jax.assertions:assert_collectives",
    "create": "tapestry_jax.storage.creating:create",
    "infer": "tapestry_jax.inference.infer:infer",
    "laws": "laws",
    "lift": "tapestry_jax.lifting.lift:lift",
    "machines": "tapestry_jax.machines",
    "nnx": "tapestry_jax.nnx",
    "open": "tapestry_jax.storage.opening:open",
    "pareto": "tapestry_jax.searching.pareto:pareto",
    "partitioned": "tapestry_jax.partitioning.partitioned:partitioned",
    "planned": "tapestry_jax.resizing.planned:planned",
    "prune_cache": "tapestry_jax.streaming.cached.prune:prune_cache",
    "search": "tapestry_jax.searching.search:search",
    "stack_layers": "tapestry_jax.lifting.callables.layers:stack_layers",
    "topology": "tapestry_jax.aot.topology:topology",
    "stream": "tapestry_jax.streaming.jobs.stream:stream",
    "tune": "tapestry_jax.streaming.jobs.tune:tune",
    "stencil": "combinators.stencils.stencil:stencil",
    "unchanged": "combinators.arrows.conditions:unchanged",
    "unstack_layers": "tapestry_jax.lifting.callables.layers:unstack_layers",
    "window": "combinators.leaves.window:window",
}
_find, _ = lazily("tapestry_jax", _PLACES)


def __getattr__(name: str) -> Any:
    return importlib.metadata.version("tapestry-jax") if name == "__version__" else _find(name)


def __dir__() -> list[str]:
    package = importlib.import_module("tapestry_jax")
    special = [name for name in vars(package) if name.startswith("__") and name.endswith("__")]
    return sorted({*package.__all__, *_PLACES, *special, "__version__"})
