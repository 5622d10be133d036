"""Files safetensors: those of the package are read, it reads ours, and headers that lie are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tapestry_jax as tp
from tapestry_jax.storage.files.safetensors import CODES
from tests.tapestry_jax.storage.round_trips import SHAPES, boxes, numbers, read, write


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float64", "bfloat16", "float8_e4m3fn"])
def test_what_the_package_writes_is_read(tmp_path: Path, dtype: str):
    kept = {"a": numbers((3, 4), dtype), "b/c": numbers((5,), np.int32)}
    save_file(kept, tmp_path / "w.safetensors")
    source = tp.open(tmp_path / "w.safetensors", "a")
    assert source.dtype == kept["a"].dtype
    for box in boxes((3, 4)):
        (first, last), (left, right) = box
        assert read(source, box).tobytes() == kept["a"][first:last, left:right].tobytes()
    assert read(tp.open(tmp_path / "w.safetensors", "b/c")).tolist() == kept["b/c"].tolist()
    source.close()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_package_reads_what_we_write(tmp_path: Path, shape: tuple[int, ...], dtype: str):
    x = numbers(shape, getattr(ml_dtypes, dtype, dtype))
    names = tuple("abc"[: len(shape)])
    source = write(tp.create(tmp_path / "w.safetensors").make(shape, x.dtype, names), x)
    assert source.names == (names or None)
    np.testing.assert_array_equal(load_file(tmp_path / "w.safetensors")["w"], x)
    source.close()


def test_dtypes_that_the_format_lacks_are_refused(tmp_path: Path):
    with pytest.raises(tp.FormatError, match="a file safetensors cannot have the dtype complex128"):
        tp.create(tmp_path / "w.safetensors").make((2,), "complex128")
    assert "complex128" not in CODES


def header(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} | changes


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ({"x": header(shape=[2**40, 2**40], data_offsets=[0, 2**82])}, "has no shape"),
        ({"x": header(shape=[-2, -3])}, "has no shape"),
        ({"x": header(shape=[2, 4])}, "where it does not fit"),
        ({"x": header(data_offsets=[-24, 0])}, "where it does not fit"),
        ({"x": header(shape=[2**20], data_offsets=[0, 2**22])}, "is truncated"),
        ({"x": header(data_offsets=[24, 0])}, "where it does not fit"),
        ({"x": header(shape=[2.5])}, "has no shape"),
        ({"x": header(shape="23")}, "has no shape"),
        ({"x": header(shape=[True, 6])}, "has no shape"),
        ({"x": header(dtype="OBJECT")}, "has a dtype of `x` that is not read"),
        ({"x": header(dtype=["F32"])}, "has a dtype of `x` that is not read"),
        ({"x": header(), "y": header()}, "leaves a hole, or lets tensors overlap"),
        ({"x": header(shape=[1, 3], data_offsets=[12, 24])}, "leaves a hole"),
        ({"x": header(shape=[1, 3], data_offsets=[0, 12])}, "ends its tensors at byte"),
        ({"x": {"dtype": "F32"}}, "has no dtype, shape and data_offsets"),
        ({"x": [1]}, "has no dtype, shape and data_offsets"),
        ([1], "is no object"),
        ({}, "ends its tensors|holds no tensor"),
    ],
    ids=str,
)
def test_headers_that_lie_are_refused(tmp_path: Path, entries: Any, told: str):
    text = json.dumps(entries).encode()
    (tmp_path / "x.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(24))
    with pytest.raises(tp.FormatError, match=told):
        tp.open(tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is truncated"),
        (b"\x01", "is truncated"),
        (b"\xff" * 8, "is longer than"),
        (b"\x10" + bytes(7) + b"{}", "is truncated"),
        (b"\x02" + bytes(7) + b"{x", "cannot be read"),
        (b"\x18" + bytes(7) + b'{"x": {"a":1}, "x": 1}  ', "a name stands twice"),
        ((20_000).to_bytes(8, "little") + b"[" * 20_000, "cannot be read"),
    ],
    ids=lambda given: repr(given)[:30],
)
def test_files_that_are_none_are_refused(tmp_path: Path, content: bytes, told: str):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(tp.FormatError, match=told):
        tp.open(tmp_path / "x.safetensors")


def test_names_that_steer_a_terminal_are_spelt_out(tmp_path: Path):
    save_file({"a\x1b[2J": np.zeros(3), "b": np.ones(3)}, tmp_path / "w.safetensors")
    assert read(tp.open(tmp_path / "w.safetensors", "b")).tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(tp.FormatError, match="holds several tensors") as told:
        tp.open(tmp_path / "w.safetensors")
    assert "`'a\\x1b[2J'`" in str(told.value)
    save_file({"a\x1b[2J": np.zeros(3)}, tmp_path / "w.safetensors")
    with pytest.raises(tp.FormatError, match="a text without line breaks and control characters"):
        tp.open(tmp_path / "w.safetensors")
