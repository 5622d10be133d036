"""Which transfers pass while the device computes: those of rings, and what layers gather of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tapestry_jax.machines.machine import Machine
from tapestry_jax.planning.prediction.collectives import Place
from tapestry_jax.planning.pricing.cost import TransferCost
from tapestry_jax.planning.pricing.sums import Room, Sums
from tapestry_jax.planning.scheduling.schedule import Repeat, Run, Schedule

Placed = tuple[Place, TransferCost]
_FORWARD, _BACKWARD, _AGAIN = "forward", "backward", "again"
"""The passes, behind whose computing something passes."""


def overlapped(schedule: Schedule, transfers: Sequence[Placed], sums: Sums) -> Iterator[TransferCost]:
    """The transfers, each with the seconds of it that pass while something is computed.

    What goes round a ring passes while a turn is computed, of the forward pass or the backward pass. What a layer of a
    loop gathers of its own parameters, which nothing before it makes, passes while another layer is computed, and so
    does the sum of their gradients: as far as the machine's compiler is known to begin the one early and to end the
    other late, and not longer than the layers compute.
    """
    rings = _Rooms(sums.rings)
    layers = _Rooms(sums.layers)
    for place, each in transfers:
        if place in sums.rings:
            yield replace(each, hidden=rings.take(place, _pass(each), each.seconds))
            continue
        loop = _loop_of(schedule, place)
        share = share_behind(sums.machine, each.kind, backward=each.backward) if loop is not None else 0.0
        yield replace(each, hidden=layers.take(loop, _pass(each), share * each.seconds)) if share else each


def share_behind(machine: Machine, kind: str, *, backward: bool) -> float:
    """Of what a layer of a loop gathers of its parameters, or sums of their gradients, the share behind another."""
    if kind != "all-gather" and not (kind == "reduce-scatter" and backward):
        return 0.0
    return next((figure.value for name, figure in machine.hides if name == kind), 0.0)


def share_of_layers(turns: int) -> float:
    """Of what so many layers compute, the share behind which one gathers for the next, or sums for the one before."""
    # The first gather of all, and the last sum, have no other layer to pass behind.
    return (turns - 1) / max(turns, 1)


def _pass(sent: TransferCost) -> str:
    return _AGAIN if sent.again else _BACKWARD if sent.backward else _FORWARD


class _Rooms:
    """Seconds behind which something may pass, while they are taken."""

    def __init__(self, rooms: Mapping[Place, Room]) -> None:
        self._left: dict[tuple[Place, str], float] = {}
        for key, room in rooms.items():
            self._left |= {(key, _FORWARD): room.forward, (key, _BACKWARD): room.backward, (key, _AGAIN): room.again}

    def take(self, key: Place | None, passing: str, seconds: float) -> float:
        """As much of these seconds as there is room for."""
        if key is None:
            return 0.0
        taken = min(seconds, self._left.get((key, passing), 0.0))
        self._left[key, passing] = self._left.get((key, passing), 0.0) - taken
        return taken


def _loop_of(schedule: Schedule, place: Place) -> Place | None:
    """The place of the loop over layers, one of which gathers its parameters here or sums their gradients."""
    inside, found = schedule, None
    for depth, number in enumerate(place):
        step = inside.steps[number]
        if isinstance(step, Run) and found is not None:
            loop, at = found
            return at if not set(step.operands).isdisjoint(loop.body.inputs[loop.carries :]) else None
        body = getattr(step, "body", None)
        if body is None:
            return None
        inside, found = body, (step, place[: depth + 1]) if isinstance(step, Repeat) else None
    return None
