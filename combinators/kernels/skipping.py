"""Kernels that read coordinates, and compute nothing where these say that there is nothing to compute."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class Skipping(ABC):
    """A kernel that looks at the coordinates of its block, and skips the block where nothing in it counts.

    Looking has a price: what stands in a branch is compiled apart from what is around it.
    """

    @property
    @abstractmethod
    def unskipped(self) -> Callable[..., Any]:
        """The same kernel, which computes every block; what does not count gives what skipping gives."""


def unskipped(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel that runs where skipping saves nobody's time."""
    return kernel.unskipped if isinstance(kernel, Skipping) else kernel
