"""The tour of the fabric: what it prints, and what it leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tapestry_jax as tp
from tests.example_modules import EXAMPLES, modules_of


# What it shows is in tests/tapestry_jax/fabric.
@pytest.mark.thorough
def test_fabric_tour_recovers_and_exports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    with modules_of(EXAMPLES) as load:
        example = load("fabric_tour")
        monkeypatch.setattr(example, "ROWS", 1024)
        monkeypatch.setattr(example, "COLUMNS", 4)
        example.tour(tmp_path)
    told = capsys.readouterr().out
    assert "was damaged; recovered: [((" in told and "variances near 1.0000" in told
    found = tp.open(tmp_path / "y.zarr")
    into = np.empty(found.shape, found.dtype)
    found.read(((0, 2048), (0, 4)), into).result()
    found.close()
    rows = np.load(tmp_path / "x.npy")
    np.testing.assert_allclose(into[:1024], (rows - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-6), rtol=1e-4, atol=1e-4)
