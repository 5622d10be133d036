"""The shipped operations and arrows as laws take them, one of every kind, at small types."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from combinators import aggregators, monoids
from combinators.arrows.arrow import Arrow, identity
from combinators.arrows.loops import iterate, stack
from combinators.arrows.program import program
from combinators.index_space.boundary import BOUNDARIES
from combinators.index_space.tensor_type import TensorType
from combinators.leaves import random as draws
from combinators.leaves.attention import attention
from combinators.leaves.einsum import einsum
from combinators.leaves.index import index
from combinators.leaves.map import Map
from combinators.leaves.rearrange import rearrange
from combinators.leaves.reduce import Reduce
from combinators.leaves.running import scan
from combinators.leaves.scan import Scan
from combinators.leaves.window import window
from laws.counterexamples.known import known_failing
from laws.draws.cells import Struct
from laws.given import Given, given

LEAF = ("map", "reduce", "scan")
ARROW = ("arrow", "choice")
KEY = Struct((2,), jnp.uint32)


def f32(*shape: int) -> Struct:
    """A float32 type without names."""
    return Struct(shape, jnp.float32)


def valid_conv(image: Any, kernel: Any) -> Any:
    """A strided convolution as XLA has it."""
    return lax.conv_general_dilated(image, kernel, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def three(x: Any) -> Any:
    """A stencil of three points."""
    return x[:-2] + 2 * x[1:-1] + 3 * x[2:]


def two_steps(a: Any, b: Any) -> Any:
    """The state of two recurrences' inputs, as a scan of pairs takes it."""
    return a, b


def second(state: Any) -> Any:
    """What a recurrence has come to."""
    return state[1]


def smooth(boundary: str) -> Arrow[Any, Any]:
    """The stencil under a boundary."""
    return Map(three, "(y+[dy]-1) x -> y x", boundary=boundary, sizes={"dy": 3}, name=f"smooth_{boundary}")


def _arithmetic(x: Any, y: Any) -> Any:
    return abs(-x * y + 2.0) / (x * x + 1) - y**2, (x < y) | (x >= 1), x // 2, x % 3


def _masked(x: Any, y: Any, key: Any) -> Any:
    return x * Map(_as_float)(draws.bernoulli(key, 0.5, like=x)) + draws.normal(key, like=y)


def _as_float(flags: Any) -> Any:
    return flags.astype(jnp.float32)


def _random(x: Any, key: Any) -> Any:
    return draws.uniform(key, like=x), draws.bits(key, like=x)


def _positions(x: Any) -> Any:
    return x + Map(_as_float)(index("a", like=x))


def _causal(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, causal=True)


