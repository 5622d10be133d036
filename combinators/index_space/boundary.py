"""Boundaries: what answers where an affine axis reads outside of its tensor."""

from __future__ import annotations

from collections.abc import Sequence

from combinators.errors import SignatureError, message
from combinators.index_space.signature import Signature

BOUNDARIES = ("valid", "zero", "periodic", "reflect", "edge")
OWN = "own"
"""Of axes whose kernel answers by itself, which nobody writes: `combinators.operations.outside` finds where it can."""


def boundary_modes(signature: Signature, boundary: str | Sequence[str]) -> tuple[str, ...]:
    """Spell a boundary out, one mode for every affine operand axis that is not bare.

    Args:
      signature: with or without `...`.
      boundary: one mode for all, or one for each.

    Returns:
      The modes, in order of appearance.

    Raises:
      SignatureError: when a mode is unknown or their number is wrong.
    """
    windows = [
        (index, at)
        for index, operand in enumerate(signature.operands)
        for at, axis in enumerate(operand.axes)
        if axis.is_window
    ]
    modes = (boundary,) * len(windows) if isinstance(boundary, str) else tuple(boundary)
    for mode in (boundary,) if isinstance(boundary, str) else modes:
        if mode not in (*BOUNDARIES, OWN):
            raise SignatureError(
                message(f"unknown boundary {mode!r} for `{signature}`.", remedy=f"Use one of {', '.join(BOUNDARIES)}.")
            )
    if len(modes) != len(windows):
        raise SignatureError(
            message(
                "wrong number of boundaries.",
                signature.show(*windows),
                f"expected {len(windows)}, got {len(modes)}",
                remedy="Give one boundary for all axes, or one for each axis with an expression.",
            )
        )
    return modes
