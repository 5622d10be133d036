"""Tensor types: what they take, what they say, and what they refuse."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators import GraphError, TensorType
from combinators.index_space.tensor_type import type_of


@pytest.mark.parametrize(
    ("dims", "names", "shape"),
    [
        ({"batch": 8, "embed": 3}, ("batch", "embed"), (8, 3)),
        ([("batch", 8), (None, 3)], ("batch", None), (8, 3)),
        ((8, 3), (None, None), (8, 3)),
        ((), (), ()),
        ({"n": np.int64(2**40)}, ("n",), (2**40,)),
    ],
)
def test_dims_are_read_from_mappings_pairs_and_sizes(dims: Any, names: Any, shape: Any) -> None:
    kind = TensorType(dims)
    assert (kind.names, kind.shape, kind.dtype) == (names, shape, np.float32)


def test_size_and_bytes_are_those_of_numpy_and_exact_past_64_bits() -> None:
    array = np.zeros((3, 5, 2), np.int16)
    kind = TensorType((3, 5, 2), jnp.int16)
    assert (kind.size, kind.nbytes, kind.ndim) == (array.size, array.nbytes, array.ndim)
    assert TensorType((2**40, 2**40), jnp.bfloat16).nbytes == 2**81


def test_types_are_values() -> None:
    left, right = TensorType({"a": 2}, jnp.bfloat16), TensorType([("a", 2)], "bfloat16")
    assert left == right and hash(left) == hash(right)
    assert left != TensorType({"b": 2}, jnp.bfloat16)
    assert str(left) == "bfloat16(a=2)"
    assert left.struct == jax.ShapeDtypeStruct((2,), jnp.bfloat16)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.ones((2, 3)), TensorType((2, 3), jnp.float32)),
        (np.arange(3), TensorType((3,), jnp.int32)),
        (True, TensorType((), bool)),
        (2, TensorType((), jnp.int32)),
        (1.5, TensorType((), jnp.float32)),
        (jax.ShapeDtypeStruct((4,), jnp.float16), TensorType((4,), jnp.float16)),
        (TensorType({"a": 1}, np.float64), TensorType({"a": 1}, jnp.float32)),
    ],
)
def test_type_of_has_the_dtype_that_jax_computes_in(value: Any, expected: TensorType) -> None:
    assert type_of(value, "x") == expected


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: TensorType([("a", 2), ("a", 3)]),
            "a tensor type names `a` twice\n  got float32(a=2, a=3)\n"
            "  Give every axis its own name: a tensor never carries a name twice.",
        ),
        (
            lambda: TensorType({"a": -1}),
            "the size of axis 'a' is not a whole number of cells\n  got -1\n  Give a non-negative integer.",
        ),
        (
            lambda: TensorType({"a": 2.0}),  # pyright: ignore[reportArgumentType]
            "the size of axis 'a' is not a whole number of cells\n  got 2.0\n  Give a non-negative integer.",
        ),
        (
            lambda: TensorType({"head dim": 2}),
            "an axis of a tensor type has no usable name\n  got 'head dim'\n"
            "  Name it by an identifier such as `batch`, or leave it anonymous with None.",
        ),
        (
            lambda: TensorType((2,), "text"),
            "a tensor type has a dtype that JAX does not have\n  got 'text'\n"
            "  Give a dtype of numbers or booleans, such as jnp.float32.",
        ),
        (
            lambda: type_of(np.array(["a"]), "x"),
            "a tensor type has a dtype that JAX does not have\n  got dtype('<U1')\n"
            "  Give a dtype of numbers or booleans, such as jnp.float32.",
        ),
        (
            lambda: TensorType((), jax.random.key(0).dtype),
            "a tensor type has the dtype of typed random keys\n  got dtype key<fry>\n"
            "  Write its words: tp.TensorType((2,), jnp.uint32). Keys themselves may be passed as arguments.",
        ),
        (
            lambda: type_of("abc", "argument `x` of `f`"),
            "argument `x` of `f` is not an array\n"
            "  expected a jax or numpy array, a number, a jax.ShapeDtypeStruct or a tp.TensorType\n"
            "  got str: 'abc'\n"
            "  Convert it with jnp.asarray, or keep what is not an array outside the program.",
        ),
    ],
)
def test_what_is_no_type_is_refused(build: Any, text: str) -> None:
    with pytest.raises(GraphError) as caught:
        build()
    assert str(caught.value) == text
