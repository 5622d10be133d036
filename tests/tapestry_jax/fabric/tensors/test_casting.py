"""Casts that are asked for, beside those of NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.fabric.tensors.casting import converted


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1.5, -2.5, 0.0], "int8"),
        ([1.0, 65504.0], "float16"),
        ([0.1, 1e30], "bfloat16"),
        ([0.0, 0.5, -1.0], "bool"),
        ([True, False], "float32"),
        (np.array([2**63], np.uint64), "float32"),
        (np.array([-1, 7], np.int64), "int8"),
        (np.array([1.5], ml_dtypes.bfloat16), "int32"),
        (np.array([3, -4], np.int8), "complex64"),
        (np.array([np.nan, np.inf]), "float16"),
        (np.array(3.0), "int16"),
        (np.zeros((0, 2)), "int8"),
    ],
)
def test_casts_are_those_of_numpy(values: Any, dtype: str):
    array, wanted = np.asarray(values), tp.TensorType((), dtype).dtype
    found = converted(array, wanted, "here")
    assert found.dtype == wanted and found.tobytes() == array.astype(wanted).tobytes()


@pytest.mark.parametrize(
    ("values", "dtype", "text"),
    [
        ([1.0, 128.0], "int8", "here: 1 values do not exist in int8\n  the first is 128.0 at (1,) of the box"),
        ([[np.nan], [np.inf]], "int32", "2 values do not exist in int32\n  the first is nan at (0, 0)"),
        (np.array([-1], np.int32), "uint8", "1 values do not exist in uint8\n  the first is -1"),
        (np.array([2**63], np.uint64), "int64", "1 values do not exist in int64"),
        ([2.0**63], "int64", "1 values do not exist in int64"),
        ([1e39], "float32", "1 values do not exist in float32"),
        ([1e6], "float16", "1 values do not exist in float16"),
        ([np.inf], "float8_e4m3fn", "1 values do not exist in float8_e4m3fn"),
    ],
)
def test_casts_that_lose_a_value_are_refused(values: Any, dtype: str, text: str):
    with pytest.raises(tp.FabricError) as raised:
        converted(np.asarray(values), tp.TensorType((), dtype).dtype, "here")
    assert text in str(raised.value)
