"""Memory as predicted beside what compilers allot: the table, and what is kept of them. Asking them: tests/aot."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from benchmarks.memory import Held, Kept, table
from benchmarks.memory_cases import cases


def _held(name: str, predicted: int, compiled: int) -> Held:
    return Held("cpu", name, (8, 8, predicted - 16), (8, 8, compiled - 16))


def test_the_worst_row_comes_first_to_whichever_side_it_misses() -> None:
    lines = table([_held("near", 105, 100), _held("high", 300, 200), _held("low", 150, 300)]).splitlines()
    assert lines[0].startswith("3 programs: 1 within a tenth, 1 within a fifth; 0.50 to 1.50; Spearman 0.500")
    assert [line.split(" | ")[0] for line in lines[4:]] == ["| low", "| high", "| near"]
    assert lines[4] == "| low | 150 | 300 | 0.50 | 134 | 284 |"


def test_a_compiler_is_asked_once_for_a_program(tmp_path: Path) -> None:
    asked: list[str] = []

    def lowered(text: str) -> Any:
        def compile_() -> Any:
            asked.append(text)
            sizes = {"argument_size_in_bytes": 1, "output_size_in_bytes": 2, "temp_size_in_bytes": 3}
            sizes["peak_memory_in_bytes"] = 4
            return SimpleNamespace(memory_analysis=lambda: SimpleNamespace(**sizes))

        return SimpleNamespace(as_text=lambda: text, compile=compile_)

    for asks in (True, True, False):
        assert Kept(tmp_path, asks).ask("cpu", lowered("one")) == (1, 2, 3, 4)
    assert Kept(tmp_path, False).ask("cpu", lowered("another")) is None
    assert Kept(tmp_path, True).ask("v5e:2x4", lowered("one")) == (1, 2, 3, 4)
    assert asked == ["one", "one"]


def test_ranks_are_of_what_predictions_are_held_to() -> None:
    def row(predicted: int, compiled: int, peak: int) -> Held:
        return Held("v5p:2x2x2", "row", (0, 0, predicted), (0, 0, compiled), peak)

    assert "; 1.00 to 1.00; Spearman 1.000" in table([row(1, 9, 1), row(2, 8, 2), row(3, 7, 3)])


@pytest.mark.parametrize("name", ["fsdp, FSDP", "pencil_fft, pencil FFT"])
def test_rows_are_grown_until_a_device_is_filled(name: str) -> None:
    devices = tuple(jax.devices()[:8])
    small, full = (cases(full)[name](devices).memory(grad=True).total for full in (False, True))
    assert small < 2**28 and 2**30 <= full < 2**32


def test_the_same_programs_stand_at_both_sizes() -> None:
    assert list(cases(full=True)) == list(cases())
