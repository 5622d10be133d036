"""A fixture that ends jobs where their state is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tapestry_jax.streaming.kept import checkpoint
from tests.tapestry_jax.streaming.kept.stops import Stop


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None, bool], None]:
    """Ends jobs at their n-th state, before or after it is written; None lets them run."""
    save, plan = checkpoint.save, {"left": -1, "before": 0}

    def stopped(folder: Any, frozen: Any) -> int:
        plan["left"] -= 1
        if plan["left"] == 0 and plan["before"]:
            raise Stop
        written = save(folder, frozen)
        if plan["left"] == 0:
            raise Stop
        return written

    monkeypatch.setattr(checkpoint, "save", stopped)
    return lambda left, before: plan.update(left=-1 if left is None else left, before=int(before))
