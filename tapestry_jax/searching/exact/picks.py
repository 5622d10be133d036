"""The picks of a model as they are collected: what each option takes, for all operations of a class together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tapestry_jax.searching.exact.homes import Chosen
from tapestry_jax.searching.exact.model import Pick


class Picks:
    """Collects picks; they are known by their numbers.

    Attributes:
      chosen: what each stands for.
    """

    def __init__(self) -> None:
        self.chosen: list[Chosen] = []
        self._seconds: list[list[float]] = []
        self._excess: list[list[float]] = []
        self._held: list[list[float]] = []
        self._after: list[list[float]] = []
        self._count: list[int] = []
        self._rooms: list[list[tuple[int, list[float], float]]] = []
        self._more: list[list[tuple[float, float]]] = []

    def pick(
        self,
        chosen: Chosen,
        seconds: Sequence[float],
        held: Sequence[float],
        excess: Sequence[float] = (),
        after: Sequence[float] = (),
    ) -> int:
        """A new one, and what each of its options takes; `excess` besides, unless it runs as one kernel with others."""
        self.chosen.append(chosen)
        self._seconds.append(list(seconds))
        self._excess.append(list(excess) or [0.0] * len(seconds))
        self._held.append(list(held))
        self._after.append(list(after))
        self._count.append(1)
        self._rooms.append([])
        self._more.append([(0.0, 0.0)] * len(seconds))
        return len(self.chosen) - 1

    def once_more(self, pick: int, path: str) -> None:
        """Another operation of a class."""
        chosen = self.chosen[pick]
        self.chosen[pick] = replace(chosen, paths=(*chosen.paths, path))
        self._count[pick] += 1

    def add(self, pick: int, option: int, seconds: float, held: float = 0.0) -> None:
        """What one of a class takes besides."""
        own, kept = self._more[pick][option]
        self._more[pick][option] = own + seconds, kept + held

    def room(self, pick: int, number: int, seconds: Sequence[float], share: float) -> None:
        """What it computes in a pass of a loop, behind which others may send, by option; and its share of `excess`."""
        self._rooms[pick].append((number, list(seconds), share))

    def least_held(self) -> float:
        """Bytes that stay on a device at least, whatever is chosen, without what lies between picks."""
        held = sum(min(self._held_by(number)) for number in range(len(self.chosen)))
        after = (min(self._after_of(number), default=0.0) for number in range(len(self.chosen)))
        return max(held, sum(after))

    def least_given(self) -> float:
        """Of those the bytes of arguments, and of gradients of what loops read, which are there all the time."""
        return sum(min(self._held_by(number)) for number, each in enumerate(self.chosen) if each.kind == "input")

    def made(self) -> tuple[Pick, ...]:
        """All of them."""
        return tuple(map(self._made, range(len(self.chosen))))

    def _made(self, number: int) -> Pick:
        times = self._count[number]
        more = self._more[number]
        return Pick(
            self.chosen[number].paths[0],
            tuple(times * each + own for each, (own, _) in zip(self._seconds[number], more, strict=True)),
            tuple(times * each for each in self._excess[number]),
            self._held_by(number),
            tuple((at, tuple(times * each for each in rooms), share) for at, rooms, share in self._rooms[number]),
            self._after_of(number),
        )

    def _after_of(self, number: int) -> tuple[float, ...]:
        return tuple(self._count[number] * each for each in self._after[number])

    def _held_by(self, number: int) -> tuple[float, ...]:
        times, more = self._count[number], self._more[number]
        return tuple(times * each + own for each, (_, own) in zip(self._held[number], more, strict=True))
