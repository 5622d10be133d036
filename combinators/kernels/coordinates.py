"""Kernels that read coordinates, and what they may leave out: to search them, or to look whether anything counts."""

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
