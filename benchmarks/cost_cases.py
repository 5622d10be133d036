"""Programs and plans whose price is held against what a compiler or a clock says; those of `HELD_OUT` set no figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

import tapestry_jax as tp
from combinators.frozen import dataclass

linear = tp.einsum("b k, k n -> b n")
gelu = tp.Map(jax.nn.gelu)
relu = tp.Map(jax.nn.relu)


@dataclass(frozen=True)
class Case:
    """A program under a plan.

    Attributes:
      make: makes the program; called once it is wanted.
      arguments: shape and dtype of each.
      entries: of the plan, over data=2 x model=4.
      grad: whether with gradients.
    """

    make: Callable[[], Any]
    arguments: tuple[tuple[tuple[int, ...], str], ...]
    entries: Mapping[str, Any]
    grad: bool = False

    def plan(self, mesh: Any) -> Any:
        """The plan over a mesh of data=2 x model=4."""
        specs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in self.arguments]
        return tp.plan(tp.trace(self.make(), *specs), mesh, self.entries)

    def shrunk(self, times: int) -> Case:
        """The same with a shorter first dimension of the arguments that begin with it and are not tied to others."""
        size, shapes = self.arguments[0][0][0], [shape for shape, _ in self.arguments]
        inside = {length for shape in shapes for length in shape[1:]}
        if size % (8 * times) or size in inside or size == 1:
            return self
        arguments = (
            ((size // times, *shape[1:]) if shape[0] == size else shape, dtype) for shape, dtype in self.arguments
        )
        return replace(self, arguments=tuple(arguments))


def case(make: Callable[[], Any], shapes: tuple[Any, ...], entries: Mapping[str, Any], grad: bool = False) -> Case:
    """A case; a shape may end in the name of its dtype, which is float32 otherwise."""
    typed = [(shape[:-1], shape[-1]) if isinstance(shape[-1], str) else (shape, "float32") for shape in shapes]
    return Case(make, tuple(typed), entries, grad)


BOTH = ("data", "model")


def mlp() -> Any:
    @tp.program("batch embed, embed mlp, mlp embed -> batch embed")
    def program(x, up, down):
        return linear(gelu(linear(x, up)), down)

    return program


def moments(order: int) -> Callable[[], Any]:
    return lambda: tp.fold(tp.aggregators.Moments(order), "row col -> col")


def cumulated() -> Any:
    @tp.program("t d -> t d")
    def program(x):
        return tp.Scan(tp.monoids.Sum, "t d -> t d", over="t")(x)

    return program


def project() -> Any:
    @tp.program("batch seq embed, embed heads d -> batch heads seq d")
    def program(x, w):
        return tp.einsum("b s k, k h d -> b h s d")(x, w)

    return program


def softmax() -> Any:
    @tp.program("batch vocab -> batch vocab")
    def program(x):
        return tp.Map(jax.nn.softmax, "... [c] -> ... [c]")(x)

    return program


def _normalised(row: Any) -> Any:
    mean = row.mean(-1, keepdims=True)
    return (row - mean) * jax.lax.rsqrt(((row - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


def norm() -> Any:
    @tp.program("batch embed -> batch embed")
    def program(x):
        return tp.Map(_normalised, "... [c] -> ... [c]")(x)

    return program


MLP = ((4096, 1024), (1024, 4096), (4096, 1024))
LOOKED_AT: dict[str, Case] = {
    "mlp, batch": case(mlp, MLP, {"batch": BOTH}),
    "mlp, batch and mlp": case(mlp, MLP, {"batch": "data", "mlp": "model"}),
    "mlp, batch, gradients": case(mlp, MLP, {"batch": BOTH}, True),
    "moments of four orders, rows": case(moments(4), ((65536, 1024),), {"row": BOTH}),
    "moments of four orders, columns": case(moments(4), ((65536, 1024),), {"col": BOTH}),
    "moments of two orders, columns": case(moments(2), ((65536, 1024),), {"col": BOTH}),
    "prefix sums, features": case(cumulated, ((8192, 1024),), {"d": BOTH}),
    "prefix sums, time": case(cumulated, ((8192, 1024),), {"t": BOTH}),
    "projection to heads, batch": case(project, ((16, 1024, 1024), (1024, 16, 64)), {"batch": BOTH}),
    "projection to heads, both": case(project, ((16, 1024, 1024), (1024, 16, 64)), {"batch": "data", "heads": "model"}),
    "softmax, batch": case(softmax, ((8192, 8192),), {"batch": BOTH}),
    "norm, batch": case(norm, ((65536, 1024),), {"batch": BOTH}),
    "norm, batch, gradients": case(norm, ((65536, 1024),), {"batch": BOTH}, True),
}
"""The rules of pricing were found with these, and with what is added to them below."""


def convolved() -> Any:
    def cells(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    return tp.Reduce(cells, "b (y+[dy]) (x+[dx]) c, [dy] [dx] c o -> b y x o", tp.monoids.Sum)


def pooled() -> Any:
    def largest(x: Any) -> Any:
        return jnp.maximum(jnp.maximum(x[:, :-1:2], x[:, 1::2]), 0)

    return tp.Map(largest, "b (2*y+[dy]) c -> b y c", sizes={"dy": 2})


def recurrence() -> Any:
    @tp.program("time feature, time feature -> time feature")
    def program(decay, drive):
        scan = tp.Scan(tp.monoids.AffineRecurrence, "t d, t d -> t d", over="t", present=lambda state: state[1])
        return scan(tp.Map(jax.nn.sigmoid)(decay), drive)

    return program


def _five(u: Any) -> Any:
    return u[1:-1, 1:-1] + 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])


def stencil() -> Any:
    step = tp.Map(_five, "(y+[dy]-1) (x+[dx]-1) -> y x", sizes={"dy": 3, "dx": 3}, boundary="zero")

    @tp.program("y x -> y x")
    def program(u):
        return tp.iterate(step, 6)(u)

    return program


def batch_norm() -> Any:
    moments = tp.fold(tp.aggregators.Moments(2), "batch feature -> feature")

    @tp.program("batch feature, feature -> batch feature")
    def program(x, scale):
        found = moments(x)
        return (x - found["mean"]) * tp.Map(jax.lax.rsqrt)(found["variance"]) * scale

    return program


def gated() -> Any:
    @tp.program("batch embed, embed mlp, embed mlp, mlp embed -> batch embed")
    def program(x, gate, up, down):
        return linear(tp.Map(jax.nn.silu)(linear(x, gate)) * linear(x, up), down)

    return program


def cross_entropy() -> Any:
    @tp.program("token embed, embed vocab -> token")
    def program(x, w):
        return tp.fold(tp.aggregators.LogSumExp(), "token vocab -> token")(linear(x, w))

    return program


def similarity() -> Any:
    @tp.program("a k, b k -> a b")
    def program(x, y):
        return tp.Map(jnp.exp)(tp.einsum("a k, b k -> a b")(x, y))

    return program


def relu_stack() -> Any:
    @tp.program("batch embed, layer embed mlp, layer mlp embed -> batch embed")
    def program(x, up, down):
        return tp.stack(lambda x, up, down: x + linear(relu(linear(x, up)), down), 6)(x, up, down)

    return program


def power() -> Any:
    @tp.program("row col -> row")
    def program(x):
        return tp.fold(tp.aggregators.Mean(), "row col -> row")(tp.Map(jnp.square)(x))

    return program


IMAGES = ((64, 66, 66, 64), (3, 3, 64, 64))
GATED = ((4096, 1024), (1024, 2048), (1024, 2048), (2048, 1024))
STACKED = ((4096, 512), (6, 512, 1024), (6, 1024, 512))
LOOKED_AT |= {
    "convolution, images": case(convolved, IMAGES, {"b": BOTH}),
    "convolution, features": case(convolved, IMAGES, {"b": "data", "o": "model"}),
    "pooling, batch": case(pooled, ((64, 4096, 128),), {"b": BOTH}),
    "recurrence, features": case(recurrence, ((16384, 1024),) * 2, {"feature": BOTH}),
    "five points, rows": case(stencil, ((4096, 2048),), {"y": BOTH}),
    "five points, both": case(stencil, ((4096, 2048),), {"y": "data", "x": "model"}),
    "batch norm, batch": case(batch_norm, ((32768, 512), (512,)), {"batch": BOTH}),
    "batch norm, features": case(batch_norm, ((32768, 512), (512,)), {"feature": BOTH}),
    "batch norm, batch, gradients": case(batch_norm, ((32768, 512), (512,)), {"batch": BOTH}, True),
    "gated units, batch": case(gated, GATED, {"batch": BOTH}),
    "gated units, both": case(gated, GATED, {"batch": "data", "mlp": "model"}),
    "gated units, batch, gradients": case(gated, GATED, {"batch": BOTH}, True),
    "log-sum-exp of logits, tokens": case(cross_entropy, ((4096, 512), (512, 16384)), {"token": BOTH}),
    "log-sum-exp of logits, vocabulary in chunks": case(
        cross_entropy, ((4096, 512), (512, 16384)), {"token": BOTH, "vocab": tp.chunks(8)}
    ),
    "similarity, both": case(similarity, ((8192, 256), (8192, 256)), {"a": "data", "b": "model"}),
    "six layers, batch": case(relu_stack, STACKED, {"batch": BOTH}),
    "six layers, batch, gradients": case(relu_stack, STACKED, {"batch": BOTH}, True),
    "six layers, batch in chunks": case(relu_stack, STACKED, {"batch": ("data", tp.chunks(4))}),
    "mean squares, rows": case(power, ((65536, 1024),), {"row": BOTH}),
    "mean squares, columns": case(power, ((65536, 1024),), {"col": BOTH}),
}


def layer_norm_mlp() -> Any:
    @tp.program("batch embed, embed mlp, mlp embed -> batch embed")
    def program(x, up, down):
        y = tp.Map(_normalised, "... [c] -> ... [c]")(x)
        return x + linear(tp.Map(jnp.tanh)(linear(y, up)), down)

    return program


def strided() -> Any:
    def cells(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    return tp.Reduce(cells, "b (2*y+[dy]) (2*x+[dx]) c, [dy] [dx] c o -> b y x o", tp.monoids.Sum)


def averaged() -> Any:
    def mean(x: Any) -> Any:
        return (x[:, :-1] + x[:, 1:]) / 2

    return tp.Map(mean, "b (t+[dt]) c -> b t c", sizes={"dt": 2})


def extremes() -> Any:
    @tp.program("row col -> col, col")
    def program(x):
        return tp.Reduce(lambda x: x.max(0), "r c -> c", tp.monoids.Max)(x), tp.Reduce(
            lambda x: x.min(0), "r c -> c", tp.monoids.Min
        )(x)

    return program


def bilinear() -> Any:
    @tp.program("batch a, a b, batch b -> batch")
    def program(x, w, y):
        return tp.einsum("n a, a b, n b -> n")(x, w, y)

    return program


def running_largest() -> Any:
    @tp.program("t d -> t d")
    def program(x):
        return tp.Scan(tp.monoids.Max, "t d -> t d", over="t")(x)

    return program


def outer() -> Any:
    @tp.program("row, col -> row col")
    def program(x, y):
        return tp.Map(lambda x, y: jnp.sin(x[:, None] * y), "r, c -> r c")(x, y)

    return program


def scores() -> Any:
    @tp.program("batch queries heads d, batch keys heads d -> batch heads queries keys")
    def program(q, k):
        return tp.einsum("b q h d, b k h d -> b h q k")(q, k)

    return program


HELD_OUT: dict[str, Case] = {
    "normalised perceptron, batch": case(layer_norm_mlp, MLP, {"batch": BOTH}),
    "normalised perceptron, both": case(layer_norm_mlp, MLP, {"batch": "data", "mlp": "model"}),
    "normalised perceptron, batch, gradients": case(layer_norm_mlp, MLP, {"batch": BOTH}, True),
    "strided convolution, images": case(strided, ((64, 65, 65, 128), (3, 3, 128, 256)), {"b": BOTH}),
    "strided convolution, features": case(strided, ((64, 65, 65, 128), (3, 3, 128, 256)), {"b": "data", "o": "model"}),
    "averages of neighbours, time": case(averaged, ((32, 4097, 256),), {"b": BOTH}),
    "averages of neighbours, features": case(averaged, ((32, 4097, 1024),), {"c": BOTH}),
    "extremes, rows": case(extremes, ((32768, 1024),), {"row": BOTH}),
    "extremes, columns": case(extremes, ((131072, 1024),), {"col": BOTH}),
    "bilinear form, batch": case(bilinear, ((8192, 1024), (1024, 1024), (8192, 1024)), {"batch": BOTH}),
    "running maximum, features": case(running_largest, ((4096, 2048),), {"d": BOTH}),
    "sines of an outer product, rows": case(outer, ((16384,), (8192,)), {"row": BOTH}),
    "sines of an outer product, both": case(outer, ((8192,), (4096,)), {"row": "data", "col": "model"}),
    "scores of heads, batch": case(scores, ((8, 1024, 16, 64),) * 2, {"batch": BOTH}),
    "scores of heads, heads": case(scores, ((8, 512, 16, 128),) * 2, {"batch": "data", "heads": "model"}),
    "large perceptron, batch": case(mlp, ((16384, 1024), (1024, 4096), (4096, 1024)), {"batch": BOTH}),
    "large perceptron in halves, both": case(
        mlp,
        ((16384, 2048, "bfloat16"), (2048, 8192, "bfloat16"), (8192, 2048, "bfloat16")),
        {"batch": "data", "mlp": "model"},
    ),
}
"""Nothing was set by these, nor were they looked at before."""
