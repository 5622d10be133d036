"""Whether a run is one of `make thorough`, for what no mark can leave out: counts of examples, parts of one test."""

from __future__ import annotations

import os


def thoroughly() -> bool:
    """Whether everything is run."""
    return "TAPESTRY_THOROUGH" in os.environ
