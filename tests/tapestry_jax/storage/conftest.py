"""A disk that is full, for the tests of storage."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def small_files() -> Iterator[int]:
    """No file may be larger than a megabyte, as if the disk were full beyond."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, before[1]))
    yield 2**20
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)
