"""The passes over a schedule: forwards, again, and backwards, as events one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tapestry_jax.planning.prediction.collectives import Place
from tapestry_jax.planning.pricing.cost import TransferCost
from tapestry_jax.planning.pricing.placed import Loop, Priced, Work
from tapestry_jax.planning.scheduling.schedule import Convert, Region, Repeat, Schedule, Step
from tapestry_jax.planning.timeline.event import AGAIN, BACKWARD, COMPUTE, FORWARD, Event
from tapestry_jax.planning.timeline.track import Track, in_stages, in_turns


class Passes:
    """The passes over a priced schedule. Each gives the events of one step, from its beginning on."""

    def __init__(self, schedule: Schedule, priced: Priced) -> None:
        self.schedule = schedule
        self.works: defaultdict[Place, list[Work]] = defaultdict(list)
        self.sent: defaultdict[Place, list[TransferCost]] = defaultdict(list)
        self.loops = dict(priced.loops)
        # The backward pass meets the last step of a unit first, and computes all of it again before.
        self.units = dict(_units(schedule, ()))
        for place, work in priced.works:
            self.works[place].append(work)
        for place, transfer in priced.transfers:
            self.sent[place].append(transfer)

    def forward(self, step: Step, place: Place) -> Track:
        """What a step does forwards; of a loop that finds its gradients itself, these too."""
        track, sent = Track(), self._sent(place, backward=False)
        if isinstance(step, Repeat | Region):
            loop = self.loops.get(place)
            if loop is None:
                return track
            turn = self._body_forward(step, place)
            self._compute(turn, place, FORWARD)
            if loop.inside:
                turn.append(self._body_backward(step, place))
                sent += self._sent(place, backward=True)
            return self._loop(step, loop, turn, sent, self._beside(step, place, backward=False), last_first=False)
        before = [each for each in sent if isinstance(step, Convert) or each.kind == "all-gather"]
        self._send(track, before)
        self._compute(track, place, FORWARD)
        self._send(track, [each for each in sent if each not in before])
        return track

    def again(self, step: Step, place: Place, *, layers: bool) -> Track:
        """What a step computes again; `layers`, for layers that keep some of it. Only rings may be sent round again."""
        track = Track()
        if isinstance(step, Repeat | Region):
            loop = self.loops.get(place)
            turn = self._body_again(step, place, layers=layers)
            sent = [each for each in self.sent[place] if each.again and layers]
            return track if loop is None else self._loop(step, loop, turn, sent, [], last_first=False)
        for work in self.works[place]:
            if work.again and not (layers and work.kept):
                track.add(_computed(work, AGAIN, work.cost.forward))
        return track

    def backward(self, step: Step, place: Place) -> Track:
        """What the gradient of a step takes; of a loop, what it computes again before each turn's."""
        track, sent = Track(), self._sent(place, backward=True)
        for inner, at in self.units.get(place, ()):
            track.append(self.again(inner, at, layers=True))
        if isinstance(step, Repeat | Region):
            loop = self.loops.get(place)
            if loop is None or loop.inside:
                return track
            turn = self._body_again(step, place, layers=loop.layers) if loop.again else Track()
            self._compute(turn, place, BACKWARD)
            turn.append(self._body_backward(step, place))
            beside = self._beside(step, place, backward=True)
            track.append(self._loop(step, loop, turn, sent, beside, last_first=True))
            return track
        after = [each for each in sent if isinstance(step, Convert) or each.kind == "reduce-scatter"]
        self._send(track, [each for each in sent if each not in after])
        self._compute(track, place, BACKWARD)
        self._send(track, after)
        return track

    def _body_forward(self, step: Repeat | Region, place: Place) -> Track:
        turn = Track()
        for inner, at in _inside(step, place):
            turn.append(self.forward(inner, at))
        return turn

    def _body_again(self, step: Repeat | Region, place: Place, *, layers: bool) -> Track:
        turn = Track()
        for inner, at in _inside(step, place):
            turn.append(self.again(inner, at, layers=layers))
        return turn

    def _body_backward(self, step: Repeat | Region, place: Place) -> Track:
        turn = Track()
        for inner, at in reversed([*_inside(step, place)]):
            turn.append(self.backward(inner, at))
        return turn

    def _beside(self, step: Step, place: Place, *, backward: bool) -> list[Event]:
        """What layers send while another is computed: the first, or the last, has none to pass behind."""
        if not isinstance(step, Repeat):
            return []
        sent = [
            each
            for inner, at in _inside(step, place)
            if not isinstance(inner, Repeat | Region)
            for each in self._sent(at, backward=backward)
            if each.hidden
        ]
        share = step.length / (step.length - 1) if sent else 1.0
        return [_transferred(each, share * each.hidden) for each in sent]

    def _loop(
        self,
        step: Step,
        loop: Loop,
        turn: Track,
        sent: list[TransferCost],
        beside: list[Event],
        *,
        last_first: bool,
    ) -> Track:
        """All turns: what is sent round goes beside them, what is handed on or brought first stands between them."""
        if isinstance(step, Repeat):
            track = Track()
            once = in_turns(turn, loop.turns, beside)
            for part in (once, self._all(sent)) if last_first else (self._all(sent), once):
                track.append(part)
            return track
        rotating = [each for each in sent if loop.ring is not None and not loop.stages]
        turn.append(self._all([each for each in sent if each not in rotating]))
        if loop.stages:
            count = self.schedule.mesh.size(loop.stages)
            return in_stages(turn, loop.turns, loop.stages, count, last_first=last_first)
        return in_turns(turn, loop.turns, [_transferred(each, each.seconds) for each in rotating])

    def _all(self, sent: list[TransferCost]) -> Track:
        track = Track()
        for each in sent:
            track.add(_transferred(each, each.seconds))
        return track

    def _sent(self, place: Place, *, backward: bool) -> list[TransferCost]:
        return [each for each in self.sent[place] if each.backward == backward and not each.again]

    def _send(self, track: Track, sent: list[TransferCost]) -> None:
        """What a step sends, and what waits for it; the rest passes beside the turns of its loop."""
        for each in sent:
            track.add(_transferred(each, each.seconds - each.hidden))

    def _compute(self, track: Track, place: Place, part: str) -> None:
        for work in self.works[place]:
            track.add(_computed(work, part, work.cost.forward if part == FORWARD else work.cost.backward))


def _units(schedule: Schedule, place: Place) -> Iterator[tuple[Place, list[tuple[Step, Place]]]]:
    """By the place of its last step the steps of every unit, those of loops in time too."""
    for unit in schedule.again:
        numbers = range(unit.first, unit.end)
        yield (*place, unit.end - 1), [(schedule.steps[number], (*place, number)) for number in numbers]
    for number, step in enumerate(schedule.steps):
        if isinstance(step, Region):
            yield from _units(step.body, (*place, number))


def _inside(step: Repeat | Region, place: Place) -> Iterator[tuple[Step, Place]]:
    return ((inner, (*place, number)) for number, inner in enumerate(step.body.steps))


def _computed(work: Work, part: str, seconds: float) -> Event:
    return Event(work.cost.path, COMPUTE, part, (), 0.0, seconds / max(work.cost.times, 1))


def _transferred(sent: TransferCost, seconds: float) -> Event:
    part = BACKWARD if sent.backward else FORWARD
    # Those that are alike follow each other at once.
    took, moved = seconds * sent.alike / sent.times, sent.bytes * sent.alike
    return Event(sent.path, sent.kind, part, sent.axes, 0.0, took, bytes=moved)
