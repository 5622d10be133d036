"""Kernels of which their programs tell nothing: what is refused before a law is asked would be no mutant for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp


def unseen(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The same kernel, which looks its operands up, every cell at its own place."""

    @functools.wraps(kernel)
    def looked_up(*blocks: Any) -> Any:
        return kernel(*(block[jnp.arange(len(block))] if block.ndim else block for block in blocks))

    return looked_up
