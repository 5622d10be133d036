"""Modules of the examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.example_modules import EXAMPLES, modules_of


@pytest.fixture
def example() -> Iterator[Any]:
    """Imports a module of `examples/` by its name."""
    with modules_of(EXAMPLES) as load:
        yield load
