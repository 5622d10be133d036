"""Random sequences of operations, beside a dictionary of NumPy arrays."""

from __future__ import annotations

from pathlib import Path

import pytest

import tapestry_jax as tp
from tests.tapestry_jax.fabric.model import Model
from tests.thoroughly import thoroughly

_TABLES = ("versions", "blocks", "operations", "operation_inputs", "version_operations", "graphs", "pins", "garbage")


@pytest.mark.parametrize("seed", range(100 if thoroughly() else 4))
def test_files_hold_what_numpy_holds(tmp_path: Path, seed: int):
    with tp.Fabric(tmp_path / "fabric") as fabric:
        _run(Model(fabric, seed, programs=seed % 4 == 0), 25)
    with tp.Fabric(tmp_path / "fabric") as fabric:
        assert _files(tmp_path) == {str(f) for (f,) in fabric._opened.catalogue.ask("SELECT file FROM blocks") if f}
        for name in fabric:
            assert fabric.check(name) == ()
            fabric.delete(name)
        for name in fabric.snapshots():
            fabric.forget(name)
        left = [table for table in _TABLES if fabric._opened.catalogue.ask(f"SELECT * FROM {table}")]
        assert left == [] and _files(tmp_path) == set()


@pytest.mark.parametrize("seed", range(300 if thoroughly() else 10))
def test_memory_holds_what_numpy_holds(seed: int):
    with tp.Fabric(None) as fabric:
        _run(Model(fabric, seed), 40)


@pytest.mark.parametrize("seed", range(30 if thoroughly() else 2))
def test_devices_hold_what_numpy_holds(seed: int):
    with tp.Fabric(None, mesh=tp.mesh(data=2, model=2)) as fabric:
        _run(Model(fabric, seed), 30)


def _run(model: Model, steps: int) -> None:
    for _ in range(steps):
        model.step()
        model.compare()


def _files(tmp_path: Path) -> set[str]:
    blocks = tmp_path / "fabric" / "blocks"
    return {path.relative_to(blocks).as_posix() for path in blocks.glob("*/[0-9]*")}
