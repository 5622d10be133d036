"""Damaging schedules: one field changed where it stands, in loops too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tapestry_jax.planning.geometry.layout import Cut, Layout
from tapestry_jax.planning.scheduling.schedule import Convert, Region, Repeat, Run, Schedule

Edit = Callable[[Any], Any]


def damaged(schedule: Schedule, kind: type, edit: Edit, number: int = 0) -> Schedule:
    """The schedule with `edit` made to the step `number` of a kind, loops in the order in which they stand."""
    counter = [number]
    changed = _damaged(schedule, kind, edit, counter)
    assert counter[0] < 0, f"there is no {kind.__name__} number {number}"
    return changed


def _damaged(schedule: Schedule, kind: type, edit: Edit, counter: list[int]) -> Schedule:
    steps: list[Any] = []
    for step in schedule.steps:
        if isinstance(step, kind):
            counter[0] -= 1
            if counter[0] == -1:
                step = edit(step)
                steps += step if isinstance(step, list) else [step]
                continue
        if isinstance(step, Region | Repeat) and counter[0] >= 0:
            step = replace(step, body=_damaged(step.body, kind, edit, counter))
        steps.append(step)
    return replace(schedule, steps=tuple(steps))


def with_layout(schedule: Schedule, slot: int, axis: int, cut: Cut | None) -> Schedule:
    """The schedule in which a slot lies otherwise along one axis."""
    slots = list(schedule.slots)
    slots[slot] = replace(slots[slot], layout=slots[slot].layout.with_cut(axis, cut))
    return replace(schedule, slots=tuple(slots))


def renamed(schedule: Schedule, old: str, new: str) -> Schedule:
    """The schedule with a mesh axis, or a loop, under another name wherever one stands."""
    return _renamed(schedule, old, new)


def _renamed(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return new if value == old else value
    if isinstance(value, tuple | frozenset | list):
        return type(value)(_renamed(each, old, new) for each in value)
    if isinstance(value, Schedule):
        parts = {name: _renamed(getattr(value, name), old, new) for name in ("slots", "steps")}
        return replace(value, **parts)
    if hasattr(value, "__dataclass_fields__") and type(value).__module__.startswith("tapestry_jax.planning"):
        return replace(value, **{name: _renamed(getattr(value, name), old, new) for name in value.__dataclass_fields__})
    return value


def recut(step: Any, dim: str, cut: Cut) -> Any:
    """An operation, one of whose dimensions is cut otherwise."""
    return replace(step, cuts=tuple((name, cut if name == dim else known) for name, known in step.cuts))


def cut_of(step: Any, dim: str) -> Cut:
    """How an operation cuts a dimension."""
    return dict(step.cuts)[dim]


__all__ = ["Convert", "Layout", "Run", "cut_of", "damaged", "recut", "renamed", "with_layout"]
