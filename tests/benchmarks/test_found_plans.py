"""The plans that searches find, printed so that two versions can be held against each other."""

from __future__ import annotations

import json

import pytest

from benchmarks import found_plans


@pytest.mark.thorough
def test_what_is_found_is_printed_with_its_price_its_memory_and_its_gap(capsys: pytest.CaptureFixture[str]):
    assert found_plans.main(["--only", "large batch"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)["large batch"]
    assert found["entries"] == "(('batch', ('data', 'model')),)"
    assert 0 < found["seconds"] < 1 and 0 < found["memory"] < 80e9 and found["gap"] is None
    # What a search takes differs from run to run, and is not what versions are held by.
    assert printed.err.startswith("large batch: ")
    assert not any("CPU" in str(value) for value in found.values())
