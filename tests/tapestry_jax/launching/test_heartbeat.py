"""A sign of life changes the time of a file that the supervisor has named, and does nothing where nobody watches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tapestry_jax.launching.heartbeat import beat


def test_a_beat_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    beat()
    file = tmp_path / "rank"
    file.touch()
    os.utime(file, (1, 1))
    monkeypatch.setenv("TAPESTRY_HEARTBEAT", str(file))
    beat()
    assert file.stat().st_mtime > 1
    file.unlink()
    beat()
    assert not file.exists()
