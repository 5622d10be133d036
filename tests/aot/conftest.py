"""The compilers for TPU and CUDA, where they are installed: `make aot` runs these tests, `make test` skips them."""

from __future__ import annotations

import pytest

from tapestry_jax.aot import cuda, tpu


@pytest.fixture(scope="session", params=["v5e:2x4", "h100:1x8"])
def machine(request: pytest.FixtureRequest) -> str:
    """The name of a machine whose compiler is installed: both of eight devices, or those that a test asks for.

    A test asks for others by `@pytest.mark.parametrize("machine", [...], indirect=True)`.
    """
    compiler = tpu if request.param.startswith("v") else cuda
    if not compiler.is_installed():
        pytest.skip(f"needs the compiler of {request.param}: pip install 'tapestry-jax[aot]'")
    return request.param
