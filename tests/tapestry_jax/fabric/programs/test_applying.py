"""Programs on tensors by name: modules whose parameters are tensors too, and streams that are bounded and survive."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tapestry_jax as tp
from tests.forked import run

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


def linear(seed: int) -> Any:
    return tp.nnx.Linear(4, 3, rngs=nnx.Rngs(seed))


def test_parameters_of_modules_are_tensors_and_lineage_names_them(tmp_path: Path):
    model = linear(0)
    model.bias[...] = jnp.arange(3.0)
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("x", X, names=("batch", "embed"))
        fabric.apply(model, "x", out="y", parameters="model")
        kernel, bias = np.asarray(model.kernel[...]), np.asarray(model.bias[...])
        held = [name for name in fabric if name.startswith("model/")]
        assert sorted(fabric.describe(name).type.shape for name in held) == [(3,), (4, 3)]
        np.testing.assert_allclose(fabric.read("y"), X @ kernel + bias, rtol=1e-5)
        versions = {name: fabric.describe(name).version for name in held}
        # What is equal stays; a model that has changed needs to be told, and then old results keep theirs.
        fabric.apply(model, "x", out="again", parameters="model")
        assert {name: fabric.describe(name).version for name in held} == versions
        model.bias[...] = jnp.ones(3)
        with pytest.raises(tp.FabricError, match="is there already"):
            fabric.apply(model, "x", out="other", parameters="model")
        assert "other" not in fabric
        fabric.apply(model, "x", out="other", parameters="model", overwrite=True)
        np.testing.assert_allclose(fabric.read("other"), X @ kernel + 1, rtol=1e-5)
        assert {name: fabric.describe(name).version for name in held} != versions
        with pytest.raises(tp.FabricError, match=r"no lineage could name\n.*parameters="):
            fabric.apply(model, "x", out="more")
        with pytest.raises(tp.FabricError, match=r"the program holds no arrays that can be named\n.*\n.*\n.*tp.lift"):
            fabric.apply(lambda x: x, "x", out="more", parameters="model")
        with pytest.raises(tp.FabricError, match="a result has the name of a parameter"):
            fabric.apply(model, "x", out=held[0], parameters="model", overwrite=True)


def test_results_of_modules_are_computed_again(tmp_path: Path):
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("x", X, names=("batch", "embed"))
        fabric.apply(linear(1), "x", out="y", parameters="model")
        before = fabric.read("y")
        question = "SELECT file FROM blocks JOIN tensors USING (version) WHERE name = 'y'"
        for (file,) in fabric._opened.catalogue.ask(question):
            (tmp_path / "f" / "blocks" / file).unlink()
    with tp.Fabric(tmp_path / "f") as fabric:  # by the stored graph: the module is gone
        assert len(fabric.recover("y")) == 1
        assert fabric.read("y").tobytes() == before.tobytes()


def test_modules_are_streamed_within_a_memory(tmp_path: Path):
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    model = linear(2)
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("x", x, names=("batch", "embed"))
        fabric.apply(model, "x", out="y", parameters="model", over="batch", memory="64MiB", checkpoint=tmp_path / "run")
        np.testing.assert_allclose(fabric.read("y"), np.asarray(model(jnp.asarray(x))), rtol=1e-5)
        with pytest.raises(tp.PlanError, match="memory"):
            fabric.apply(model, "x", out="z", parameters="model", over="batch", memory="1KiB")
        assert "z" not in fabric
        # The dimension along which blocks lie is streamed where nobody says any.
        fabric.apply(lambda x: x + 1, "x", out="z", memory="64MiB")
        np.testing.assert_array_equal(fabric.read("z"), x + 1)
        with pytest.raises(tp.PlanError, match="several dimensions can be streamed"):
            fabric.apply(model, "x", out="z", parameters="model", memory="64MiB", overwrite=True)


def test_results_larger_than_the_memory_are_written_as_they_are_made(tmp_path: Path):
    x = np.random.default_rng(0).normal(size=(4096, 16)).astype(np.float32)
    with tp.Fabric(tmp_path / "f") as fabric:
        sink = fabric.create("x").make(x.shape, x.dtype, names=("row", "col"), chunks=(64, 16))
        sink.write(((0, 4096), (0, 16)), x).result()
        sink.finish().close()
        fabric.apply(lambda x: x + 1, "x", out="y", over="row", memory=x.nbytes // 2)
        np.testing.assert_array_equal(fabric.read("y"), x + 1)
        with pytest.raises(tp.PlanError, match=r"Give more memory\.$"):
            fabric.apply(lambda x: x + 1, "x", out="z", over="row", memory=1000)


KILLED = """
import os, signal, sys
import numpy as np, tapestry_jax as tp
from tapestry_jax.streaming.kept import checkpoint
keep, kept = checkpoint._Keeper.keep, [0]
def killing(keeper, snapshot):
    keep(keeper, snapshot)
    kept[0] += 1
    if kept[0] == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
