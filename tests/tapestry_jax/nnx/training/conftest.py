"""Trainers of one plan share its program, which each of them would trace anew."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tests.thoroughly import thoroughly

_KNOWN: dict[Any, tuple[Any, Any]] = {}
"""Programs by the schedules they are made of, which are kept, so that no other one gets their number."""


@pytest.fixture(autouse=True)
def programs_of_plans_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    if thoroughly():
        return
    plans: Any = importlib.import_module("tapestry_jax.plan")
    made = plans.Compiled

    def compiled(schedule: Any, mesh: Any) -> Any:
        key = id(schedule), mesh
        if key not in _KNOWN:
            _KNOWN[key] = schedule, made(schedule, mesh)
        return _KNOWN[key][1]

    monkeypatch.setattr(plans, "Compiled", compiled)
