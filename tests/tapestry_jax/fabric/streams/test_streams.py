"""Tensors of a fabric as sources and sinks: as storage promises, and under `tp.stream`."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.fabric.streams.sinks import FabricCreation, FabricSink
from tapestry_jax.storage import Sink, Stored

SHAPE = (7, 5)


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(-9, 9, shape).astype(np.int32)


@pytest.fixture(params=["files", "memory", "devices"])
def fabric(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tp.Fabric]:
    mesh = tp.mesh(data=2) if request.param == "devices" else None
    with tp.Fabric(tmp_path / "f" if request.param == "files" else None, mesh=mesh) as fabric:
        yield fabric


def written(sink: FabricSink, x: np.ndarray[Any, Any], rows: int) -> None:
    futures = []
    for start in range(0, len(x), rows):
        part = x[start : start + rows]
        futures.append(sink.write(((start, start + len(part)), (0, x.shape[1])), part))
    for future in futures:
        future.result(timeout=60)


def test_sinks_and_sources_are_those_of_storage(fabric: tp.Fabric):
    x = numbers(*SHAPE)
    sink = fabric.create("x").make(SHAPE, np.int32, ("row", "col"), (2, 5))
    assert isinstance(sink, Sink) and fabric.list() == ()
    written(sink, x, 3)
    written(sink, x[:3], 2)  # again: it overwrites itself
    source = sink.finish()
    assert isinstance(source, Stored) and fabric.list() == ("x",)
    assert (source.shape, source.dtype, source.names) == (SHAPE, np.int32, ("row", "col"))
    for box in (((0, 7), (0, 5)), ((3, 4), (1, 4)), ((2, 2), (0, 5))):
        into = np.empty([b - a for a, b in box], np.int32)
        source.read(box, into).result()
        np.testing.assert_array_equal(into, x[tuple(slice(a, b) for a, b in box)])
    with pytest.raises(tp.FormatError):
        source.read(((0, 8), (0, 5)), into)
    with pytest.raises(tp.FormatError):
        source.read(((0, 7), (0, 5)), np.empty((7, 5), np.int64))
    before = source.fingerprint()
    fabric.write("x", np.zeros(SHAPE, np.int32))
    source.read(((0, 7), (0, 5)), into := np.empty(SHAPE, np.int32)).result()
    np.testing.assert_array_equal(into, x)
    source.close()
    source.close()
    again = fabric.open("x")
    assert again.fingerprint() != before
    again.close()


def test_sinks_go_on_with_what_was_flushed(tmp_path: Path):
    x = numbers(*SHAPE)
    with tp.Fabric(tmp_path / "f") as fabric:
        sink = fabric.create("x").make(SHAPE, np.int32, None, (2, 5))
        written(sink, x[:4], 2)
        sink.flush()
        written(sink, x, 7)
        sink.close()
        assert fabric.list() == ()
    with tp.Fabric(tmp_path / "f") as fabric:
        creation = fabric.create("x")
        with pytest.raises(tp.FabricError, match="'x' was not begun as int32"):
            creation.again((7, 4), np.int32, None, (2, 4))
        sink = creation.again(SHAPE, np.int32, None, (2, 5))
        sink.write(((4, 7), (0, 5)), x[4:]).result()
        sink.finish().close()
        np.testing.assert_array_equal(fabric.read("x"), x)
        assert fabric.check("x") == ()
        fabric.delete("x")
    assert list((tmp_path / "f" / "blocks").glob("*/[0-9]*")) == []


def test_a_finished_job_gives_its_result_again(tmp_path: Path):
    x = numbers(8, 3)
    np.save(tmp_path / "x.npy", x)
    doubled = tp.Map(lambda a: a * 2)

    def run() -> Any:
        with tp.Fabric(tmp_path / "f") as fabric:
            source, over = tp.open(tmp_path / "x.npy"), {"_0": tp.chunks(size=4)}
            job = tp.stream(doubled, over, source, fabric.create("y"), checkpoint=tmp_path / "run")
            made = job.run()
            made.read(((0, 8), (0, 3)), into := np.empty((8, 3), np.int32)).result()
            made.close()
            return into.tolist(), len(job.meters)

    assert run() == ((x * 2).tolist(), 1)
    assert run() == ((x * 2).tolist(), 0)
    # What another has put under the name is not taken for it.
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.delete("y")
        fabric.load("y", x, names=("_0", "_1"))
    with pytest.raises(
        tp.TapestryError, match=r"its result is not there any more\n.*y in the fabric.* was written since"
    ):
        run()
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.delete("y")
    with pytest.raises(tp.TapestryError, match=r"its result is not there any more\n.*'y' was not begun"):
        run()


def test_a_fabric_that_was_put_back_does_not_give_another_result(tmp_path: Path):
    """The number of a version is given again then."""
    x = numbers(8, 3)
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("x", x, names=("row", "col"))
    shutil.copytree(tmp_path / "f", tmp_path / "copy")

    def run() -> Any:
        with tp.Fabric(tmp_path / "f") as fabric, contextlib.closing(fabric.open("x")) as source:
            over, sink = {"row": tp.chunks(size=4)}, fabric.create("y")
            tp.stream(tp.Map(lambda a: a * 2), over, source, sink, checkpoint=tmp_path / "run").run().close()
            return fabric.describe("y").version

    number = run()
    shutil.rmtree(tmp_path / "f")
    shutil.copytree(tmp_path / "copy", tmp_path / "f")
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("y", x, names=("row", "col"))
        assert fabric.describe("y").version == number
    with pytest.raises(
        tp.TapestryError, match=r"its result is not there any more\n.*y in the fabric.* was written since"
    ):
        run()


def test_what_has_its_name_takes_no_box_more(tmp_path: Path):
    x = numbers(*SHAPE)
    with tp.Fabric(tmp_path / "f") as fabric:
        source = fabric.create("x").make(SHAPE, np.int32)
        written(source, x, 7)
        source.finish().close()
        sink = fabric.create("x").again(SHAPE, np.int32)
        with pytest.raises(tp.FabricError, match="is finished already"):
            sink.write(((0, 7), (0, 5)), x)
        sink.close()
        with pytest.raises(tp.FabricError, match="'x' was not begun as float32"):
            fabric.create("x").again(SHAPE, np.float32)


def test_a_sink_with_holes_is_not_finished(tmp_path: Path):
    x = numbers(*SHAPE)
    with tp.Fabric(tmp_path / "f") as fabric:
        sink = fabric.create("x").make(SHAPE, np.int32, None, (2, 5))
        written(sink, x[:3], 2)
        with pytest.raises(tp.StorageError) as raised:
            sink.finish()
        headline, detail, _ = str(raised.value).splitlines()
        assert headline.startswith("`x in the fabric") and headline.endswith("has cells that nobody has written")
        assert detail == "  the first are those of the box [3:7, 0:5]"
        assert fabric.list() == ()
        sink.close()
    with tp.Fabric(tmp_path / "f") as fabric:
        sink = fabric.create("x").again(SHAPE, np.int32, None, (2, 5))
        sink.write(((4, 7), (0, 5)), x[4:]).result()
        with pytest.raises(tp.StorageError, match=r"\[3:4, 0:5\]"):
            sink.finish()
        sink.write(((3, 4), (0, 5)), x[3:4]).result()
        sink.finish().close()
        np.testing.assert_array_equal(fabric.read("x"), x)


def test_blocks_of_a_flush_that_failed_are_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    x = numbers(*SHAPE)
    with tp.Fabric(tmp_path / "f") as fabric:
        sink = fabric.create("x").make(SHAPE, np.int32, None, (2, 5))
        written(sink, x, 2)

        def full() -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(fabric._opened.blocks, "sync", full)
        with pytest.raises(tp.FabricError, match="No space left"):
            sink.flush()
        monkeypatch.undo()
        sink.finish().close()
        np.testing.assert_array_equal(fabric.read("x"), x)


def test_one_job_at_a_time_writes_a_name(fabric: tp.Fabric):
    creation = fabric.create("x")
    assert isinstance(creation, FabricCreation)
    one = creation.make(SHAPE, np.int32)
    two = creation.make(SHAPE, np.int32)
    with pytest.raises(tp.FabricError, match="'x' is being written by somebody else now"):
        one.finish()
    one.close()
    written(two, numbers(*SHAPE), 7)
    fabric.load("x", numbers(2, 2))
    with pytest.raises(tp.FabricError, match="'x' is there already"):
        two.finish()
    two.close()
    assert fabric.describe("x").type.shape == (2, 2)


def test_who_writes_a_name_that_another_has_begun_anew_is_told_before_a_flush(tmp_path: Path):
    with tp.Fabric(tmp_path / "f") as fabric:
        sink = fabric.create("x").make((8,), np.int32, chunks=(4,))
        sink.write(((0, 2),), np.ones(2, np.int32)).result()
        sink.flush()
        fabric.create("x").make((8,), np.int32, chunks=(4,)).close()
        with pytest.raises(tp.FabricError, match="'x' is being written by somebody else now"):
            sink.write(((2, 3),), np.ones(1, np.int32)).result()
        sink.close()


def test_streams_read_and_write_a_fabric(fabric: tp.Fabric):
    x = numbers(12, 3).astype(np.float32)
    fabric.load("x", x, names=("row", "col"))
    source = fabric.open("x")
    plus = tp.Map(lambda v: v + 1, "... -> ...", name="plus")
    tp.stream(plus, {"row": tp.chunks(size=4)}, [source], fabric.create("y")).run().close()
    source.close()
    np.testing.assert_array_equal(fabric.read("y"), x + 1)
    assert fabric.describe("y").type.names == ("row", "col")


def test_apply_streams_what_need_not_fit_into_memory(fabric: tp.Fabric):
    x = numbers(12, 3).astype(np.float32)
    fabric.load("x", x, names=("row", "col"))

    def centred(x: Any) -> Any:
        mean = tp.fold(tp.aggregators.Mean(), "row col -> col")(x)
        return x - mean, mean

    fabric.apply(centred, "x", out=("y", "mean"), over={"row": tp.chunks(size=4)})
    np.testing.assert_allclose(fabric.read("y"), x - x.mean(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(fabric.read("mean"), x.mean(0), rtol=1e-5, atol=1e-5)
    assert fabric.describe("y").made == fabric.describe("mean").made
    assert fabric._opened.catalogue.ask("SELECT * FROM pending") == []
    assert fabric._opened.catalogue.ask("SELECT * FROM pins") == []
    with pytest.raises(tp.FabricError, match="'y' is there already"):
        fabric.apply(centred, "x", out=("y", "mean"), over={"row": tp.chunks(size=4)})
    with pytest.raises(tp.FabricError, match="a stream has one set of entries"):
        fabric.apply(centred, "x", out=("a", "b"), over={"row": tp.chunks(size=4)}, plan={"col": "data"})
    with pytest.raises(tp.PlanError):
        fabric.apply(centred, "x", out=("a", "b"), over={"row": None})
    assert fabric.list() == ("mean", "x", "y")


def test_streamed_results_are_computed_again(tmp_path: Path):
    np.save(tmp_path / "x.npy", numbers(12, 3).astype(np.float32))
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("x", tmp_path / "x.npy", names=("row", "col"))
        total = tp.fold(tp.aggregators.Sum(), "row col -> col")
        graph = tp.trace(lambda x: (x * 2.0, total(x)), tp.TensorType({"row": 12, "col": 3}))
        fabric.apply(graph, "x", out=("y", "total"), over={"row": tp.chunks(size=4)})
        before = fabric.read("y"), fabric.read("total")
        for file in (tmp_path / "f" / "blocks").glob("*/[0-9]*"):
            file.unlink()
        assert fabric.recover("y") and fabric.recover("total")
        assert fabric.read("y").tobytes() == before[0].tobytes()
        assert fabric.read("total").tobytes() == before[1].tobytes()
        for table in ("pending", "pins", "garbage"):
            assert fabric._opened.catalogue.ask(f"SELECT * FROM {table}") == []
        assert len(list((tmp_path / "f" / "blocks").glob("*/[0-9]*"))) == 5
