"""The laws of a timeline, beside the cost of the same plan."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import tapestry_jax as tp
from tapestry_jax.planning.prediction.alive import alive_at_once
from tapestry_jax.planning.scheduling.schedule import Region
from tapestry_jax.planning.timeline.event import COMPUTE
from tapestry_jax.planning.timeline.timeline import Timeline

_UNFOLDED = 4000


def broken_laws(plan: tp.Plan, machine: Any, grad: Any = False) -> list[str]:
    """What does not hold; empty where all does."""
    cost, timeline = plan.cost(machine, grad), plan.timeline(machine, grad)
    together = cost.compute + cost.communication
    checks = {
        "computing": _near(timeline.compute + timeline.bubble, cost.compute),
        "transfers": _near(timeline.communication, cost.communication),
        "bubble": _near(timeline.bubble, cost.bubble, cost.compute),
        "by operation": _same(_computed(timeline), {each.path: each.seconds for each in cost.operations}),
        "by transfer": _same(_sent(timeline), _sums((_key(e), e.seconds) for e in cost.transfers)),
        "not longer than all": timeline.makespan <= together * (1 + 1e-9),
        "not shorter than a lane": all(lane.busy <= timeline.makespan * (1 + 1e-9) for lane in timeline.lanes),
        "not over before a lane": all(lane.last <= timeline.makespan * (1 + 1e-9) for lane in timeline.lanes),
        "as priced": (bool(cost.hidden) and _turns(plan.schedule)) or _near(timeline.makespan, cost.seconds),
        "what is alive": not timeline.memory or timeline.peak == alive_at_once(plan.schedule, grad),
        "moments in order": [m for m, _ in timeline.memory] == sorted(m for m, _ in timeline.memory),
        "one at a time": not _overlapping(timeline),
    }
    return [name for name, holds in checks.items() if not holds]


def _turns(schedule: Any) -> bool:
    """Whether something goes round a ring: there the price is coarser than the timeline."""
    return any(
        isinstance(step, Region) or _turns(getattr(step, "body", None)) for step in getattr(schedule, "steps", ())
    )


def _near(one: float, other: float, scale: float = 0.0) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9 * scale)


def _same(found: dict[Any, float], expected: dict[Any, float]) -> bool:
    keys = {key for each in (found, expected) for key, value in each.items() if value}
    return all(_near(found.get(key, 0.0), expected.get(key, 0.0)) for key in keys)


def _sums(pairs: Any) -> dict[Any, float]:
    total: Counter[Any] = Counter()
    for key, value in pairs:
        total[key] += value
    return dict(total)


def _key(each: Any) -> Any:
    return each.path, each.kind, each.axes, each.bytes, each.backward


def _computed(timeline: Timeline) -> dict[Any, float]:
    return _sums((e.path, e.busy + e.waited) for e in timeline.events if e.what == COMPUTE)


def _sent(timeline: Timeline) -> dict[Any, float]:
    sent = (e for e in timeline.events if e.what != COMPUTE)
    return _sums(((e.path, e.what, e.axes, e.bytes, e.part == "backward"), e.busy) for e in sent)


def _overlapping(timeline: Timeline) -> bool:
    """Whether two events of a lane are at one time, turn by turn; only where there are few turns."""
    if sum(event.times for event in timeline.events) > _UNFOLDED:
        return False
    for lane in timeline.lanes:
        spans = sorted(
            (start - event.start + a, start - event.start + b)
            for start, event in timeline.on(lane)
            for a, b in event.unfolded()
        )
        slack = 1e-9 * timeline.makespan
        if any(later[0] < before[1] - slack for before, later in pairwise(spans)):
            return True
    return False