def _biased(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
    return attention(q, k, v, mask=mask, bias=bias, scale=0.5)


def _layer(carry: Any, w: Any) -> Any:
    return Map(jnp.tanh)(einsum("b i, i j -> b j")(carry, w)).rename(j="i")


HEADS = (
    TensorType({"b": 2, "q": 3, "h": 1, "d": 2}),
    TensorType({"b": 2, "keys": 4, "h": 1, "d": 2}),
    TensorType({"b": 2, "keys": 4, "h": 1, "d": 3}),
)
MASK, BIAS = TensorType({"q": 3, "keys": 4}, jnp.bool_), TensorType({"h": 1, "q": 3, "keys": 4})
TABLE = TensorType({"a": 4, "b": 3})
KNOWN = (
    ("window of integers", "map.marginal", "differences of prefixes, which are scanned by a tree of log n levels"),
)
"""Laws that a shipped piece is known to break, and why."""


def operations() -> dict[str, Given]:
    """Leaves and programs of them: what a signature says of each is checked of every operation inside."""
    softmax = Map(jax.nn.softmax, "... [c] -> ... [c]")
    matmul = Reduce(jnp.matmul, "i k, k n -> i n", monoids.Sum, pad=(0, 0))
    conv = Reduce(valid_conv, "b (2*y+[dy]) (2*x+[dx]) c, [dy] [dx] c o -> b y x o", monoids.Sum)
    recurrence = Scan(monoids.AffineRecurrence, "t d, t d -> t d", over="t", kernel=two_steps, present=second)
    both = aggregators.Moments(2) & aggregators.Max()
    found: dict[str, tuple[Any, list[Any]]] = {
        "Map elementwise": (Map(jax.nn.gelu), [f32(4, 3)]),
        "Map whole": (softmax, [f32(4, 3)]),
        "Map of integers": (Map(jnp.bitwise_xor, "n, n -> n"), [Struct((4,), jnp.int32)] * 2),
        **{f"Map {boundary}": (smooth(boundary), [f32(7, 2)]) for boundary in BOUNDARIES if boundary != "valid"},
        "Map valid": (Map(three, "(y+[dy]) x -> y x", sizes={"dy": 3}, name="smooth_valid"), [f32(7, 2)]),
        "Reduce": (matmul, [f32(4, 5), f32(5, 3)]),
        "Reduce windows": (conv, [f32(2, 7, 5, 2), f32(3, 3, 2, 2)]),
        "einsum": (einsum("s k, k h d -> s h d"), [f32(3, 4), f32(4, 2, 3)]),
        "einsum of nothing folded": (einsum("i, j -> j i"), [f32(3), f32(4)]),
        "rearrange": (rearrange("b s h d -> s b (h d)"), [f32(2, 3, 2, 2)]),
        "rearrange apart": (rearrange("b (h d) -> h b d", h=2), [f32(3, 4)]),
        "arithmetic": (program(_arithmetic), [TABLE, TABLE]),
        "index": (program(_positions), [TABLE]),
        "random": (program(_random), [TABLE, KEY]),
        "dropout": (program(_masked), [TABLE, TABLE, KEY]),
        "attention": (program(attention), [*HEADS]),
        "attention causal": (program(_causal), [*HEADS]),
        "attention with mask and bias": (program(_biased), [*HEADS, MASK, BIAS]),
        "Scan": (Scan(monoids.Sum, "... t -> ... t", over="t"), [f32(2, 5)]),
        "Scan reverse": (Scan(monoids.Max, "... t -> ... t", over="t", reverse=True), [f32(2, 5)]),
        "Scan exclusive": (Scan(monoids.Sum, "... t -> ... t", over="t", exclusive=True), [f32(2, 5)]),
        "Scan of a recurrence": (recurrence, [f32(5, 2), f32(5, 2)]),
        "scan": (scan(both, "t col -> t col"), [f32(5, 2)]),
        "scan by run": (scan(aggregators.Sum().by_run(), "t col, t -> t col"), [f32(5, 2), Struct((5,), jnp.int32)]),
        "scan segmented": (
            scan(aggregators.LogSumExp().segmented(), "t col, t -> t col"),
            [f32(5, 2), Struct((5,), jnp.bool_)],
        ),
        "window": (window(aggregators.Max(), 3, "t col -> t col"), [f32(6, 2)]),
        "window, full ones": (window(aggregators.LogSumExp(), 2, "t col -> t col", partial=False), [f32(6, 2)]),
        "window of integers": (window(aggregators.Sum(), 3, "t -> t"), [Struct((6,), jnp.int32)]),
        "iterate": (iterate(smooth("periodic"), 2), [f32(5, 2)]),
        "stack": (
            stack(_layer, 2),
            [TensorType({"b": 3, "i": 2}), TensorType({"layer": 2, "i": 2, "j": 2})],
        ),
    }
    listed = {name: given(arrow, types=types, laws=LEAF, name=name) for name, (arrow, types) in found.items()}
    return listed | {name: given(listed[name], known=[known_failing(law, why)]) for name, law, why in KNOWN}


def arrows() -> dict[str, Given]:
    """Arrows, composed in every way that there is: they have the laws of categories, products and choice."""
    tanh, root = Map(jnp.tanh), Map(_root)
    matmul = Reduce(jnp.matmul, "i k, k n -> i n", monoids.Sum)
    found: dict[str, tuple[Arrow[Any, Any], list[Any]]] = {
        "identity": (identity, [f32(3)]),
        "composed": (tanh >> Map(jax.nn.softmax, "b [c] -> b [c]"), [TensorType({"batch": 4, "class": 3})]),
        "fold": (matmul, [f32(4, 5), f32(5, 3)]),
        "bound": (tanh >> matmul.bind(jnp.arange(9.0).reshape(3, 3)), [f32(4, 3)]),
        "parallel": (tanh * root, [f32(3), f32(2)]),
        "fanout": (tanh & root, [f32(3)]),
        "first": (tanh.first(), [f32(3), f32(2)]),
        "second": (tanh.second(), [f32(2), f32(3)]),
        "iterated": (iterate(tanh, 2), [f32(3)]),
        "scanned": (Scan(monoids.Sum, "t -> t", over="t"), [f32(4)]),
    }
    listed = {name: given(arrow, types=types, laws=ARROW, name=name) for name, (arrow, types) in found.items()}
    step = program(_step)
    return listed | {"feedback": given(step, types=[f32(3), f32(3)], laws="feedback", name="feedback")}


def _root(x: Any) -> Any:
    return jnp.sqrt(x * x + math.pi)


def _step(x: Any, state: Any) -> Any:
    return Map(jnp.sin)(x + state), x + state
