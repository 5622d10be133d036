"""Plans that were drawn and compiled after the rules of pricing had been written; those of `DRAWN_LAST` set none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import tapestry_jax as tp
from benchmarks.cost_cases import BOTH, Case, case, gelu, linear, mlp, relu

softmax = tp.Map(jax.nn.softmax, "... [c] -> ... [c]")
tokens = tp.einsum("b s k, k n -> b s n")


def _root_mean_square(row: Any) -> Any:
    return row * jax.lax.rsqrt((row * row).mean(-1, keepdims=True) + 1e-6)


def block() -> Any:
    """A transformer block, attention written out: the compiler says nothing of kernels that stand in for it."""
    normed = tp.Map(_root_mean_square, "... [c] -> ... [c]")
    project, merge = tp.einsum("b s k, k h d -> b s h d"), tp.einsum("b s h d, h d k -> b s k")
    compare, weigh = tp.einsum("b q h d, b s h d -> b h q s"), tp.einsum("b h q s, b s h d -> b q h d")

    @tp.program("batch seq k, k heads d, k heads d, k heads d, heads d k, k mlp, mlp k -> batch seq k")
    def program(x, query, key, value, out, up, down):
        y = normed(x)
        over = y.rename(seq="keys")
        weights = softmax(compare(project(y, query), project(over, key)))
        x = x + merge(weigh(weights, project(over, value)), out)
        return x + tokens(gelu(tokens(normed(x), up)), down)

    return program


def squared_error() -> Any:
    @tp.program("batch embed, batch out, embed mlp, mlp out -> ()")
    def program(x, y, up, down):
        error = linear(relu(linear(x, up)), down) - y
        return tp.fold(tp.aggregators.Mean(), "batch out -> ()")(error * error)

    return program


def stacked(layers: int) -> Callable[[], Any]:
    def make() -> Any:
        @tp.program("batch embed, layer embed mlp, layer mlp embed -> batch embed")
        def program(x, up, down):
            return tp.stack(lambda x, up, down: x + linear(gelu(linear(x, up)), down), layers)(x, up, down)

        return program

    return make


def scores_in_rows() -> Any:
    @tp.program("batch k, k -> batch")
    def program(x, w):
        return tp.Map(jax.nn.sigmoid)(tp.einsum("b k, k -> b")(x, w))

    return program


def gaussian() -> Any:
    return tp.Map(lambda x, y: jnp.exp(-((x[:, None] - y) ** 2)), "a, b -> a b")


def normed_projection() -> Any:
    @tp.program("batch embed, embed out -> batch out")
    def program(x, w):
        return linear(tp.Map(_root_mean_square, "... [c] -> ... [c]")(x), w)

    return program


def middle_softmax() -> Any:
    return tp.Map(lambda x: jax.nn.softmax(x, axis=1), "b [c] d -> b [c] d")


def blur() -> Any:
    def mean(x: Any) -> Any:
        return sum(x[i : x.shape[0] - 2 + i, j : x.shape[1] - 2 + j] for i in range(3) for j in range(3)) / 9

    step = tp.Map(mean, "(y+[dy]-1) (x+[dx]-1) -> y x", sizes={"dy": 3, "dx": 3}, boundary="edge")

    @tp.program("y x -> y x")
    def program(u):
        return tp.iterate(step, 3)(u)

    return program


def state_space() -> Any:
    @tp.program("time feature, time feature -> time feature")
    def program(decay, drive):
        scan = tp.Scan(tp.monoids.AffineRecurrence, "t d, t d -> t d", over="t", present=lambda state: state[1])
        return scan(tp.Map(jnp.exp)(decay), drive)

    return program


def convolved() -> Any:
    def cells(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    leaf = tp.Reduce(cells, "b (y+[dy]) (x+[dx]) c, [dy] [dx] c o -> b y x o", tp.monoids.Sum)

    @tp.program("b y x c, dy dx c o -> b y x o")
    def program(x, w):
        return relu(leaf(x, w))

    return program


def polynomial() -> Any:
    @tp.program("row col, row col -> row col")
    def program(x, y):
        return tp.Map(lambda x, y: ((x * y + 1) * x - 2 * y) * x + 3)(x, y)

    return program


def moved() -> Any:
    @tp.program("a b c -> b a c")
    def program(x):
        return tp.Map(lambda x: 2 * x.transpose(1, 0, 2), "a b c -> b a c")(x)

    return program


def totals() -> Any:
    @tp.program("row col -> row, row")
    def program(x):
        return tp.fold(tp.aggregators.Sum(), "row col -> row")(x), tp.fold(tp.aggregators.Max(), "row col -> row")(x)

    return program


def batched() -> Any:
    @tp.program("n i k, n k j -> n i j")
    def program(x, y):
        return tp.Map(jnp.tanh)(tp.einsum("n i k, n k j -> n i j")(x, y))

    return program


def running_products() -> Any:
    @tp.program("d t -> d t")
    def program(x):
        return tp.Scan(tp.monoids.Sum, "d t -> d t", over="t")(tp.Map(jnp.log1p)(x))

    return program


def deviations() -> Any:
    moments = tp.fold(tp.aggregators.Moments(2), "row col -> row")

    @tp.program("row col -> row col")
    def program(x):
        return x - moments(x)["mean"]

    return program


def log_sum_exp() -> Any:
    @tp.program("token embed, embed vocab -> token")
    def program(x, w):
        return tp.fold(tp.aggregators.LogSumExp(), "token vocab -> token")(linear(x, w))

    return program


BLOCK = ((16, 512, 512), *((512, 8, 64),) * 3, (8, 64, 512), (512, 2048), (2048, 512))
STACK = ((8192, 768), (4, 768, 1536), (4, 1536, 768))
ERROR = ((8192, 768), (8192, 256), (768, 3072), (3072, 256))
DRAWN: dict[str, Case] = {
    "block, batch": case(block, BLOCK, {"batch": BOTH}),
    "block, heads and mlp": case(block, BLOCK, {"batch": "data", "heads": "model", "mlp": "model"}),
    "block, batch, gradients": case(block, BLOCK, {"batch": BOTH}, True),
    "block, heads and mlp, gradients": case(block, BLOCK, {"batch": "data", "heads": "model", "mlp": "model"}, True),
    "squared error, batch": case(squared_error, ERROR, {"batch": BOTH}),
    "squared error, both, gradients": case(squared_error, ERROR, {"batch": "data", "mlp": "model"}, True),
    "four layers, batch": case(stacked(4), STACK, {"batch": BOTH}),
    "four layers, both": case(stacked(4), STACK, {"batch": "data", "mlp": "model"}),
    "four layers, both, gradients": case(stacked(4), STACK, {"batch": "data", "mlp": "model"}, True),
    "scores in rows, batch": case(scores_in_rows, ((131072, 512), (512,)), {"batch": BOTH}),
    "gaussian kernel, both": case(gaussian, ((8192,), (16384,)), {"a": "data", "b": "model"}),
    "normed projection, batch": case(normed_projection, ((16384, 2048), (2048, 512)), {"batch": BOTH}),
    "softmax of the middle, batch": case(middle_softmax, ((128, 256, 512),), {"b": BOTH}),
    "nine points, rows": case(blur, ((2048, 4096),), {"y": BOTH}),
    "state space, features": case(state_space, ((4096, 2048),) * 2, {"feature": BOTH}),
    "convolution of 256 features, images": case(convolved, ((32, 34, 34, 256), (3, 3, 256, 256)), {"b": BOTH}),
    "convolution of 256 features, both": case(
        convolved, ((32, 34, 34, 256), (3, 3, 256, 256)), {"b": "data", "o": "model"}
    ),
    "polynomial, rows": case(polynomial, ((32768, 1024),) * 2, {"row": BOTH}),
    "dimensions moved, last": case(moved, ((256, 512, 1024),), {"b": BOTH}),
    "totals and largest, rows": case(totals, ((32768, 2048),), {"row": BOTH}),
    "batched products, batch": case(batched, ((512, 128, 64), (512, 64, 256)), {"n": BOTH}),
    "prefixes of logarithms, rows": case(running_products, ((8192, 2048),), {"d": BOTH}),
    "deviations, rows": case(deviations, ((16384, 2048),), {"row": BOTH}),
    "log-sum-exp, vocabulary": case(log_sum_exp, ((2048, 1024), (1024, 32768)), {"token": "data", "vocab": "model"}),
    "wide perceptron, mlp": case(mlp, ((1024, 2048), (2048, 16384), (16384, 2048)), {"mlp": BOTH}),
    "wide perceptron, both, gradients": case(
        mlp, ((1024, 2048), (2048, 16384), (16384, 2048)), {"batch": "data", "mlp": "model"}, True
    ),
}
"""The rules were written before these were compiled; two were added after: conversions before loops, and vectors."""


def gated_block() -> Any:
    @tp.program("batch embed, embed mlp, embed mlp, mlp embed -> batch embed")
    def program(x, gate, up, down):
        y = tp.Map(_root_mean_square, "... [c] -> ... [c]")(x)
        return x + linear(tp.Map(jax.nn.silu)(linear(y, gate)) * linear(y, up), down)

    return program


def mixer() -> Any:
    mix = tp.einsum("b s k, s t -> b t k")

    @tp.program("batch seq k, seq token, token seq, k mlp, mlp k -> batch seq k")
    def program(x, inward, outward, up, down):
        x = x + mix(relu(mix(x, inward)), outward)
        return x + tokens(relu(tokens(x, up)), down)

    return program


def gated_layers() -> Any:
    @tp.program("batch embed, layer embed mlp, layer embed mlp, layer mlp embed -> batch embed")
    def program(x, gate, up, down):
        def layer(x: Any, gate: Any, up: Any, down: Any) -> Any:
            return x + linear(tp.Map(jax.nn.silu)(linear(x, gate)) * linear(x, up), down)

        return tp.stack(layer, 3)(x, gate, up, down)

    return program


def regression() -> Any:
    @tp.program("row k, k out, row out -> ()")
    def program(x, w, y):
        error = linear(x, w) - y
        return tp.fold(tp.aggregators.Mean(), "row out -> ()")(error * error)

    return program


def log_softmax() -> Any:
    return tp.Map(jax.nn.log_softmax, "... [c] -> ... [c]")


def spread() -> Any:
    moments = tp.fold(tp.aggregators.Moments(2), "row col -> row")

    @tp.program("row col -> row")
    def program(x):
        return moments(x)["variance"]

    return program


def wave() -> Any:
    def three(u: Any) -> Any:
        return u[1:-1] + 0.25 * (u[2:] - 2 * u[1:-1] + u[:-2])

    @tp.program("y x -> y x")
    def program(u):
        return tp.iterate(tp.Map(three, "(y+[w]-1) x -> y x", sizes={"w": 3}, boundary="periodic"), 4)(u)

    return program


def prefixes(monoid: Any) -> Callable[[], Any]:
    def make() -> Any:
        @tp.program("t d -> t d")
        def program(x):
            return tp.Scan(monoid, "t d -> t d", over="t")(x)

        return program

    return make


def five_by_five() -> Any:
    def cells(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    return tp.Reduce(cells, "b (y+[dy]) (x+[dx]) c, [dy] [dx] c o -> b y x o", tp.monoids.Sum)


def differences() -> Any:
    return tp.Map(lambda x, y: jnp.tanh(x[:, None] - y), "r, c -> r c")


def elementwise(function: Callable[..., Any], operands: int) -> Callable[[], Any]:
    def make() -> Any:
        return tp.Map(function, ", ".join(["r c"] * operands) + " -> r c")

    return make


def squares() -> Any:
    @tp.program("row col -> col")
    def program(x):
        return tp.fold(tp.aggregators.Sum(), "row col -> col")(tp.Map(jnp.square)(x))

    return program


def product() -> Any:
    @tp.program("i k, k n -> i n")
    def program(x, w):
        return linear(x, w)

    return program


def halved() -> Any:
    def largest(x: Any) -> Any:
        return jnp.maximum(x[:, :-1:2], x[:, 1::2])

    return tp.Map(largest, "b (2*y+[dy]) c -> b y c", sizes={"dy": 2})


GATED = ((8192, 1024), (1024, 2816), (1024, 2816), (2816, 1024))
MIXER = ((32, 256, 512), (256, 1024), (1024, 256), (512, 2048), (2048, 512))
LAYERS = ((4096, 512), (3, 512, 2048), (3, 512, 2048), (3, 2048, 512))
WIDE = ((16, 256, 1024), *((1024, 16, 64),) * 3, (16, 64, 1024), (1024, 4096), (4096, 1024))
DRAWN_LAST: dict[str, Case] = {
    "gated block, batch": case(gated_block, GATED, {"batch": BOTH}),
    "gated block, both, gradients": case(gated_block, GATED, {"batch": "data", "mlp": "model"}, True),
    "mixer, batch": case(mixer, MIXER, {"batch": BOTH}),
    "mixer, batch and hidden": case(mixer, MIXER, {"batch": "data", "mlp": "model", "token": "model"}),
    "mixer, batch, gradients": case(mixer, MIXER, {"batch": BOTH}, True),
    "three gated layers, batch": case(gated_layers, LAYERS, {"batch": BOTH}),
    "three gated layers, both, gradients": case(gated_layers, LAYERS, {"batch": "data", "mlp": "model"}, True),
    "regression, rows, gradients": case(regression, ((65536, 512), (512, 256), (65536, 256)), {"row": BOTH}, True),
    "logarithms of softmax, rows": case(log_softmax, ((16384, 4096),), {"_0": BOTH}),
    "variances, rows": case(spread, ((32768, 1024),), {"row": BOTH}),
    "three points, rows": case(wave, ((4096, 4096),), {"y": BOTH}),
    "prefix sums, long": case(prefixes(tp.monoids.Sum), ((16384, 2048),), {"d": BOTH}),
    "prefix products, features": case(prefixes(tp.monoids.Prod), ((2048, 4096),), {"d": BOTH}),
    "five by five, images": case(five_by_five, ((64, 36, 36, 128), (5, 5, 128, 128)), {"b": BOTH}),
    "differences, both": case(differences, ((16384,), (4096,)), {"r": "data", "c": "model"}),
    "cosines, rows": case(elementwise(lambda x: jnp.cos(x) + 1, 1), ((16384, 2048),), {"r": BOTH}),
    "three arrays, rows": case(elementwise(lambda x, y, z: x * y + z, 3), ((32768, 2048),) * 3, {"r": BOTH}),
    "square roots, columns": case(elementwise(lambda x: jnp.sqrt(jnp.abs(x)), 1), ((8192, 4096),), {"c": BOTH}),
    "sums of squares, rows": case(squares, ((131072, 512),), {"row": BOTH}),
    "product in halves, both": case(
        product, ((8192, 4096, "bfloat16"), (4096, 8192, "bfloat16")), {"i": "data", "n": "model"}
    ),
    "product of little depth, both": case(product, ((16384, 128), (128, 8192)), {"i": "data", "n": "model"}),
    "log-sum-exp, vocabulary in four": case(
        log_sum_exp, ((8192, 768), (768, 8192)), {"token": BOTH, "vocab": tp.chunks(4)}
    ),
    "wide block, batch": case(block, WIDE, {"batch": BOTH}),
    "wide block, heads and mlp": case(block, WIDE, {"batch": "data", "heads": "model", "mlp": "model"}),
    "larger of two, batch": case(halved, ((128, 2048, 256),), {"b": BOTH}),
}
"""Nothing was set by these, nor were they looked at before."""
