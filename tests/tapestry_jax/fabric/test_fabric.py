"""The tour's fabric, in files, in memory and on a mesh, beside NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import tapestry_jax as tp

matmul = tp.Reduce(jnp.matmul, "i k, k n -> i n", tp.monoids.Sum)
gelu = tp.Map(jax.nn.gelu)


@tp.program("batch embed, embed mlp, mlp out -> batch out")
def mlp(x: Any, w1: Any, w2: Any) -> Any:
    return matmul(gelu(matmul(x, w1)), w2)


KINDS = ["files", "memory", "mesh in files", "mesh in memory"]


@contextmanager
def made(kind: str, tmp_path: Path) -> Iterator[tp.Fabric]:
    mesh = tp.mesh(data=2, model=2) if "mesh" in kind else None
    with tp.Fabric(tmp_path / "fabric" if "files" in kind else None, mesh=mesh) as fabric:
        yield fabric


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_fabric_does_what_the_tour_says(kind: str, tmp_path: Path):
    x, w1, w2 = numbers(16, 8), numbers(8, 12), numbers(12, 4)
    np.save(tmp_path / "x.npy", x)
    with made(kind, tmp_path) as fabric:
        fabric.load("x", tmp_path / "x.npy", names=("batch", "embed"))
        fabric.load("w1", w1, names=("embed", "mlp"))
        fabric.load("w2", w2, names=("mlp", "out"))
        fabric.allocate("y", tp.TensorType({"batch": 16, "embed": 8}))
        fabric.copy("x", {"batch": slice(0, 8)}, "y", {"batch": slice(8, 16)})
        fabric.apply(mlp, "x", "w1", "w2", out="z")
        fabric.export("z", tmp_path / "z.zarr")
        np.testing.assert_array_equal(fabric.read("y"), np.concatenate([0 * x[:8], x[:8]]))
        np.testing.assert_allclose(fabric.read("z"), mlp(x, w1, w2), rtol=1e-5, atol=1e-5)
        z = tp.open(tmp_path / "z.zarr")
        found = np.empty(z.shape, z.dtype)
        z.read(((0, 16), (0, 4)), found).result()
        assert z.names == ("batch", "out") and found.tobytes() == fabric.read("z").tobytes()
        z.close()
        assert list(fabric) == ["w1", "w2", "x", "y", "z"] and len(fabric) == 5 and "y" in fabric


@pytest.mark.parametrize("kind", ["mesh in files", "mesh in memory"])
def test_arrays_lie_on_the_mesh_as_their_layout_says(kind: str, tmp_path: Path):
    x = numbers(6, 8)
    with made(kind, tmp_path) as fabric:
        fabric.load("x", x, names=("row", "col"), layout={"row": "data", "col": ("model",)})
        mesh = fabric.array("x").sharding.mesh
        for layout, spec in [
            (None, PartitionSpec("data", "model")),
            ({"col": ("data", "model")}, PartitionSpec(None, ("data", "model"))),
            # Four devices do not divide six rows, two do.
            ({"row": ("model", "data")}, PartitionSpec("model", None)),
        ]:
            array = fabric.array("x", layout)
            assert array.sharding.is_equivalent_to(NamedSharding(mesh, spec), 2)
            np.testing.assert_array_equal(array, x)
        array.delete()  # as donating does
        np.testing.assert_array_equal(fabric.array("x"), x)


@pytest.mark.parametrize("kind", ["mesh in files", "mesh in memory"])
def test_apply_follows_the_layouts_of_inputs_or_a_plan(kind: str, tmp_path: Path):
    x, w = numbers(8, 4), numbers(4, 6)
    with made(kind, tmp_path) as fabric:
        fabric.load("x", x, names=("i", "k"), layout={"i": "data"})
        fabric.load("w", w, names=("k", "n"))
        fabric.apply(matmul, "x", "w", out="by_rows")
        fabric.apply(matmul, "x", "w", out="by_columns", plan={"n": "model"})
        graph = tp.trace(matmul, tp.TensorType({"i": 8, "k": 4}), tp.TensorType({"k": 4, "n": 6}))
        fabric.apply(graph, "x", "w", out="planned", plan=tp.plan(graph, tp.mesh(data=2, model=2), {"k": "data"}))
        layouts = [fabric.describe(name).layout for name in ("by_rows", "by_columns", "planned")]
        assert layouts == [(("i", ("data",)),), (("n", ("model",)),), ()]
        for name in ("by_rows", "by_columns", "planned"):
            np.testing.assert_allclose(fabric.read(name), x @ w, rtol=1e-5, atol=1e-5)


def test_another_mesh_reads_what_one_has_written(tmp_path: Path):
    x = numbers(8, 4)
    with tp.Fabric(tmp_path / "f", mesh=tp.mesh(data=4)) as fabric:
        fabric.load("x", x, names=("row", "col"), layout={"row": "data"})
    with tp.Fabric(tmp_path / "f", mesh=tp.mesh(data=2, other=2)) as fabric:
        assert fabric.array("x").addressable_shards[0].data.shape == (4, 4)
    with tp.Fabric(tmp_path / "f", mesh=tp.mesh(other=2)) as fabric:
        assert fabric.array("x").addressable_shards[0].data.shape == (8, 4)
    with tp.Fabric(tmp_path / "f") as fabric:
        np.testing.assert_array_equal(fabric.array("x"), x)


def test_apply_names_all_results_at_once_and_may_replace_its_inputs():
    with tp.Fabric(None) as fabric:
        fabric.load("x", np.arange(3, dtype=np.int32))
        for _ in range(40):
            fabric.apply(lambda x: (x + 1, x - 1), "x", out=("x", "y"), overwrite=True)
        assert fabric.read("x").tolist() == [40, 41, 42] and fabric.read("y").tolist() == [38, 39, 40]
        # What made it is remembered for some generations, not for ever.
        assert 10 < len(fabric._opened.catalogue.ask("SELECT * FROM versions")) < 60
        assert len(fabric._opened.blocks._held) == 2  # type: ignore[attr-defined]


def test_snapshots_keep_what_was_there_and_cost_nothing(tmp_path: Path):
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("x", np.arange(4.0, dtype=np.float32))
        fabric.load("kept", np.ones(2, np.float32))
        fabric.snapshot("before")
        files = len(list((tmp_path / "f" / "blocks").glob("*/[0-9]*")))
        fabric.write("x", np.full(2, 9, np.float32), (slice(0, 2),))
        fabric.delete("kept")
        fabric.allocate("later", tp.TensorType((2,)))
        fabric.restore("before", "kept")
        assert fabric.list() == ("kept", "later", "x") and fabric.read("x").tolist() == [9, 9, 2, 3]
        fabric.restore("before")
        assert fabric.list() == ("kept", "x") and fabric.read("x").tolist() == [0, 1, 2, 3]
        assert files == 2 == len(list((tmp_path / "f" / "blocks").glob("*/[0-9]*")))
        fabric.forget("before")
        assert fabric.snapshots() == ()


def test_an_allocated_tensor_takes_no_room_until_it_is_written(tmp_path: Path):
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.allocate("x", tp.TensorType({"row": 2**40, "col": 2**10}))
        fabric.write("x", np.ones((1, 2), np.float32), {"row": slice(2**39, 2**39 + 1), "col": slice(6, 8)})
        found = fabric.read("x", {"row": slice(2**39 - 1, 2**39 + 1), "col": slice(5, 9)})
        assert found.tolist() == [[0, 0, 0, 0], [0, 1, 1, 0]]
        assert fabric.describe("x").stored == 1


def test_copies_go_by_the_names_of_axes_and_may_overlap():
    x = numbers(4, 5)
    with tp.Fabric(None) as fabric:
        fabric.load("x", x, names=("a", "b"))
        fabric.allocate("turned", tp.TensorType({"b": 5, "a": 4}))
        fabric.copy("x", {"a": slice(1, 3)}, "turned", {"a": slice(0, 2)})
        np.testing.assert_array_equal(fabric.read("turned")[:, :2], x[1:3].T)
        fabric.allocate("renamed", tp.TensorType({"c": 4, "b": 5}))
        fabric.copy("x", None, "renamed", rename={"a": "c"})
        np.testing.assert_array_equal(fabric.read("renamed"), x)
        fabric.copy("x", {"a": slice(0, 3)}, "x", {"a": slice(1, 4)})
        np.testing.assert_array_equal(fabric.read("x"), np.concatenate([x[:1], x[:3]]))
