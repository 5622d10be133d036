"""What reading and writing take beside arrays: said by whatever is read or written, and no more than that is taken."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax import fabric, storage, streaming
from tapestry_jax.storage import Beside, joined, numbers, save, stored
from tapestry_jax.storage.files.ranges import LocalFile
from tapestry_jax.storage.formats import FORMATS
from tapestry_jax.storage.protocols import NOTHING
from tapestry_jax.streaming.fits.budget import shown
from tests.forked import run

X = np.random.default_rng(0).normal(size=200_000)


def classes() -> Iterator[type]:
    for room in (storage, streaming, fabric):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            for _, each in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                if each.__module__ == module.name and not getattr(each, "_is_protocol", False):
                    yield each


def test_whatever_is_read_says_what_reading_takes():
    sources = {each for each in classes() if all(hasattr(each, name) for name in ("read", "fingerprint", "close"))}
    assert {each.__name__ for each in sources} >= {"LaidOut", "ZarrStored", "ColumnStored", "FabricSource", "InMemory"}
    assert [each.__name__ for each in sources if not callable(getattr(each, "beside", None))] == []


def test_whatever_is_made_says_what_writing_takes():
    made = {each for each in classes() if all(hasattr(each, name) for name in ("make", "again", "where"))}
    made -= {each for each in made if "make" in getattr(each, "__dataclass_fields__", {})}
    assert {each.__name__ for each in made} >= {"FabricCreation"}
    assert [each.__name__ for each in made if not callable(getattr(each, "beside", None))] == []
    assert [name for name, row in FORMATS.items() if row.make is not None and row.beside is None] == []


class Asked:
    """Counts the bytes that are asked of files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lengths = list[int]()
        read = LocalFile.read

        def counted(file: LocalFile, offset: int, into: memoryview) -> None:
            self.lengths.append(len(into))
            read(file, offset, into)

        monkeypatch.setattr(LocalFile, "read", counted)


def read(source: Any, start: int, stop: int) -> Any:
    into = np.empty((stop - start, *source.shape[1:]), source.dtype)
    source.read(((start, stop), *((0, size) for size in source.shape[1:])), into).result()
    return into