checkpoint._Keeper.keep = killing
from tapestry_jax.streaming.jobs import stream as module
from tapestry_jax.streaming.kept.checkpoint import read_checkpoint
module.read_checkpoint = lambda folder, every: read_checkpoint(folder, 1)
from tests.tapestry_jax.fabric.programs.test_applying import centred
with tp.Fabric(f"{sys.argv[1]}/f") as fabric:
    fabric.apply(centred, "x", out=("y", "mean"), over={"row": tp.chunks(size=4)}, checkpoint=f"{sys.argv[1]}/run")
    print(fabric.list())
"""


def centred(x: Any) -> Any:
    mean = tp.fold(tp.aggregators.Mean(), "row col -> col")(x)
    return x - mean, mean


def test_a_stream_that_was_killed_goes_on(tmp_path: Path):
    x = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("x", x, names=("row", "col"))
    for kept, status in ((6, -signal.SIGKILL), (99, 0)):
        done = run(KILLED, tmp_path, kept)
        assert done.returncode == status, done.stderr[-2000:]
        with tp.Fabric(tmp_path / "f") as fabric:
            assert ("y" in fabric) == (status == 0)
    with tp.Fabric(tmp_path / "f") as fabric:
        np.testing.assert_allclose(fabric.read("y"), x - x.mean(0), atol=1e-6)
        np.testing.assert_allclose(fabric.read("mean"), x.mean(0), atol=1e-6)
        assert fabric.check("y") == ()
        question = "SELECT file FROM blocks JOIN tensors USING (version) WHERE name = 'y'"
        before = fabric.read("y")
        for (file,) in fabric._opened.catalogue.ask(question):
            (tmp_path / "f" / "blocks" / file).unlink()
        fabric.recover("y")
        assert fabric.read("y").tobytes() == before.tobytes()


@pytest.mark.parametrize(("names", "kept"), [((None, None), (None, None)), (("_0", "embed"), ("_0", "embed"))])
def test_axes_that_nobody_named_stay_without_a_name(names: tuple[str | None, ...], kept: tuple[str | None, ...]):
    with tp.Fabric(None) as fabric:
        fabric.load("x", X, names=names)
        fabric.apply(tp.Map(jnp.sin), "x", out="y")
        fabric.apply(tp.Map(lambda x: x.T, "rows cols -> cols rows"), "x", out="turned")
        assert fabric.describe("y").type.names == kept
        fabric.copy("y", None, "x", None)
        named = fabric.describe("turned").type.names
    assert named == (("cols", "rows") if names[0] is None else ("embed", "_0"))


def test_a_plan_that_calls_an_axis_by_its_number_gives_it_that_name(mesh2x4: Any):
    with tp.Fabric(None, mesh=mesh2x4) as fabric:
        fabric.load("x", X)
        fabric.apply(tp.Map(jnp.sin), "x", out="y", plan={"_0": "data"})
        assert fabric.describe("y").type.names == ("_0", None)
        assert fabric.array("y").sharding.spec[0] == "data"
