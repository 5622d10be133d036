"""The compilers for TPU and CUDA, where they are installed: `make aot` runs these tests, `make test` skips them."""

from __future__ import annotations

import importlib.util

import pytest

MACHINES = {"v5e:2x4": "libtpu", "h100:1x8": "jax_plugins"}


@pytest.fixture(scope="session", params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    """The name of a machine of eight devices, whose compiler is installed."""
    if importlib.util.find_spec(MACHINES[request.param]) is None:
        pytest.skip(f"needs the compiler of {request.param}: pip install 'tapestry-jax[aot]'")
    return request.param