def one_group(path: Path, **words: Any) -> Any:
    """A column in one row group, or batch."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"v": X})
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=10**9, use_dictionary=False, **words)
    else:
        importlib.import_module("pyarrow.feather").write_feather(table, path, chunksize=10**9, **words)
    return tp.open(path, "v")


def test_a_row_group_is_read_page_by_page_and_each_page_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = one_group(tmp_path / "x.parquet", compression="none", data_page_size=2**16)
    assert source.chunks == X.shape
    source.beside((1000,))
    asked = Asked(monkeypatch)
    for start in range(0, len(X), 10_000):
        np.testing.assert_array_equal(read(source, start, start + 10_000), X[start : start + 10_000])
    assert max(asked.lengths) <= 2**18
    assert X.nbytes <= sum(asked.lengths) <= 1.1 * X.nbytes


def test_cells_of_a_batch_that_is_not_compressed_are_read_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = one_group(tmp_path / "x.arrow", compression="uncompressed")
    assert source.beside((1000,)) == NOTHING
    asked = Asked(monkeypatch)
    np.testing.assert_array_equal(read(source, 150_000, 151_000), X[150_000:151_000])
    assert asked.lengths == [8000]


@pytest.mark.parametrize(
    ("name", "words", "least"),
    [
        ("x.parquet", {"data_page_size": 2**16, "max_rows_per_page": 10**9}, 2**17),
        ("x.parquet", {"data_page_size": 10**9, "max_rows_per_page": 10**9}, 2 * X.nbytes),
        ("x.feather", {"compression": "lz4"}, 2 * X.nbytes),
    ],
)
def test_what_is_decoded_at_once_is_counted(tmp_path: Path, name: str, words: Any, least: int):
    if "max_rows_per_page" in words and "max_rows_per_page" not in _words():
        del words["max_rows_per_page"]
    found = one_group(tmp_path / name, **words).beside((1000,))
    assert least <= found.bytes <= 2 * least + (14 << 20)
    assert "200,000 rows (1.5 MiB)" in found.what
    assert found.less.startswith("Write it")


def _words() -> set[str]:
    parquet = pytest.importorskip("pyarrow.parquet")
    return {*inspect.signature(parquet.ParquetWriter.__init__).parameters}


def test_a_compressed_member_is_held(tmp_path: Path):
    np.savez_compressed(tmp_path / "x.npz", x=X)
    np.savez(tmp_path / "plain.npz", x=X)
    assert tp.open(tmp_path / "x.npz").beside((10,)).bytes >= X.nbytes
    assert tp.open(tmp_path / "plain.npz").beside((10,)) == NOTHING


def test_cells_that_lie_as_they_are_read_take_nothing_and_others_a_buffer(tmp_path: Path):
    np.save(tmp_path / "x.npy", X.reshape(400, 500))
    source = tp.open(tmp_path / "x.npy")
    assert source.beside((10, 500)) == NOTHING
    assert 0 < source.beside((10, 1)).bytes <= 4 << 20
    np.save(tmp_path / "swapped.npy", X.astype(">f8"))
    assert tp.open(tmp_path / "swapped.npy").beside((1000,)).bytes == 4 * 8000


def test_a_database_takes_what_its_limit_says_and_rows(tmp_path: Path):
    pytest.importorskip("duckdb")
    wide = X[:60_000].reshape(3000, 20)
    save(tmp_path / "x.duckdb", {"v": stored(wide)})
    source = tp.open(tmp_path / "x.duckdb")
    assert 3000 * 20 * 8 <= source.beside((10, 20)).bytes <= 24 << 20
    np.testing.assert_array_equal(read(source, 1000, 2900), wide[1000:2900])


def test_of_joined_tensors_the_one_that_takes_most_counts_twice(tmp_path: Path):
    both = [one_group(tmp_path / "x.feather", compression="lz4"), stored(X)]
    assert joined(both).beside((10,)).bytes == 2 * both[0].beside((10,)).bytes
    assert numbers(joined(both)).beside((10,)) == Beside(160, "the numbers of rows")


@pytest.mark.parametrize("name", ["y.npy", "y.safetensors"])
def test_a_sink_takes_pages_of_cells_that_lie_apart(name: str):
    sink, shape, dtype = tp.create(name), (1000, 4000), np.dtype(np.float32)
    assert sink.beside(shape, shape, dtype, (10, 4000)) == NOTHING
    assert 0 < sink.beside(shape, shape, dtype, (1000, 10)).bytes <= 4 << 20


@pytest.mark.parametrize(("count", "told"), [(3, "3 B"), (2048, "2.0 KiB"), (5 << 20, "5.0 MiB")])
def test_bytes_are_shown(count: int, told: str):
    assert shown(count) == told


_MEASURED = """
import gc, sys
import jax
import numpy as np
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
import tapestry_jax as tp
def counted(name):
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1])
folder, name = sys.argv[1:3]
total = tp.fold(tp.aggregators.Sum(), "r -> ")
tp.stream(total, {"r": tp.chunks(size=16)}, tp.open(f"{folder}/small.{name.split('.')[-1]}", "v")).run()
job = tp.stream(total, "r", tp.open(f"{folder}/{name}", "v"), memory="28MiB")
gc.collect()
open("/proc/self/clear_refs", "w").write("5")
before = counted("VmRSS")
found = float(job.run())
print(job.plan().total, counted("VmHWM") - before, found)
"""


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.duckdb"])
def test_a_run_over_tables_adds_no_more_than_was_planned(tmp_path: Path, name: str):
    x = np.random.default_rng(1).normal(size=4_000_000)  # 32 MB: in one row group, or batch
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for file, rows in ((f"small.{name.split('.')[-1]}", x[:100]), (name, x)):
        if name == "x.duckdb":
            pytest.importorskip("duckdb")
            save(tmp_path / file, {"v": stored(rows)})
        elif name == "x.parquet":
            parquet.write_table(arrow.table({"v": rows}), tmp_path / file, row_group_size=10**9)
        else:
            table = arrow.table({"v": rows})
            importlib.import_module("pyarrow.feather").write_feather(
                table, tmp_path / file, chunksize=10**9, compression="uncompressed"
            )
    ran = run(_MEASURED, tmp_path, name)
    assert ran.returncode == 0, ran.stderr
    planned, measured, total = map(float, ran.stdout.split())
    assert total == pytest.approx(x.sum())
    assert planned <= 28 << 20
    assert measured <= 1.25 * planned + (4 << 20)
