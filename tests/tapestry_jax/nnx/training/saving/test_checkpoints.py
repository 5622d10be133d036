"""What is written: each piece of an array once, without a program, and bit by bit what is read on any mesh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import tapestry_jax as tp
from tapestry_jax.nnx.training.saving.checkpoints import Checkpoints

SPECS = {"whole": (), "cut": ("data",), "across": (None, "model"), "both": (("model", "data"), None), "one": ("model",)}
RECORD = {"history": [], "record": {}, "batches": None}


def test_arrays_are_written_without_a_program_and_read_on_another_mesh(
    tmp_path: Path, mesh2x4: Any, mesh8: Any
) -> None:
    values = {name: np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32) for name in SPECS}
    arrays = {
        name: jax.device_put(value, NamedSharding(mesh2x4, PartitionSpec(*SPECS[name])))
        for name, value in values.items()
    }
    compiled: list[str] = []

    def listen(event: str, duration_secs: float, **more: Any) -> None:
        del duration_secs, more
        compiled.extend([event] if "compile" in event else [])

    checkpoints = Checkpoints(tmp_path, keep=1)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        checkpoints.save(1, arrays, RECORD)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert compiled == []
    places = {name: NamedSharding(mesh8, PartitionSpec("data")) for name in SPECS}
    read = checkpoints.arrays(1, arrays, places)
    checkpoints.close()
    for name, value in values.items():
        np.testing.assert_array_equal(read[name], value)
        assert read[name].sharding == places[name]


@pytest.mark.parametrize("what", ["its index", "its values"])
def test_files_that_go_while_they_are_read_are_told_as_such(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One array: of several, Orbax closes the loop of its reads at the first that fails, and the others say so.
    arrays = {"x": jax.device_put(np.random.default_rng(0).normal(size=10**5), jax.devices()[0])}
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, arrays, RECORD)
    monkeypatch.setattr("tapestry_jax.nnx.training.saving.checkpoints.check_sums", lambda path: None)
    for file in [*(tmp_path / "1" / "arrays").rglob("d/*")]:
        if (file.stat().st_size > 10**5) == (what == "its values"):
            file.unlink()
    with pytest.raises(tp.TapestryError, match="cannot be read"):
        checkpoints.arrays(1, arrays, {"x": arrays["x"].sharding})
    checkpoints.close()
