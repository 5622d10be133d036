"""Whether a run is one of `make thorough`, for what no mark can leave out: counts of examples, parts of one test.

And marks for parameters that repeat: `but`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest


def thoroughly() -> bool:
    """Whether everything is run."""
    return "TAPESTRY_THOROUGH" in os.environ


def some(examples: int) -> int:
    """How many examples a property draws: a third of them, and all where everything is run."""
    return examples if thoroughly() else examples // 3


def but(values: Iterable[Any], *left: Any) -> list[Any]:
    """Parameters of one name: `values`, of which those `left` to the thorough tests are marked."""
    return [pytest.param(each, marks=[pytest.mark.thorough] * (each in left)) for each in values]
