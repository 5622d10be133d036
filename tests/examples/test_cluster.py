"""The example of a cluster: workers in processes, one of which is killed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.workers import forked_workers


# Workers that are killed are in streaming/cluster/test_workers.py.
@pytest.mark.thorough
def test_a_killed_worker_changes_no_bit(example: Any, capsys: Any) -> None:
    with forked_workers():
        first, second = example("cluster").main(["--rows", "8192", "--kill"])
    said = capsys.readouterr().out
    assert "killed the worker" in said and "the same bits in every run: True" in said
    rows = np.random.default_rng(0).normal(3.0, 2.0, (8192, 64)).astype(np.float32)
    np.testing.assert_allclose(first[0], rows.sum(0), rtol=1e-4)
    assert [leaf.tobytes() for leaf in first] == [leaf.tobytes() for leaf in second]
