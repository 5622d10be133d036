"""What goes wrong in training."""

from __future__ import annotations

from combinators.errors import TapestryError


class TrainingError(TapestryError):
    """A trainer that cannot be made so, a step that gave no number, or a checkpoint that does not fit."""
