"""Changing the dtype of values."""

from __future__ import annotations

from typing import Any

from combinators.recording.reorder import astype


def cast(value: Any, dtype: Any) -> Any:
    """The value in `dtype`; itself where it has it, or where `dtype` is None."""
    return value if dtype is None else astype(value, dtype)
