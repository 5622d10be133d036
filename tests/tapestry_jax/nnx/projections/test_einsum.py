"""What layers with a signature refuse."""

from __future__ import annotations

from typing import Any

import pytest
from flax import nnx

import tapestry_jax as tp


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("b i -> b i", (2,)), "the signature of Einsum is not that of a layer"),
        (("b i, ... o -> b o", (2, 3)), "the signature of Einsum is not that of a layer"),
        (
            ("b i, i o -> b o", (2, 3, 4)),
            r"kernel_shape= of Einsum is not that.*\n.*expected \(i, o\)",
        ),
        (("b i, i o -> b o", (2, 3), (2,)), r"bias_shape= of Einsum is not that.*\n.*expected \(o=3\)"),
    ],
)
def test_shapes_that_are_not_those_of_the_signature_are_told(arguments: Any, told: str) -> None:
    with pytest.raises(tp.TapestryError, match=told):
        tp.nnx.Einsum(*arguments, rngs=nnx.Rngs(0))


def test_einsum_composes_by_its_names() -> None:
    layer = tp.nnx.Einsum("b i, i o -> b o", (2, 3), rngs=nnx.Rngs(0))
    assert layer.signature == "b i -> b o"
    with pytest.raises(tp.CompositionError):
        _ = layer >> tp.nnx.Linear(4, 2, dims=("o", "p"), rngs=nnx.Rngs(0))
