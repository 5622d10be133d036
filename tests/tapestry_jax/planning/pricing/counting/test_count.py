"""FLOP of kernels, held against XLA's own cost analysis; and the bytes that they move, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tapestry_jax.planning.pricing.counting.count import count, count_backward

Struct = jax.ShapeDtypeStruct


def f32(*shape: int) -> Struct:
    return Struct(shape, jnp.float32)


def attention(q: Any, k: Any, v: Any) -> list[Any]:
    return [jax.nn.softmax(jnp.einsum("qd,kd->qk", q, k) / 8.0, axis=-1) @ v]


def conv(padding: str) -> Callable[..., list[Any]]:
    return lambda image, kernel: [lax.conv_general_dilated(image, kernel, (1, 1), padding)]


CASES: dict[str, tuple[Callable[..., list[Any]], tuple[Struct, ...]]] = {
    "elementwise": (lambda x: [jax.nn.gelu(x)], (f32(64, 128),)),
    "product": (lambda a, b: [a @ b], (f32(64, 128), f32(128, 256))),
    "batched product": (lambda a, b: [jnp.einsum("bij,bjk->bik", a, b)], (f32(3, 64, 32), f32(3, 32, 16))),
    "complex product": (lambda a, b: [a @ b], (Struct((8, 16), jnp.complex64), Struct((16, 4), jnp.complex64))),
    "fold": (lambda x: [x.sum(0)], (f32(64, 128),)),
    "fold of logsumexp": (lambda x: [jax.nn.logsumexp(x, axis=-1)], (f32(64, 128),)),
    "softmax": (lambda x: [jax.nn.softmax(x)], (f32(64, 128),)),
    "attention": (attention, (f32(64, 32), f32(128, 32), f32(128, 16))),
    "norm": (lambda x, g: [x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g], (f32(64, 128), f32(128))),
    "transform": (lambda x: [jnp.fft.fft(x)], (Struct((64, 128), jnp.complex64),)),
    "real transform": (lambda x: [jnp.fft.rfft(x)], (f32(64, 128),)),
    "convolution": (conv("VALID"), (f32(4, 8, 32, 32), f32(16, 8, 3, 3))),
    "padded convolution": (conv("SAME"), (f32(4, 8, 64, 64), f32(16, 8, 3, 3))),
    "prefixes": (lambda x: [lax.associative_scan(jnp.add, x)], (f32(64, 128),)),
    "gather": (lambda x, i: [x[i]], (f32(640, 128), Struct((50,), jnp.int32))),
}


def by_xla(function: Callable[..., Any], structs: tuple[Struct, ...]) -> tuple[float, float]:
    found: Any = jax.jit(lambda *arrays: function(*arrays)).lower(*structs).cost_analysis()
    return found.get("flops", 0.0), found.get("transcendentals") or 0.0


@pytest.mark.parametrize("name", CASES)
def test_flops_are_those_of_xla(name: str):
    function, structs = CASES[name]
    found = count(function, structs)
    flops, transcendental = by_xla(function, structs)
    if name == "complex product":
        # XLA counts a complex product as one real one; a machine computes four.
        flops *= 4
    # Of convolutions XLA leaves out the cells that are padding, of reductions one addition.
    assert found.flops == pytest.approx(flops, rel=0.03, abs=64)
    assert found.transcendental == pytest.approx(transcendental, rel=0.01)


def test_turns_of_a_loop_are_counted():
    found = count(lambda x: [lax.scan(lambda carry, v: (jnp.tanh(carry + v), None), x[0], x)[0]], (f32(64, 128),))
    assert (found.other, found.transcendental) == (64 * 128, 64 * 128)


def test_a_branch_counts_as_the_longer_one():
    found = count(lambda p, a: [lax.cond(p, lambda: a @ a, lambda: a + 1)], (Struct((), jnp.bool_), f32(8, 8)))
    assert dict(found.products) == {"float32": 2 * 8**3}


def test_a_product_is_by_the_widest_of_its_operands():
    found = count(lambda a, b: [lax.dot(a, b)], (Struct((8, 8), jnp.bfloat16), Struct((8, 8), jnp.bfloat16)))
    assert dict(found.products) == {"bfloat16": 2 * 8**3}


def test_elementwise_work_is_one_kernel_that_reads_once():
    found = count(lambda x, y: [jnp.tanh(x) * y + x], (f32(8, 8), f32(8, 8)))
    assert (found.reads, found.inner, found.kernels, found.heads) == ((1.0, 1.0), 0, 1, ("fused",))


def test_softmax_of_scores_moves_them():
    found = count(attention, (f32(64, 32), f32(128, 32), f32(128, 16)))
    scores, rows = 64 * 128 * 4, 64 * 4
    # Written once, read for the maximum, for the sum and for the product; rows are written and read again.
    assert scores * 4 <= found.inner <= scores * 4 + rows * 6
    assert found.heads == ("product",)


def test_what_is_moved_alone_costs_nothing():
    found = count(lambda x: [x.reshape(16, 4).T], (f32(8, 8),))
    assert (found.flops, found.inner, found.kernels) == (0, 0, 0)


# The gradient of a product by one operand is one product, by both two; of gelu a few elementwise operations.
@pytest.mark.parametrize(("by", "products"), [((0,), 1), ((1,), 1), ((0, 1), 2), ((), 0)])
def test_the_gradient_of_a_product_is_products(by: tuple[int, ...], products: int):
    found = count_backward(lambda a, b: [a @ b], (f32(64, 128), f32(128, 256)), by)
    assert found.flops == products * 2 * 64 * 128 * 256
    sizes = {0: 64 * 128, 1: 128 * 256, "result": 64 * 256}
    assert (found.inner, found.outer) == (0, 4 * sum(sum(sizes.values()) for _ in by))


@pytest.mark.parametrize("name", ["elementwise", "fold", "softmax", "attention", "norm", "convolution", "transform"])
def test_forward_and_backward_together_are_what_xla_counts(name: str):
    function, structs = CASES[name]

    def both(*arrays: Any) -> Any:
        value, pull = jax.vjp(lambda *varied: function(*varied)[0], *arrays)
        return value, pull(value)

    by = tuple(range(len(structs)))
    found = count(function, structs).flops + count_backward(function, structs, by).flops
    flops, _ = by_xla(both, structs)
    # Elementwise work of the forward pass is counted again where the backward pass has it fused.
    slack = count(function, structs).other
    assert flops * 0.95 - 64 <= found <= flops * 1.05 + slack


def test_an_integer_has_no_gradient():
    found = count_backward(lambda x: [x + 1], (Struct((4,), jnp.int32),), ())
    assert (found.flops, found.inner) == (0, 0)


def counted(function: Callable[..., Any], *shapes: tuple[int, ...], platform: str = "tpu"):
    return count(lambda *arrays: [function(*arrays)], [jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes], platform)


def test_tpus_write_what_a_reduction_of_several_values_reads():
    def moments(x: Any) -> Any:
        return lax.reduce((x, x * x), (0.0, 0.0), lambda a, b: (a[0] + b[0], a[1] + b[1]), (0,))[1]

    size = 512 * 256 * 4
    assert counted(moments, (512, 256), platform="cuda").inner < 0.1 * size
    # The squares, written and read; the values themselves are there.
    assert counted(moments, (512, 256)).inner == pytest.approx(2 * size, rel=0.05)


@pytest.mark.parametrize(
    ("spec", "copies"),
    [
        ("bsk,khd->bshd", 0),
        ("bsk,khd->hdbs", 0),  # the other operand first
        ("bsk,khd->bhsd", 1),
        ("bqhd,bkhd->bhqk", 0),
        ("bqhd,bkhd->bqhk", 1),
    ],
)
def test_a_result_in_an_order_that_no_product_writes_is_copied(spec: str, copies: int):
    shapes = ((4, 32, 64), (64, 8, 16)) if spec.startswith("bsk") else ((4, 32, 8, 16), (4, 32, 8, 16))
    found = counted(lambda x, y: jnp.einsum(spec, x, y), *shapes)
    result = jax.eval_shape(
        lambda x, y: jnp.einsum(spec, x, y), *(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)
    )
    assert found.inner == copies * 2 * 4 * result.size


@pytest.mark.parametrize(
    ("shapes", "waste"),
    [
        (((256, 128), (128, 256)), 1.0),
        (((256, 64), (64, 256)), 2.0),  # half of what is summed over
        (((256, 128), (128, 16)), 1.0),  # the narrow operand streams by
        (((192, 128), (128, 16)), 4 / 3),
        (((16, 128), (128, 16)), 8.0),
    ],
)
def test_narrow_products_leave_arrays_of_a_tpu_idle(shapes: tuple[tuple[int, ...], ...], waste: float):
    found = counted(jnp.matmul, *shapes)
    assert 1 + found.idle / found.flops == pytest.approx(waste)
    assert counted(jnp.matmul, *shapes, platform="cuda").idle == 0


def test_a_convolution_of_few_features_leaves_arrays_idle():
    def cells(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    found = counted(cells, (4, 18, 18, 64), (3, 3, 64, 32))
    assert 1 + found.idle / found.flops == pytest.approx(2 * 4)


def test_axes_of_one_index_have_no_order():
    assert counted(lambda x, y: (x @ y).reshape(256, 1, 256).transpose(1, 0, 2), (256, 128), (128, 256)).inner == 0


def test_the_dimensions_of_one_operand_in_another_order_are_a_copy():
    found = counted(lambda x, y: jnp.einsum("bsk,kn->sbn", x, y), (4, 32, 64), (64, 128))
    assert found.inner == 2 * 4 * (4 * 32 * 128)


def test_a_reduction_of_one_value_computes_on_the_way():
    size = 512 * 256 * 4

    def product(x: Any) -> Any:
        return lax.reduce(jnp.sin(x), jnp.float32(1), lambda a, b: a * b, (0,))

    assert counted(product, (512, 256)).inner < 0.1 * size


def test_reductions_of_the_same_values_are_one_kernel():
    found = count(lambda x: [x.sum(0), x.max(0)], (f32(64, 128),))
    assert (found.reads, found.kernels) == ((1.0,), 1)


def test_what_several_kernels_compute_again_is_repeated():
    # Twice an exponential, of four operations: for what reads it with another array, and for the sum.
    found = count(lambda x, y: [jnp.exp(x) * y, jnp.exp(x).sum(0), (e := jnp.exp(x)) + y, e.sum(0)], (f32(8, 8),) * 2)
    assert found.repeated == 4 * 64


@pytest.mark.parametrize("backward", [False, True])
def test_what_is_inside_of_loops_and_branches_is_counted_for_its_platform(backward: bool):
    def turned(x: Any, w: Any) -> list[Any]:
        return [lax.scan(lambda carry, _: (carry @ w, None), x, length=3)[0]]

    def chosen(x: Any, w: Any) -> list[Any]:
        return [lax.cond(x[0, 0] > 0, lambda: x @ w, lambda: x)]

    for function in (turned, chosen):
        structs = f32(64, 64), f32(64, 64)
        found = count_backward(function, structs, (0, 1), "tpu") if backward else count(function, structs, "tpu")
        # 64 of 128 that are summed over, and 64 of 128 beside: a quarter of the arrays.
        products = sum(flops for _, flops in found.products)
        assert found.idle == 3 * products > 0


def test_a_product_of_nothing_leaves_nothing_idle():
    assert counted(jnp.matmul, (0, 128), (128, 16)).idle == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jax.nn.gelu(x),
        lambda x: jnp.sin(x) * jnp.cos(x),
        lambda x: jnp.exp(x),
        lambda x: jax.nn.softmax(jnp.tanh(x) ** 3),
        lambda x: x + jnp.arange(128.0) * 3,
        lambda x: jnp.where(jnp.arange(128) > 3, x, 0.0) * x,
    ],
    ids=["gelu", "sines", "exponential", "softmax", "linear", "masked"],
)
def test_what_a_loop_keeps_inside_of_a_kernel_is_what_jax_stacks_beside_operands_and_results(
    function: Callable[[Any], Any],
):
    turns, one = 5, 64 * 128 * 4

    def loop(xs: Any) -> Any:
        return lax.scan(lambda total, x: (total + function(x).sum(), None), 0.0, xs)[0]

    jaxpr = jax.make_jaxpr(jax.grad(loop))(f32(turns, 64, 128)).jaxpr
    forward = next(equation for equation in jaxpr.eqns if equation.primitive.name == "scan")
    stacks = [each.aval for each in forward.outvars if each.aval.shape[:1] == (turns,)]
    stacked = sum(each.size * each.dtype.itemsize for each in stacks) / turns
    found = count_backward(lambda x: [function(x)], (f32(64, 128),), (0,)).stacked
    # JAX may stack the operand and the result as well.
    assert found <= stacked <= found + 2 * one
