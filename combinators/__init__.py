"""The algebra: typed combinators, signatures, monoids and the graphs they are traced to. jax and numpy only.

Users write `import tapestry_jax as tp`, which hands on every name of this package beside its own (`help(tp)`):

Leaves    Map Reduce Scan fold scan window einsum rearrange stencil attention index random identity named Dense
Programs  program iterate unchanged stack Either Arrow
Merging   monoids aggregators Monoid Aggregator Frame
Graphs    trace Graph TensorType
Spaces    Box Signature Projection exact_cover
Errors    TapestryError: SignatureError GraphError KernelError CompositionError PlanError MeshError FormatError
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from combinators import monoids as monoids
from combinators.aggregation.aggregator import Aggregator as Aggregator
from combinators.arrows.arrow import Arrow as Arrow
from combinators.arrows.arrow import identity as identity
from combinators.arrows.choice import Either as Either
from combinators.arrows.loops import iterate as iterate
from combinators.arrows.loops import stack as stack
from combinators.arrows.program import program as program
from combinators.arrows.tracing import trace as trace
from combinators.errors import CompositionError as CompositionError
from combinators.errors import FormatError as FormatError
from combinators.errors import GraphError as GraphError
from combinators.errors import KernelError as KernelError
from combinators.errors import MeshError as MeshError
from combinators.errors import PlanError as PlanError
from combinators.errors import SignatureError as SignatureError
from combinators.errors import TapestryError as TapestryError
from combinators.graphs.graph import Graph as Graph
from combinators.index_space.box import Box as Box
from combinators.index_space.cover import exact_cover as exact_cover
from combinators.index_space.projection import Projection as Projection
from combinators.index_space.signature import Signature as Signature
from combinators.index_space.tensor_type import TensorType as TensorType
from combinators.lazy import lazily
from combinators.leaves import random as random
from combinators.leaves.attention import attention as attention
from combinators.leaves.einsum import einsum as einsum
from combinators.leaves.fold import fold as fold
from combinators.leaves.index import index as index
from combinators.leaves.map import Map as Map
from combinators.leaves.named import named as named
from combinators.leaves.rearrange import rearrange as rearrange
from combinators.leaves.reduce import Reduce as Reduce
from combinators.leaves.running import scan as scan
from combinators.leaves.scan import Scan as Scan
from combinators.merging.frame import Frame as Frame
from combinators.merging.monoid import Monoid as Monoid
from combinators.operations.dense import Dense as Dense

if TYPE_CHECKING:
    from combinators import aggregators as aggregators
    from combinators.arrows.conditions import unchanged as unchanged
    from combinators.leaves.window import window as window
    from combinators.stencils.stencil import stencil as stencil
else:
    # A file for each aggregator: a tenth of all that is imported. Few programs have the others.
    _PLACES = {
        "aggregators": "combinators.aggregators",
        "stencil": "combinators.stencils.stencil:stencil",
        "unchanged": "combinators.arrows.conditions:unchanged",
        "window": "combinators.leaves.window:window",
    }
    __getattr__, __dir__ = lazily(__name__, _PLACES)
