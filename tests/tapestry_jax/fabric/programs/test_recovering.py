"""Blocks that are lost are computed again from what they were made of, and are what they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.fabric.catalogue import reads, writes
from tapestry_jax.fabric.programs.program import read_program

PLUS = tp.trace(lambda x: x + 1.5, tp.TensorType({"row": 6, "col": 4}))


def numbers() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


def lose(fabric: tp.Fabric, name: str, number: int | None = None) -> int:
    """Remove all block files of a tensor, or one of them; how many."""
    root = Path(fabric._opened.where.strip("'")) / "blocks"
    question = (
        "SELECT file FROM blocks JOIN tensors USING (version) WHERE name = ? AND file IS NOT NULL ORDER BY position"
    )
    found = [file for (file,) in fabric._opened.catalogue.ask(question, (name,))]
    found = found if number is None else found[number : number + 1]
    for file in found:
        (root / file).unlink()
    return len(found)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", numbers())
    return tmp_path


def test_results_are_computed_again(stored: Path):
    with tp.Fabric(stored / "f") as fabric:
        fabric.load("x", stored / "x.npy", names=("row", "col"))
        fabric.apply(PLUS, "x", out="z")
        before, version = fabric.read("z"), fabric.describe("z").version
        lose(fabric, "z")
        assert fabric.recover("z") == (((0, 6), (0, 4)),) and fabric.recover("z") == ()
        assert fabric.read("z").tobytes() == before.tobytes() and fabric.describe("z").version == version


def test_one_shard_is_computed_again_and_the_others_stay(stored: Path):
    with tp.Fabric(stored / "f") as fabric:
        fabric.load("x", stored / "x.npy", names=("row", "col"))
        fabric.allocate("y", tp.TensorType({"row": 6, "col": 4}), chunks=(2, 4))
        fabric.copy("x", {"row": slice(0, 5)}, "y", {"row": slice(1, 6)})
        fabric.copy("y", {"row": slice(1, 2)}, "y", {"row": slice(2, 3)})
        before = fabric.read("y")
        for number in (0, 1, 2):
            lose(fabric, "y", number)
            assert fabric.recover("y") == (((2 * number, 2 * number + 2), (0, 4)),)
            assert fabric.read("y").tobytes() == before.tobytes()


def test_what_it_was_made_of_is_computed_again_too(stored: Path):
    with tp.Fabric(stored / "f") as fabric:
        fabric.load("x", stored / "x.npy", names=("row", "col"))
        fabric.apply(PLUS, "x", out="y")
        fabric.apply(PLUS, "y", out="z")
        before = fabric.read("z")
        for name in "xyz":
            lose(fabric, name)
        fabric.recover("z")
        assert fabric.read("z").tobytes() == before.tobytes()
        assert [fabric.check(name) for name in "xyz"] == [(), (), ()]


def test_what_was_replaced_or_deleted_is_computed_again_on_the_way(stored: Path):
    with tp.Fabric(stored / "f") as fabric:
        fabric.load("x", stored / "x.npy", names=("row", "col"))
        for _ in range(5):
            fabric.apply(PLUS, "x", out="x", overwrite=True)
        fabric.apply(PLUS, "x", out="z")
        fabric.delete("x")
        before = fabric.read("z")
        lose(fabric, "z")
        fabric.recover("z")
        assert fabric.read("z").tobytes() == before.tobytes()
        # What was computed on the way is gone again.
        assert len(list((stored / "f" / "blocks").glob("*/[0-9]*"))) == 1
        assert fabric._opened.catalogue.ask("SELECT * FROM pins") == []


def test_snapshots_are_made_whole_with_the_tensor(stored: Path):
    with tp.Fabric(stored / "f") as fabric:
        fabric.load("x", stored / "x.npy", names=("row", "col"))
        fabric.snapshot("s")
        lose(fabric, "x")
        fabric.recover("x")
        fabric.delete("x")
        fabric.restore("s")
        np.testing.assert_array_equal(fabric.read("x"), numbers())


def test_a_program_that_no_file_holds_is_passed_again():
    def program(scale: float) -> Callable[[Any], Any]:
        return lambda x: tp.Map(lambda v: v * scale, "... -> ...", name="scaled")(x)

    with tp.Fabric(None) as fabric:
        fabric.load("x", numbers())
        fabric.apply(program(2.0), "x", out="z")
        blocks: Any = fabric._opened.blocks
        [name] = [each for each, array in blocks._held.items() if np.allclose(array, 2 * numbers())]
        blocks.remove([name])
        with pytest.raises(
            tp.FabricError, match=r"no file could hold the program\n.*program.<locals>.<lambda>'\n  Pass"
        ):
            fabric.recover("z")
        with pytest.raises(tp.FabricError, match="this is another program than made it"):
            fabric.recover("z", lambda x: x + 1)


def refused(fabric: tp.Fabric, text: str) -> None:
    with pytest.raises(tp.FabricError, match=text):
        fabric.recover("z")


def test_recovery_is_refused_where_it_cannot_be_right(stored: Path):
    with tp.Fabric(stored / "f") as fabric:
        fabric.load("z", numbers())
        lose(fabric, "z")
        refused(fabric, "recover 'z', block 0=0:6, 1=0:4: nobody knows how it was made\n  it was written from memory")
        fabric.load("z", stored / "x.npy", overwrite=True)
        lose(fabric, "z")
        np.save(stored / "x.npy", numbers() + 1)
        refused(fabric, "what it was loaded from changed\n  .*x.npy' is another file by now\n  Restore a snapshot")
        (stored / "x.npy").unlink()
        with pytest.raises(tp.FormatError):
            fabric.recover("z")


def test_other_bytes_are_never_taken(stored: Path):
    with tp.Fabric(stored / "f") as fabric:
        fabric.load("x", stored / "x.npy", names=("row", "col"))
        fabric.apply(PLUS, "x", out="z")
        catalogue = fabric._opened.catalogue
        known = reads.blocks(catalogue, 2)
        writes.put_blocks(catalogue, 2, {0: replace(known[0], checksum="0")}, known)
        refused(fabric, "other bytes came out than were lost\n  its checksum differs")


def test_programs_are_stored_where_a_file_can_hold_them():
    type = tp.TensorType({"row": 6, "col": 4})
    assert read_program(PLUS, ["x"], [type], "here").text == PLUS.to_json()
    nameless = read_program(tp.Map(lambda x: x, "... -> ..."), ["x"], [type], "here")
    assert nameless.text is None and nameless.results == (type,)


def test_a_mesh_computes_again_what_it_computed(stored: Path):
    matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
    with tp.Fabric(stored / "f", mesh=tp.mesh(data=2, model=2)) as fabric:
        fabric.load("x", stored / "x.npy", names=("i", "k"))
        np.save(stored / "w.npy", numbers().T.copy())
        fabric.load("w", stored / "w.npy", names=("k", "n"))
        fabric.apply(matmul, "x", "w", out="z", plan={"k": ("data", "model")})
        before = fabric.read("z")
        lose(fabric, "z")
        fabric.recover("z")
        assert fabric.read("z").tobytes() == before.tobytes()


def test_a_source_that_has_lost_parts_gives_those_that_are_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tapestry_jax.fabric.drafts.choose_chunks", lambda *_: (4, 4))
    x = np.arange(48, dtype=np.float32).reshape(12, 4)
    sink = tp.create(tmp_path / "x.zarr").make((12, 4), np.float32, None, (4, 4))
    sink.write(((0, 12), (0, 4)), x).result()
    sink.finish().close()
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("x", tmp_path / "x.zarr")
        blocks = [sorted((tmp_path / "f" / "blocks").glob("*/[0-9]*"))[at] for at in (0, 1)]
        (tmp_path / "x.zarr" / "c" / "1" / "0").unlink()
        (tmp_path / "x.zarr" / "zarr.json").touch()
        blocks[0].unlink()
        assert fabric.recover("x") == (((0, 4), (0, 4)),)
        assert (fabric.read("x") == x).all()
        blocks[1].unlink()
        with pytest.raises(tp.FabricError, match=r"block .*4:8.*: what it was loaded from changed"):
            fabric.recover("x")
