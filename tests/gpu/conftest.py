"""One GPU and a mesh of it. Products run in their full precision: what the default costs is measured, not tested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import pytest

import tapestry_jax as tp


@pytest.fixture
def gpu() -> jax.Device:
    """The first GPU."""
    return jax.devices("gpu")[0]


@pytest.fixture
def mesh(gpu: jax.Device) -> Any:
    """One GPU, under two axes of size 1."""
    return tp.mesh([gpu], data=1, model=1)


@pytest.fixture(autouse=True)
def _full_precision() -> Iterator[None]:
    with jax.default_matmul_precision("highest"):
        yield
