"""The example of grids larger than memory, on few columns: four times what may be used.

Thorough: a system of two fields.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize(("system", "fields"), [("heat", 1), pytest.param("reaction", 2, marks=pytest.mark.thorough)])
def test_steps_in_passes_over_files_are_those_in_memory(example: Any, capsys: Any, system: str, fields: int) -> None:
    module = example("out_of_core_heat")
    module.COLUMNS = 8
    rows, memory = 16_384 + 67, 128_000 * fields
    words = ["--system", system, "--rows", str(rows), "--memory", f"{memory}B", "--steps", "19", "--format", "npy"]
    found, expected = module.main([*words, "--rows-a-turn", "128"])
    assert sum(each.nbytes for each in found) >= 4 * memory
    for each, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(each, wanted, atol=1e-5)
    assert "19 steps in 3 passes" in capsys.readouterr().out
