"""The collective contract of a drawn plan: predicted and compiled bytes, side by side."""

from __future__ import annotations

from typing import Any

import tapestry_jax as tp
from tapestry_jax.lowering.hlo import compiled_collectives
from tapestry_jax.lowering.pinned import lower_pinned
from tests.contract import table


def differences(plan: tp.Plan, grad: bool) -> dict[str, tuple[int, int]]:
    """Kinds and mesh axes whose bytes differ, with those predicted and those compiled; XLA compiles the plan."""
    predicted = table(plan.collectives(grad))
    text = lower_pinned(plan.schedule, plan.mesh, grad).compile().as_text()
    sent = table(compiled_collectives(text, plan.mesh))
    return {
        f"{kind} over {'+'.join(sorted(axes))}": (predicted.get((kind, axes), 0), sent.get((kind, axes), 0))
        for kind, axes in {**predicted, **sent}
        if predicted.get((kind, axes), 0) != sent.get((kind, axes), 0)
    }


def bounds(plan: tp.Plan, grad: bool) -> set[str]:
    """Kinds and mesh axes of which an entry says that it is a bound."""
    listed: list[Any] = [each for each in plan.collectives(grad) if getattr(each, "bound", False)]
    return {f"{each.kind} over {'+'.join(sorted(each.axes))}" for each in listed}
