"""The text of the quickstart, and its tables against counting by hand."""

from __future__ import annotations

import collections
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax.sharding import Mesh


@pytest.fixture
def text(example: Any) -> Any:
    return example("text")


def test_text_is_the_library_in_order_without_tests(text: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("b.py", 50_000), ("a/z.py", 60_000), ("test/no.py", 7), ("a/tests/no.py", 7), ("c.txt", 7)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name[0].encode() * size)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    read = text.standard_library()
    assert read.files == 2
    assert bytes(read.train) + bytes(read.held_out) == b"a" * 60_000 + b"b" * 50_000
    assert read.train.size == 99_000


def test_text_too_short_is_refused(text: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(SystemExit, match="holds 0 bytes of Python source"):
        text.standard_library()


def test_training_batch_is_a_function_of_seed_and_step(text: Any) -> None:
    data = np.arange(200, dtype=np.uint8)
    tokens, targets = text.training_batch(data, 3, 10, seed=1, step=2)
    assert tokens.shape == (3, 10)
    np.testing.assert_array_equal(targets, tokens + 1)
    np.testing.assert_array_equal(tokens, text.training_batch(data, 3, 10, seed=1, step=2)[0])
    for seed, step in ((1, 3), (2, 2)):
        assert (tokens != text.training_batch(data, 3, 10, seed=seed, step=step)[0]).any()


def test_held_out_rows_span_the_data_without_overlap(text: Any) -> None:
    data = np.arange(250, dtype=np.uint8)
    rows = text.held_out_rows(data, 4, 10, 100)
    assert rows.shape == (5, 4, 12)
    assert rows[0, 0, 0] == 0
    assert rows[-1, -1, -1] == 249
    assert np.unique(rows).size == rows.size


def test_tables_count_what_a_counter_counts(text: Any, mesh2x4: Mesh) -> None:
    data = np.random.default_rng(0).choice(np.array([0, 7, 97, 255], np.uint8), 1003)
    tables = text.Tables.count(data, mesh2x4)
    # 1002 pairs do not divide over 8 devices.
    pairs = collections.Counter(zip(data[:-1].tolist(), data[1:].tolist(), strict=True))
    assert tables.pairs.sum() == 1002
    assert {(a, b): tables.pairs[a, b] for a, b in pairs} == pairs
    triples = collections.Counter(zip(data[:-2].tolist(), data[1:-1].tolist(), data[2:].tolist(), strict=True))
    assert tables.triples.sum() == 1001
    assert {(a, b, c): tables.triples[a * 256 + b, c] for a, b, c in triples} == triples


def test_tables_losses_by_hand(text: Any, mesh8: Mesh) -> None:
    tables = text.Tables.count(np.frombuffer(b"abababac", np.uint8), mesh8)
    rows = np.frombuffer(b"bab", np.uint8).astype(np.int32)[None]
    # After `a`: three `b`, one `c`. After `ba`: two `b`, one `c`.
    after_one = (3 + 1) / (4 + 256)
    assert tables.bigram_loss(rows) == pytest.approx(-math.log(after_one))
    assert tables.trigram_loss(rows) == pytest.approx(-math.log((2 + 16 * after_one) / (3 + 16)))
