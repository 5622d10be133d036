"""Kernels that read coordinates, and need not search them where they follow one another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class Searching(ABC):
    """A kernel that finds numbers among the coordinates of a block, which may have gaps.

    Where a plan cuts a dimension in blocks, not in stripes, coordinates have none, and no search is needed.
    """

    @property
    @abstractmethod
    def consecutive(self) -> Callable[..., Any]:
        """The same kernel for coordinates that follow one another; it may trust that they do."""


def consecutive(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel that runs where the coordinates of a block follow one another."""
    return kernel.consecutive if isinstance(kernel, Searching) else kernel
