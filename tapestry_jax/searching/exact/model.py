"""The factored model of a search: things to choose, each with its price, and values between them with theirs.

What a plan costs is a sum over its operations, each by its own placement, and over its values, each by the layout in
which it lies and those in which it is read. So the price of any choice is found without planning it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from combinators.frozen import dataclass

Pair = tuple[int, int]
"""The label of a layout in which a value lies, and of one in which it is read."""


@dataclass(frozen=True)
class Pick:
    """One thing to choose: the placement of an operation, the layout of an argument or of what a loop carries.

    Attributes:
      path: of it.
      seconds: of each option, where all is fused that can be.
      excess: of each option, the seconds more that it takes where nothing is fused.
      held: of each option, the bytes that stay on a device until the backward pass.
      rooms: passes of loops, and of each option the seconds in them behind which something may be sent, then the share
        of `excess` that is in them too.
      after: of each option, the bytes on a device in the end; nothing where it says nothing of that. What is held may
        lie where gradients are written in the end.
    """

    path: str
    seconds: tuple[float, ...]
    excess: tuple[float, ...]
    held: tuple[float, ...]
    rooms: tuple[tuple[int, tuple[float, ...], float], ...] = ()
    after: tuple[float, ...] = ()


@dataclass(frozen=True)
class Reader:
    """Who reads a value, under which label each option of its pick reads it, and whether its gradient needs it."""

    pick: int
    labels: tuple[int, ...]
    keeps: bool = False


@dataclass(frozen=True)
class Value:
    """A value, the pick that says where it lies, and the picks that read it.

    Attributes:
      maker: a pick.
      labels: for each of its options how the value lies.
      readers: in the order of the program.
      seconds: of every change of layout, paid once for all readers with the same label; a pair that is not there
        cannot be chosen.
      common: seconds of what several changes have in common, such as a gather that both begin with: paid once.
      shares: of every pair, which of these it takes.
      saved: of every pair the seconds that its maker and its reader save, where both run as one kernel.
      kept: of every pair what is kept for the backward pass, where its reader keeps it: which of `sizes`.
      sizes: bytes, each kept once.
      together: of every pair, what it has in common with pairs of other values: which of the model's, paid once.
      behind: of every pair, for passes of loops, the seconds that are to be sent behind what the loop computes; less
        than none where the change itself computes.
    """

    maker: int
    labels: tuple[int, ...]
    readers: tuple[Reader, ...]
    seconds: Mapping[Pair, float]
    common: tuple[float, ...]
    shares: Mapping[Pair, tuple[int, ...]]
    saved: Mapping[Pair, tuple[float, float]]
    kept: Mapping[Pair, int]
    sizes: tuple[float, ...]
    behind: Mapping[Pair, tuple[tuple[int, float], ...]] = field(default_factory=dict[Pair, Any])
    together: Mapping[Pair, tuple[Any, ...]] = field(default_factory=dict[Pair, Any])


@dataclass(frozen=True, eq=False)
class Model:
    """All of them.

    Attributes:
      picks: what is chosen.
      values: what lies between.
      constant: seconds that every choice takes.
      together: seconds of what pairs of several values have in common, such as the latency of sums that are sent as
        one: each paid once.
    """

    picks: tuple[Pick, ...]
    values: tuple[Value, ...]
    constant: float = 0.0
    together: Mapping[Any, float] = field(default_factory=dict[Any, float])

    def price(self, choice: Sequence[int]) -> float:
        """Seconds of a choice, one option for each pick; infinite where two options do not go together."""
        total = self.constant + sum(pick.seconds[at] for pick, at in zip(self.picks, choice, strict=True))
        saved = [0.0] * len(self.picks)
        late: defaultdict[int, float] = defaultdict(float)
        begun: set[Any] = set()
        for value in self.values:
            made = value.labels[choice[value.maker]]
            pairs = {(made, reader.labels[choice[reader.pick]]) for reader in value.readers}
            total += sum(value.seconds.get(pair, math.inf) for pair in pairs)
            total += sum(value.common[each] for each in {each for pair in pairs for each in value.shares.get(pair, ())})
            begun.update(each for pair in pairs for each in value.together.get(pair, ()))
            for number, seconds in (each for pair in pairs for each in value.behind.get(pair, ())):
                late[number] += seconds
            for reader in value.readers:
                own = value.saved.get((made, reader.labels[choice[reader.pick]]), (0.0, 0.0))
                saved[value.maker] += own[0]
                saved[reader.pick] += own[1]
        for pick, at, less in zip(self.picks, choice, saved, strict=True):
            more = max(pick.excess[at] - less, 0.0)
            total += more
            for number, rooms, share in pick.rooms:
                late[number] -= rooms[at] + share * more
        total += sum(self.together[each] for each in begun)
        return total + sum(max(seconds, 0.0) for seconds in late.values())

    def held(self, choice: Sequence[int]) -> float:
        """Bytes that stay on a device until the backward pass, or that are there in the end, what is more."""
        total = sum(pick.held[at] for pick, at in zip(self.picks, choice, strict=True))
        after = sum(pick.after[at] for pick, at in zip(self.picks, choice, strict=True) if pick.after)
        for value in self.values:
            made = value.labels[choice[value.maker]]
            pairs = [(made, each.labels[choice[each.pick]]) for each in value.readers if each.keeps]
            total += sum(value.sizes[each] for each in {value.kept[pair] for pair in pairs if pair in value.kept})
        return max(total, after)


def undominated(model: Model) -> Model:
    """The same model without changes of layout that nobody has to choose.

    Of a value that only one reads, and whose pick says nothing else, such as a parameter: of the layouts in which it
    may lie, for each in which it is read, those that are cheaper or smaller than all others.
    """
    used = Counter(value.maker for value in model.values) + Counter(
        r.pick for value in model.values for r in value.readers
    )
    return replace(model, values=tuple(_undominated(model, v) if used[v.maker] == 1 else v for v in model.values))


def _undominated(model: Model, value: Value) -> Value:
    pick = model.picks[value.maker]
    if len(value.readers) > 1 or any(pick.excess) or value.saved:
        return value
    # What lies alike costs the least that any option of it does; options that differ are told apart by their labels.
    found: dict[int, list[tuple[float, float, int]]] = {}
    apart = bool(value.behind or value.together)
    for made, read in value.seconds:
        options = [at for at, label in enumerate(value.labels) if label == made]
        size = value.sizes[value.kept[made, read]] if (made, read) in value.kept else 0.0
        seconds = value.seconds[made, read] + min(pick.seconds[at] for at in options)
        found.setdefault(read, []).append((seconds, min(pick.held[at] for at in options) + size, made))
    kept: set[Pair] = set()
    for read, each in found.items():
        least = math.inf
        for _, held, made in sorted(each):
            if held < least or apart:
                least = held
                kept.add((made, read))
        if apart:
            kept -= {(made, read) for *_, made in each if _is_dominated(model, value, each, made, read)}
    return replace(value, seconds={pair: seconds for pair, seconds in value.seconds.items() if pair in kept})


def _is_dominated(
    model: Model, value: Value, options: Sequence[tuple[float, float, int]], made: int, read: int
) -> bool:
    """Whether another takes no more, even if nothing more passes behind computing, and holds no more."""
    own = next(each for each in options if each[2] == made)
    sent = Counter(dict(value.behind.get((made, read), ())))
    for seconds, held, other in options:
        # What is sent behind computing, and finds no room there, takes its own time and no more.
        if seconds > own[0] or held > own[1]:
            continue
        more = Counter(dict(value.behind.get((other, read), ())))
        late = sum(max(more[number] - sent[number], 0.0) for number in {*more, *sent})
        # Nor where nobody else pays what it has in common with others.
        begun = {*value.together.get((other, read), ())}.difference(value.together.get((made, read), ()))
        late += sum(model.together[each] for each in begun)
        if (seconds + late, held) != own[:2] and seconds + late <= own[0]:
            return True
        if (seconds + late, held) == own[:2] and other < made:
            return True
    return False
