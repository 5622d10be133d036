"""Whether a run is one of `make thorough`, for what no mark can leave out: counts of examples, parts of one test."""

from __future__ import annotations

import os


def thoroughly() -> bool:
    """Whether everything is run."""
    return "TAPESTRY_THOROUGH" in os.environ


def some(examples: int) -> int:
    """How many examples a property draws: a third of them, and all where everything is run."""
    return examples if thoroughly() else examples // 3
