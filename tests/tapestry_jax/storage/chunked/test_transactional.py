"""Icechunk: a tensor is there when it is finished and not before, and is what zarr-python reads."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage.chunked.transactional import asked
from tests.forked import run
from tests.nobody import as_nobody, read_only
from tests.tapestry_jax.storage.round_trips import boxes, made, numbers, read, write

icechunk = pytest.importorskip("icechunk", reason="needs icechunk")
zarr = pytest.importorskip("zarr", reason="needs zarr")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def theirs(path: str = "x.icechunk", name: str = "x") -> Any:
    """What Icechunk and zarr-python see, without us."""
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(path))
    return zarr.open_array(repository.readonly_session("main").store, path=name, mode="r")


def versions(path: str = "x.icechunk") -> int:
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(path))
    return len([*repository.ancestry(branch="main")])


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex64", "float16"])
def test_what_is_finished_is_read_by_them_and_by_us(dtype: str) -> None:
    x = numbers((7, 5), dtype)
    source = made(Path("x.icechunk"), x, names=("row", "c"), chunks=(3, 2))
    np.testing.assert_array_equal(theirs()[:], x)
    assert theirs().metadata.dimension_names == source.names == ("row", "c") and source.chunks == (3, 2)
    for box in boxes(x.shape):
        np.testing.assert_array_equal(read(source, box), x[tuple(slice(a, b) for a, b in box)])
    source.close()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5, 0)])
def test_degenerate_shapes(shape: tuple[int, ...]) -> None:
    x = numbers(shape)
    np.testing.assert_array_equal(read(made(Path("x.icechunk"), x)), x)


def test_nothing_is_seen_before_it_is_finished_or_when_it_is_given_up() -> None:
    sink = tp.create("x.icechunk").make((4,), np.float32)
    for start in (0, 2):
        sink.write(((start, start + 2),), np.full(2, start, np.float32)).result()
        with pytest.raises(tp.FormatError):
            tp.open("x.icechunk")
    sink.flush()
    assert versions() == 1
    sink.close()
    with pytest.raises(tp.FormatError):
        tp.open("x.icechunk")
    sink = tp.create("x.icechunk").make((4,), np.float32)
    sink.write(((0, 2),), np.zeros(2, np.float32)).result()
    with pytest.raises(tp.StorageError, match="has cells that nobody has written"):
        sink.finish()
    sink.close()


def test_readers_keep_their_snapshot_and_overwriting_is_a_new_one() -> None:
    old = made(Path("x.icechunk"), numbers((4, 3)))
    before = old.fingerprint()
    with pytest.raises(tp.StorageError, match=r"has an array `x` already"):
        tp.create("x.icechunk").make((4, 3), np.float32)
    sink = tp.create("x.icechunk", overwrite=True).make((2,), np.int32)
    np.testing.assert_array_equal(read(tp.open("x.icechunk")), numbers((4, 3)))
    sink.write(((0, 2),), np.arange(2, dtype=np.int32)).result()
    new = sink.finish()
    np.testing.assert_array_equal(read(old), numbers((4, 3)))
    assert read(new).tolist() == [0, 1] and old.fingerprint() == before != new.fingerprint()
    assert versions() == 3


def test_transactions_of_other_arrays_are_no_conflict_and_of_the_same_are() -> None:
    made(Path("x.icechunk"), numbers((4,))).close()
    sinks = [tp.create("x.icechunk", overwrite=True).make((4,), np.float32) for _ in range(2)]
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage("x.icechunk"))
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="other", shape=(2,), dtype="f4")[:] = 5
    session.commit("theirs")
    for number, sink in enumerate(sinks):
        sink.write(((0, 4),), np.full(4, number, np.float32)).result()
    sinks[0].finish().close()
    with pytest.raises(tp.FormatError, match=r"cannot commit: `.*x[.]icechunk`"):
        sinks[1].finish()
    sinks[1].close()
    assert read(tp.open("x.icechunk", "x")).tolist() == [0] * 4 and theirs(name="other")[:].tolist() == [5, 5]
    with pytest.raises(tp.FormatError, match="it holds `other`, `x`"):
        tp.open("x.icechunk")


KILLED = """
import os, signal, sys
import numpy as np, tapestry_jax as tp
sink = tp.create("x.icechunk", overwrite=True).make((4,), np.float32)
sink.write(((0, 4),), np.ones(4, np.float32)).result()
sink.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_is_killed_before_the_commit_is_not_there() -> None:
    made(Path("x.icechunk"), np.zeros(4, np.float32)).close()
    assert run(KILLED).returncode == -signal.SIGKILL and versions() == 2
    np.testing.assert_array_equal(read(tp.open("x.icechunk")), np.zeros(4))
    # A new transaction is none the worse for it.
    sink = tp.create("x.icechunk", overwrite=True).make((1,), np.float32)
    sink.write(((0, 1),), np.ones(1, np.float32)).result()
    assert read(sink.finish()).tolist() == [1]


