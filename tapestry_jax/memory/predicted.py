"""The memory of one device that a plan needs, as predicted before anything is compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.lowering.pinned import trace_pinned
from tapestry_jax.machines.of_mesh import kind_of
from tapestry_jax.machines.tpu import V5E
from tapestry_jax.memory.compilers.cpu import as_on_cpus
from tapestry_jax.memory.compilers.gpu import as_on_gpus
from tapestry_jax.memory.compilers.tiles import tiled_bytes
from tapestry_jax.memory.compilers.tpu import as_on_tpus
from tapestry_jax.memory.compilers.widened import widened
from tapestry_jax.memory.liveness import Live, peak
from tapestry_jax.memory.program import Program
from tapestry_jax.memory.read import read_program
from tapestry_jax.planning.derivatives.gradients import differentiated, is_inexact
from tapestry_jax.planning.rewrites.platforms import Platforms, platforms_of
from tapestry_jax.planning.scheduling.schedule import Region, Repeat, Schedule, Slot

_ON: dict[Platforms, Callable[[Program], Program]] = {
    ("tpu",): as_on_tpus,
    ("cpu",): lambda program: as_on_cpus(widened(program)),
    ("cuda",): as_on_gpus,
}
"""What the compilers of some platforms make of a program."""
_ON_CHIP = frozenset({"TPU v5 lite", "TPU v5e", "TPU v6 lite", "TPU v6e"})
"""Chips, as they call themselves, whose compiler allots no memory for temporaries that fit into that on the chip."""
_LISTED = 16
"""So many lines of the largest values are printed."""


@dataclass(frozen=True)
class MemoryNeeded:
    """Bytes of one device. Made by `plan.memory`; `print` shows a table.

    Attributes:
      arguments: what goes in, cotangents of the results too where gradients are taken; also what nobody reads, which
        stays where it is although compilers leave it out.
      results: what comes out, gradients too.
      temporaries: the most that is alive at once in between, in the memory that all of this shares.
      live: what is alive then, in the order in which it is made.
      on_chip: the same, where all of it fits into the memory on the chip of a TPU v5e or v6e at once; there is none
        elsewhere then. The compiler of a v5p allots memory all the same.
    """

    arguments: int
    results: int
    temporaries: int
    live: tuple[Live, ...]
    on_chip: int = 0

    @property
    def total(self) -> int:
        """All at once; arguments that are not given away stay."""
        return self.arguments + self.results + self.temporaries

    def __str__(self) -> str:
        head = [
            f"memory of one device: {self.total:,} B",
            f"  arguments {self.arguments:,} B, results {self.results:,} B, temporaries {self.temporaries:,} B",
            *([f"  temporaries on the chip, in its own memory: {self.on_chip:,} B"] if self.on_chip else []),
            "the largest temporaries that are alive at once:",
        ]
        return "\n".join([*head, *(f"  {line}" for line in self._lines())])

    def _lines(self) -> Iterator[str]:
        alike = Counter(self.live)
        rows = sorted(alike.items(), key=lambda pair: -pair[0].bytes * pair[1])
        for found, times in rows[:_LISTED]:
            often = f" x{times}" if times > 1 else ""
            told = f"{found.path or 'an argument'}{' (gradient)' if found.backward else ''}"
            yield f"{found.bytes * times:>18,} B  {found.type}{often}  {told}"
        rest = rows[_LISTED:]
        if rest:
            yield f"{sum(found.bytes * times for found, times in rest):>18,} B  in {len(rest)} more"


def memory_needed(
    schedule: Schedule, mesh: Any, grad: bool | int | Sequence[int] = False, platforms: Platforms = ()
) -> MemoryNeeded:
    """Predict the memory of one device.

    The program that `compile` emits is traced for the local pieces of its arrays, derivatives included: so what
    loops keep for the backward pass, what is computed again, gathered or received is what the program says. Of its
    values those count that compilers put into memory; what they fuse does not. A value counts from its operation to its
    last reader.

    Args:
      schedule: of a plan.
      mesh: with devices or abstract.
      grad: as in `Plan.collectives`.
      platforms: what the plan was made for; empty for the platform of the mesh.
    """
    traced = trace_pinned(schedule, mesh, grad)
    return memory_of(traced.jaxpr, schedule, platforms or platforms_of(mesh), grad, kind_of(mesh))


def memory_of(
    jaxpr: Any,
    schedule: Schedule,
    platforms: Platforms = (),
    grad: bool | int | Sequence[int] = False,
    kind: str = "",
) -> MemoryNeeded:
    """The memory of a schedule's program that was traced already with `grad`, on devices of some platform and kind."""
    program = read_program(jaxpr, frozenset(_paths(schedule)), platforms)
    program = _ON.get(platforms, lambda same: same)(program)
    found = peak(program)
    arguments, results = stored(schedule, grad, platforms)
    stays = platforms == ("tpu",) and kind in _ON_CHIP and found.bytes <= V5E.cache.value
    on_chip = found.bytes if stays else 0
    return MemoryNeeded(arguments, results, found.bytes - on_chip, found.live, on_chip)


def stored(schedule: Schedule, grad: bool | int | Sequence[int] = False, platforms: Platforms = ()) -> tuple[int, int]:
    """The bytes of arguments and of results on one device, as `memory_needed` counts them; nothing is traced."""
    given, made = [[schedule.slots[number] for number in numbers] for numbers in (schedule.inputs, schedule.outputs)]
    pulled = [] if grad is False else [slot for slot in made if is_inexact(slot.type.dtype)]
    gradients = [] if grad is False else [given[place] for place in differentiated(schedule.graph, grad)]

    def held(slots: Iterable[Slot]) -> int:
        if platforms == ("tpu",):
            return sum(tiled_bytes(slot.local_shape, slot.type.dtype) for slot in slots)
        return sum(slot.local_bytes for slot in slots)

    # Counted as the plan stores them: of what nobody reads, and of zeros, the program does not say how they lie.
    return held((*given, *pulled)), held((*made, *gradients))


def _paths(schedule: Schedule) -> Iterator[str]:
    for step in schedule.steps:
        yield step.path
        if isinstance(step, Region | Repeat):
            yield from _paths(step.body)
