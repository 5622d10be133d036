"""Settings of JAX that decide which numbers a program gives.

A worker computes under those of the driver, and what a kernel computes is told under those that it was traced under.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import jax

_NAMES = (
    "enable_x64",
    "default_matmul_precision",
    "default_prng_impl",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
    "threefry_partitionable",
)


def settings() -> dict[str, Any]:
    """Those of this thread, by name."""
    return {name: getattr(jax.config, f"jax_{name}") for name in _NAMES}


@contextmanager
def under(given: Mapping[str, Any]) -> Generator[None]:
    """Compute under some settings; those of other threads stay."""
    with ExitStack() as stack:
        for name in _NAMES:
            stack.enter_context(getattr(jax, name)(given[name]))
        yield
