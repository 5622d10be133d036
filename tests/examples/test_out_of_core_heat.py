"""The example of a grid larger than memory, on few rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize("rows", [67, 128])
def test_heat_in_passes_over_files_is_heat_in_memory(example: Any, capsys: Any, rows: int) -> None:
    module = example("out_of_core_heat")
    module.COLUMNS = 8
    found, expected = module.main(["--rows", str(rows), "--memory", "120kB", "--passes", "2", "--rows-a-chunk", "16"])
    assert found.shape == (rows, 8)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert "16 steps in 2 passes" in capsys.readouterr().out
