"""Signatures that are found by poisoning operands, what cannot be told, and that the laws agree."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp


def f32(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def valid_conv(image, kernel):
    numbers = ("NHWC", "HWIO", "NHWC")
    found = jax.lax.conv_general_dilated(
        image[None, :, :, None], kernel[:, :, None, None], (1, 1), "VALID", dimension_numbers=numbers
    )
    return found[0, :, :, 0]


def second_difference(x):
    return x[:-2] - 2 * x[1:-1] + x[2:]


def by_position(x):
    return x * jnp.arange(x.shape[0])


def same_conv(x):
    return jnp.convolve(x, jnp.ones(3), mode="same")


KERNELS = {
    "gelu": (jax.nn.gelu, [f32(4, 3)], "map", "i j -> i j", None),
    "add": (jnp.add, [f32(4, 3), f32(3)], "map", "i j, j -> i j", None),
    "softmax": (jax.nn.softmax, [f32(4, 3)], "map", "i [j] -> i [j]", None),
    "matmul": (jnp.matmul, [f32(4, 5), f32(5, 3)], "reduce", "i k, k j -> i j", "Sum"),
    "convolution": (valid_conv, [f32(6, 5), f32(3, 2)], "map", "(i+[k]) (j+[l]), [k] [l] -> i j", None),
    "second difference": (second_difference, [f32(6)], "map", "(i+[j]) -> i", None),
    "every second": (lambda x: x[:5:2], [f32(6)], "map", "(2*i) -> i", None),
    "cumsum": (lambda x: jnp.cumsum(x, 1), [f32(4, 3)], "scan", "i j -> i j", "Sum"),
    "running maximum": (lambda x: jax.lax.cummax(x, reverse=True), [f32(5)], "scan", "i -> i", "Max"),
    "transpose": (jnp.transpose, [f32(4, 3)], "map", "j i -> i j", None),
    "sum": (lambda x: x.sum(0), [f32(4, 3)], "reduce", "k i -> i", "Sum"),
    "maximum": (lambda x: x.max(0), [f32(4, 3)], "reduce", "k i -> i", "Max"),
    "any": (lambda x: x.any(0), [f32(4, 3, dtype=jnp.bool_)], "reduce", "k i -> i", "Any"),
    "fft": (jnp.fft.fft, [f32(3, 4, dtype=jnp.complex64)], "map", "i [j] -> i [j]", None),
}


@pytest.mark.parametrize("name", KERNELS)
def test_signature_is_found(name):
    function, specs, kind, signature, monoid = KERNELS[name]
    found = tp.infer(function, specs, name=name)
    assert (found.kind, found.signature) == (kind, signature), str(found)
    assert getattr(found.monoid, "name", None) == monoid
    drawn = [np.random.default_rng(seed).standard_normal(spec.shape) for seed, spec in enumerate(specs)]
    operands = [np.asarray(x > 0 if s.dtype == bool else x, s.dtype) for x, s in zip(drawn, specs, strict=True)]
    np.testing.assert_allclose(found.arrow(*operands), function(*operands), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "matmul", "second difference", "cumsum"])
def test_laws_agree_with_what_was_found(name):
    function, specs, *_ = KERNELS[name]
    found = tp.infer(function, specs, name=name)
    report = tp.laws.assert_lawful(found.arrow, specs, laws=["map.split", "reduce.fold", "scan.prefix"], examples=3)
    assert report.held


@pytest.mark.parametrize(
    ("function", "specs", "signature", "untold"),
    [
        (by_position, [f32(6)], "[i] -> [i]", "may know its size or its coordinates"),
        (same_conv, [f32(6)], "[i] -> [i]", "answers in no pattern"),
        (jnp.diag, [f32(4, 4)], "[i] [j] -> [i]", "as on a diagonal"),
        (lambda x: x.mean(0), [f32(4, 3)], "[j] i -> i", "whole, as far as Sum, Max"),
        (lambda x, y: x, [f32(4), f32(4)], "i, [j] -> i", "nothing answers to axis 0 of operand 1"),
        (jnp.sin, [f32(1, 3)], "[i] j -> [i] j", "too few to tell"),
        (lambda x: jax.lax.associative_scan(lambda a, b: 0.5 * a * b + b, x), [f32(5)], "[i] -> [i]", "not found"),
    ],
    ids=["positions", "same", "diagonal", "mean", "unread", "one cell", "unknown scan"],
)
def test_what_cannot_be_told_is_said(function, specs, signature, untold):
    found = tp.infer(function, specs)
    assert found.signature == signature, str(found)
    assert any(untold in sentence for sentence in found.untold), str(found)
    assert "not told: " in str(found)


def test_windows_without_an_operand_have_a_size():
    assert tp.infer(second_difference, [f32(6)]).sizes == (("j", 3),)


def test_kernel_that_does_not_take_its_operands():
    with pytest.raises(tp.KernelError, match=r"(?s)`matmul` cannot run on operands of shapes \(4, 5\), \(4, 5\)"):
        tp.infer(jnp.matmul, [f32(4, 5), f32(4, 5)])
