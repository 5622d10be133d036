"""All of a result: an array as it is, or what a sink has made, read and closed."""

from __future__ import annotations

from typing import Any

import numpy as np


def whole(found: Any) -> np.ndarray:
    """The numbers of a result."""
    if isinstance(found, np.ndarray):
        return found
    array = np.empty(found.shape, found.dtype)
    found.read(tuple((0, size) for size in found.shape), array).result()
    found.close()
    return array
