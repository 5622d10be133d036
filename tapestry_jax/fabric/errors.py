"""The error of the fabric."""

from __future__ import annotations

from combinators.errors import TapestryError


class FabricError(TapestryError):
    """What a fabric refuses, has lost, or cannot write: it names the tensor, and the box where there is one."""
