"""Maps, monoids and arrows over index spaces, planned onto meshes: `import tapestry_jax as tp`.

Leaves    Map Reduce Scan fold scan window einsum rearrange stencil attention index random identity named Dense
Programs  program iterate unchanged stack Either Arrow, and `>>`, `&`, `*`, `|` of arrows
Merging   monoids aggregators Monoid Aggregator Frame
Graphs    trace lift stack_layers unstack_layers Graph TensorType infer Inferred
Plans     plan search pareto Plan ShardedGraph mesh topology machines chunks ring striped halo padded
          store_padded fsdp partitioned planned assert_collectives
Spaces    Box Signature Projection exact_cover
Files     open create stream tune prune_cache StorageError: tensors in files, and programs over data larger than memory
Fabric    Fabric FabricError: named tensors, whose placement nobody has to know
Errors    TapestryError: SignatureError GraphError KernelError CompositionError PlanError MeshError FormatError
Apart     laws (property tests) and nnx (Flax modules), which need hypothesis and flax

`trace` gives the graph of a program, `plan` says on which mesh axes and in which chunks its dimensions lie, and
`plan.compile()` runs it. `help(tp.fold)` and so on tell more than `help(tp)`, which lists every method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from combinators import Aggregator as Aggregator
from combinators import Arrow as Arrow
from combinators import Box as Box
from combinators import CompositionError as CompositionError
from combinators import Dense as Dense
from combinators import Either as Either
from combinators import FormatError as FormatError
from combinators import Frame as Frame
from combinators import Graph as Graph
from combinators import GraphError as GraphError
from combinators import KernelError as KernelError
from combinators import Map as Map
from combinators import MeshError as MeshError
from combinators import Monoid as Monoid
from combinators import PlanError as PlanError
from combinators import Projection as Projection
from combinators import Reduce as Reduce
from combinators import Scan as Scan
from combinators import Signature as Signature
from combinators import SignatureError as SignatureError
from combinators import TapestryError as TapestryError
from combinators import TensorType as TensorType
from combinators import attention as attention
from combinators import einsum as einsum
from combinators import exact_cover as exact_cover
from combinators import fold as fold
from combinators import identity as identity
from combinators import index as index
from combinators import iterate as iterate
from combinators import monoids as monoids
from combinators import named as named
from combinators import program as program
from combinators import rearrange as rearrange
from combinators import scan as scan
from combinators import stack as stack
from combinators import trace as trace
from combinators.leaves import random as random
from tapestry_jax._lazy import __dir__ as __dir__
from tapestry_jax._lazy import __getattr__ as __getattr__
from tapestry_jax.by_hand import plan as plan
from tapestry_jax.mesh import mesh as mesh
from tapestry_jax.plan import Plan as Plan
from tapestry_jax.planning.entries.items import chunks as chunks
from tapestry_jax.planning.entries.items import halo as halo
from tapestry_jax.planning.entries.items import padded as padded
from tapestry_jax.planning.entries.items import ring as ring
from tapestry_jax.planning.entries.items import striped as striped
from tapestry_jax.stored import fsdp as fsdp
from tapestry_jax.stored import store_padded as store_padded

if TYPE_CHECKING:
    from combinators import aggregators as aggregators
    from combinators import stencil as stencil
    from combinators import unchanged as unchanged
    from combinators import window as window
    from tapestry_jax import machines as machines
    from tapestry_jax.aot.topology import topology as topology
    from tapestry_jax.assertions import assert_collectives as assert_collectives
    from tapestry_jax.fabric.errors import FabricError as FabricError
    from tapestry_jax.fabric.fabric import Fabric as Fabric
    from tapestry_jax.inference import Inferred as Inferred
    from tapestry_jax.inference import infer as infer
    from tapestry_jax.lifting.callables.layers import stack_layers as stack_layers
    from tapestry_jax.lifting.callables.layers import unstack_layers as unstack_layers
    from tapestry_jax.lifting.lift import lift as lift
    from tapestry_jax.partitioning.partitioned import partitioned as partitioned
    from tapestry_jax.resizing.planned import planned as planned
    from tapestry_jax.searching.pareto import pareto as pareto
    from tapestry_jax.searching.search import search as search
    from tapestry_jax.shards.sharded_graph import ShardedGraph as ShardedGraph
    from tapestry_jax.storage.creating import create as create
    from tapestry_jax.storage.errors import StorageError as StorageError
    from tapestry_jax.storage.opening import open as open
    from tapestry_jax.streaming.cached.prune import prune_cache as prune_cache
    from tapestry_jax.streaming.jobs.stream import stream as stream
    from tapestry_jax.streaming.jobs.tune import tune as tune

__all__ = [
    "Aggregator",
    "Arrow",
    "Box",
    "CompositionError",
    "Dense",
    "Either",
    "Fabric",
    "FabricError",
    "FormatError",
    "Frame",
    "Graph",
    "GraphError",
    "Inferred",
    "KernelError",
    "Map",
    "MeshError",
    "Monoid",
    "Plan",
    "PlanError",
    "Projection",
    "Reduce",
    "Scan",
    "ShardedGraph",
    "Signature",
    "SignatureError",
    "StorageError",
    "TapestryError",
    "TensorType",
    "aggregators",
    "assert_collectives",
    "attention",
    "chunks",
    "create",
    "einsum",
    "exact_cover",
    "fold",
    "fsdp",
    "halo",
    "identity",
    "index",
    "infer",
    "iterate",
    "lift",
    "machines",
    "mesh",
    "monoids",
    "named",
    "open",
    "padded",
    "pareto",
    "partitioned",
    "plan",
    "planned",
    "program",
    "prune_cache",
    "random",
    "rearrange",
    "ring",
    "scan",
    "search",
    "stack",
    "stack_layers",
    "stencil",
    "store_padded",
    "stream",
    "tune",
    "striped",
    "topology",
    "trace",
    "unchanged",
    "unstack_layers",
    "window",
]