def test_what_cannot_be_is_told() -> None:
    with pytest.raises(tp.StorageError, match="no repository lies at"):
        tp.open("nowhere.icechunk")
    Path("full.icechunk").mkdir()
    with pytest.raises(tp.StorageError, match="is no repository of Icechunk"):
        tp.create("full.icechunk").make((2,), np.float32)
    with pytest.raises(tp.FormatError, match="cannot open a repository"):
        tp.open("full.icechunk")
    with pytest.raises(tp.FormatError):
        tp.create("x.icechunk").make((2,), ml_dtypes.bfloat16)
    x = np.arange(4096, dtype=np.float32)
    source = write(tp.create("x.icechunk").make(x.shape, x.dtype), x, rows=len(x))
    for path in Path("x.icechunk/chunks").iterdir():
        path.write_bytes(path.read_bytes()[:-4] + b"1234")
    with pytest.raises(tp.FormatError, match="cannot read the box"):
        read(source)
    source.close()


def test_pipes_in_a_repository_are_not_waited_for() -> None:
    x = np.arange(4, dtype=np.float32)
    write(tp.create("x.icechunk").make(x.shape, x.dtype), x).close()
    for path in [each for each in Path("x.icechunk").rglob("*") if each.is_file()]:
        kept = path.rename("kept")
        os.mkfifo(path)
        for use in (lambda: tp.open("x.icechunk"), lambda: tp.create("x.icechunk", overwrite=True).make((2,), x.dtype)):
            with pytest.raises(tp.StorageError, match=f"{path.name}` is no file"):
                use()
        path.unlink()
        kept.rename(path)
    assert read(tp.open("x.icechunk")).tolist() == x.tolist()


def test_a_repository_that_may_not_be_written_to_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with as_nobody() as folder:
        x = np.arange(4, dtype=np.float32)
        write(tp.create(folder / "x.icechunk").make(x.shape, x.dtype), x).close()
        read_only(folder)
        read_only(folder / "x.icechunk")
        for name in ("y.icechunk", "x.icechunk", "none/y.icechunk"):
            with pytest.raises(
                tp.StorageError, match=r"cannot make a repository: .*\n  the system says: Permission denied"
            ):
                tp.create(folder / name, overwrite=True).make((2,), x.dtype)
        assert read(tp.open(folder / "x.icechunk")).tolist() == x.tolist()
        assert "panicked" not in capfd.readouterr().err


def test_a_panic_of_icechunk_is_told_and_no_other_exception_is() -> None:
    class PanicException(BaseException):
        pass

    def raising(error: BaseException) -> None:
        raise error

    with pytest.raises(tp.FormatError, match="cannot go on: `here`\n  PanicException: unexpected"):
        asked("go on", "here", raising, PanicException("unexpected"))
    with pytest.raises(KeyboardInterrupt):
        asked("go on", "here", raising, KeyboardInterrupt())


def test_a_stream_commits_when_it_ends_and_keeps_no_state() -> None:
    x = np.arange(24, dtype=np.float32).reshape(12, 2)
    doubled = tp.Map(lambda a: a * 2, "row c -> row c")
    over = {"row": tp.chunks(size=4)}
    with pytest.raises(tp.PlanError, match="a sink of a job with checkpoint= has to survive it"):
        tp.stream(doubled, over, x, tp.create("x.icechunk"), checkpoint="run")
    made = tp.stream(doubled, over, x, tp.create("x.icechunk")).run()
    np.testing.assert_array_equal(read(made), 2 * x)
    np.testing.assert_array_equal(theirs()[:], 2 * x)

    def failing() -> Any:
        yield x[:4]
        raise ValueError("no more")

    graph = tp.trace(doubled, tp.TensorType({"row": 12, "c": 2}))
    with pytest.raises(tp.TapestryError):
        tp.stream(graph, over, failing(), tp.create("x.icechunk", overwrite=True)).run()
    assert versions() == 2
