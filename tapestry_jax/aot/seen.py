"""What a compiler says of a planned program, beside what the plan predicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from combinators.frozen import dataclass
from combinators.kernels.immutable import Immutable
from tapestry_jax.hlo.collectives import Found
from tapestry_jax.hlo.cycles import Costed
from tapestry_jax.memory.predicted import MemoryNeeded
from tapestry_jax.planning.prediction.collective import Collective

Sent = Mapping[tuple[str, tuple[str, ...]], int]
"""Bytes per device by kind and mesh axes, executions counted."""


_REDUCED = ("all-reduce", "reduce-scatter", "all-gather")


@dataclass(frozen=True)
class Memory:
    """Bytes of one device, as the compiler allots them.

    Attributes:
      arguments: what goes in.
      results: what comes out.
      temporaries: what is needed in between, at once.
      reused: what of the arguments the results take over.
      code: the program itself.
      peak: arguments, results and temporaries that are alive at once at most; on TPUs what is on the chip as well,
        copies of arguments among it. Their compilers count gaps between blocks among `temporaries`, more than once, so
        that those may be more than a device needs.
    """

    arguments: int
    results: int
    temporaries: int
    reused: int
    code: int
    peak: int

    @property
    def total(self) -> int:
        """All at once."""
        return self.arguments + self.results + self.temporaries - self.reused + self.code


@dataclass(frozen=True, eq=False)
class Seen(Immutable):
    """What a compiler says of a plan. Made by `plan.compile_only`.

    Attributes:
      name: of the program.
      machine: kind and number of devices.
      compiler: platform and version.
      memory: bytes of one device.
      needed: the same as `plan.memory` predicts them.
      predicted: the collectives of the plan, as the compiler of this platform runs them.
      collectives: those of the compiled program, with trip counts, and with how much compute each encloses.
      operations: instructions with estimated cycles, by operation; empty where the compiler estimates none.
      unestimated: executions of kernels that have no estimated cycles, such as those of Pallas.
      flops: of one device, as the compiler counts them: a loop's body once; None where it does not count.
      bytes_accessed: of one device, counted in the same way.
      hlo: the scheduled program, as text.
    """

    name: str
    machine: str
    compiler: str
    memory: Memory
    needed: MemoryNeeded = field(repr=False)
    predicted: tuple[Collective, ...]
    collectives: tuple[Found, ...]
    operations: tuple[Costed, ...] = field(repr=False)
    flops: float | None
    bytes_accessed: float | None
    hlo: str = field(repr=False)
    unestimated: int = 0

    @property
    def sent(self) -> Sent:
        """Bytes that a device sends and receives, as compiled."""
        return _sent(self.collectives)

    @property
    def predicted_sent(self) -> Sent:
        """Bytes that a device sends and receives, as the plan predicted."""
        return _sent(self.predicted)

    @property
    def unpredicted(self) -> Sent:
        """Bytes sent beyond what was predicted, by kind and mesh axes; empty where the prediction holds.

        What a compiler may run as another kind of the same bytes (`perhaps`) counts as either, and in all once.
        """
        either = _sent([replace(each, kind=each.perhaps) for each in self.predicted if each.perhaps])
        more = {key: size - self.predicted_sent.get(key, 0) for key, size in self.sent.items()}
        found = {key: size - either.get(key, 0) for key, size in more.items() if size > either.get(key, 0)}
        whole = _merged(self.sent)
        over = {key: size - _merged(self.predicted_sent).get(key, 0) for key, size in whole.items()}
        return found or ({key: size for key, size in over.items() if size > 0} if either else {})

    @property
    def cycles(self) -> int | None:
        """Estimated cycles of one device, trip counts included; None where the compiler estimates none."""
        return sum(each.cycles * each.times for each in self.operations) if self.operations else None

    @property
    def cycles_by_operation(self) -> Mapping[str, int]:
        """Estimated cycles by operation of the program, the most first; gradients count to their operation."""
        found: Counter[str] = Counter()
        for each in self.operations:
            found[each.path] += each.cycles * each.times
        return dict(found.most_common())

    @property
    def overlapped(self) -> Mapping[tuple[str, tuple[str, ...]], float]:
        """The share of the bytes sent whose transfer encloses compute in the schedule, by kind and mesh axes."""
        hidden = _sent([each for each in self.collectives if each.enclosed])
        return {key: hidden.get(key, 0) / size for key, size in self.sent.items()}

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _sent(found: Sequence[Collective | Found]) -> Sent:
    total: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for each in found:
        total[each.kind, tuple(sorted(each.axes))] += each.bytes * each.times
    return {key: size for key, size in total.items() if size}


def _merged(sent: Sent) -> Sent:
    total: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for (kind, axes), size in sent.items():
        total["all-reduce" if kind in _REDUCED else kind, axes] += size
    return total


def _lines(seen: Seen) -> Iterator[str]:
    yield f"{seen.name} on {seen.machine}, compiled by {seen.compiler}"
    yield from _memory_lines(seen.memory, seen.needed)
    if seen.flops is not None and seen.bytes_accessed is not None:
        yield f"loops counted once: {seen.flops:,.0f} FLOP, {seen.bytes_accessed:,.0f} B accessed"
    yield from _collective_lines(seen)
    if any(each.perhaps for each in seen.predicted):
        size = sum(each.bytes * each.times for each in seen.predicted if each.perhaps)
        yield f"  as predicted: {size:,} B of them as they are, or as all-reduces of the same bytes"
    for (kind, axes), size in seen.unpredicted.items():
        yield f"  NOT PREDICTED: {size:,} B of {kind} over {'+'.join(axes)}"
    if seen.cycles is not None:
        without = f", without {seen.unestimated:,} kernels that have no estimate" if seen.unestimated else ""
        yield f"estimated cycles: {seen.cycles:,}{without}"
        for path, cycles in list(seen.cycles_by_operation.items())[:12]:
            yield f"  {cycles:>14,}  {path or '(made by the compiler)'}"


def _memory_lines(memory: Memory, needed: MemoryNeeded) -> Iterator[str]:
    yield f"{'memory of a device':<32}{'predicted':>18}{'compiled':>18}"
    for name in ("arguments", "results", "temporaries"):
        yield f"  {name:<30}{getattr(needed, name):>16,} B{getattr(memory, name):>16,} B"
    yield f"  {'program':<30}{'':>18}{memory.code:>16,} B"
    if memory.reused:
        yield f"  {'results in place of arguments':<30}{'':>18}{-memory.reused:>16,} B"
    yield f"  {'together':<30}{needed.total:>16,} B{memory.total:>16,} B"
    yield f"  {'alive at once':<30}{needed.total + needed.on_chip:>16,} B{memory.peak:>16,} B"


def _collective_lines(seen: Seen) -> Iterator[str]:
    sent, predicted, overlapped = seen.sent, seen.predicted_sent, seen.overlapped
    if not (sent or predicted):
        yield "collectives: none, as predicted"
        return
    yield f"{'collectives':<32}{'predicted':>18}{'compiled':>18}  behind compute"
    for key in sorted({*sent, *predicted}):
        name = f"  {key[0]} over {'+'.join(key[1])}"
        yield f"{name:<32}{predicted.get(key, 0):>16,} B{sent.get(key, 0):>16,} B{overlapped.get(key, 0):>12.0%}"
