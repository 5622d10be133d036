"""The example of data larger than memory, on few rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp


# Folds of files within a memory are in tests/tapestry_jax/streaming.
@pytest.mark.thorough
def test_streaming_statistics_are_those_of_numpy(example: Any, tmp_path: Path, capsys: Any) -> None:
    module = example("streaming_statistics")
    module.ROWS_A_CHUNK, module.COLUMNS = 256, 16
    moments, products = module.main(["--rows", "1000", "--memory", "1MiB"])
    module.write(tmp_path / "x.zarr", 1000)
    source = tp.open(tmp_path / "x.zarr")
    x = np.empty(source.shape, source.dtype)
    source.read(((0, 1000), (0, 16)), x).result()
    source.close()
    np.testing.assert_allclose(moments["mean"], x.mean(0, np.float64), rtol=1e-5)
    np.testing.assert_allclose(moments["variance"], x.var(0, np.float64), rtol=1e-5)
    np.testing.assert_allclose(products, x.T @ x, rtol=1e-4)
    assert "fits" in capsys.readouterr().out
