"""The algebra: typed combinators, signatures, monoids and the graphs they are traced to. jax and numpy only."""

from __future__ import annotations

from combinators import aggregators as aggregators
from combinators import monoids as monoids
from combinators import random as random
from combinators.aggregator import Aggregator as Aggregator
from combinators.arrow import Arrow as Arrow
from combinators.attention import attention as attention
from combinators.box import Box as Box
from combinators.choice import Either as Either
from combinators.compose import identity as identity
from combinators.cover import exact_cover as exact_cover
from combinators.dense import Dense as Dense
from combinators.einsum import einsum as einsum
from combinators.errors import CompositionError as CompositionError
from combinators.errors import FormatError as FormatError
from combinators.errors import GraphError as GraphError
from combinators.errors import KernelError as KernelError
from combinators.errors import MeshError as MeshError
from combinators.errors import PlanError as PlanError
from combinators.errors import SignatureError as SignatureError
from combinators.errors import TapestryError as TapestryError
from combinators.fold import fold as fold
from combinators.frame import Frame as Frame
from combinators.graph import Graph as Graph
from combinators.index import index as index
from combinators.loops import iterate as iterate
from combinators.loops import stack as stack
from combinators.map import Map as Map
from combinators.monoid import Monoid as Monoid
from combinators.named import named as named
from combinators.program import program as program
from combinators.projection import Projection as Projection
from combinators.rearrange import rearrange as rearrange
from combinators.reduce import Reduce as Reduce
from combinators.running import scan as scan
from combinators.scan import Scan as Scan
from combinators.signature import Signature as Signature
from combinators.tensor_type import TensorType as TensorType
from combinators.tracing import trace as trace
from combinators.window import window as window
