"""Counts to seconds: a kernel takes as long as the slowest of its products, its other arithmetic and its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from combinators.frozen import dataclass
from combinators.operations.operation import Operation
from combinators.operations.shaped import block_structs, shape
from combinators.settings import remembered
from tapestry_jax.machines.machine import Machine
from tapestry_jax.planning.folding.sent import nbytes
from tapestry_jax.planning.pricing.counting.counts import TRANSCENDENTAL_WEIGHT, Counts
from tapestry_jax.planning.pricing.marginal import Part, block_counts

Struct = jax.ShapeDtypeStruct
ON_CHIP = 2.0
"""How much faster than memory a chip moves what stays on it, between kernels; an estimate."""


@dataclass(frozen=True)
class Seconds:
    """The time of one run of a kernel.

    Attributes:
      total: seconds.
      limit: what takes longest: `products`, `arithmetic`, `memory` or `start`.
    """

    total: float
    limit: str


def roofline(machine: Machine, counts: Counts, moved: float, near: float = 0.0) -> Seconds:
    """Seconds of a kernel that moves so many bytes between a device and its memory.

    Args:
      machine: where.
      counts: of the kernel.
      moved: bytes.
      near: bytes of operands and results that stay on the chip.
    """
    flops = sum(flops for _, flops in counts.products)
    idle = 1.0 + counts.idle / flops if flops else 1.0
    operations = counts.other + TRANSCENDENTAL_WEIGHT * counts.transcendental + counts.repeated + counts.slow
    always = _always(machine, counts) / machine.streams
    times = {
        "products": idle * sum(flops / machine.flops(dtype) for dtype, flops in counts.products),
        "arithmetic": operations / machine.vector.value,
        "memory": passed(machine, counts, moved, near) / machine.streams - always,
    }
    limit = max(times, key=lambda name: times[name])
    starts = machine.start.value * counts.kernels
    total = max(times[limit], 0.0 if always else starts) + always
    return Seconds(total, limit if times[limit] >= starts else "start")


def inner_bytes(machine: Machine, counts: Counts) -> float:
    """Bytes that a kernel moves beside its operands and results; what is small enough stays on the chip."""
    return counts.outer + counts.inner - _on_chip(machine, counts)


def passed(machine: Machine, counts: Counts, moved: float, near: float = 0.0) -> float:
    """Bytes that memory would move in the time in which a kernel moves these, and what stays on the chip.

    With what it takes in any case, as bytes that memory would move meanwhile.
    """
    return moved + (near + _on_chip(machine, counts)) / ON_CHIP + _always(machine, counts)


def stays(machine: Machine, size: float) -> bool:
    """Whether what one kernel writes and another reads stays on the chip: TPUs' compilers see to that."""
    # Half of the chip's memory: the other half streams in what comes next.
    return machine.platform == "tpu" and size <= machine.cache.value / 2


def runs_as_one(platform: str, head: str, heads: Sequence[str], reads: Sequence[float]) -> bool:
    """Whether XLA runs as one kernel what makes a value and what alone reads it.

    Args:
      platform: whose compiler it is.
      head: what makes the value.
      heads: what makes the results of its reader.
      reads: how often the reader reads each of its operands.
    """
    if head in ("fused", "given"):
        # Compilers for GPUs hand products to libraries, which read arrays.
        return platform == "tpu" or "product" not in heads
    return head == "product" and set(heads) <= {"fused"} and all(times <= 1 for times in reads)


def _always(machine: Machine, counts: Counts) -> float:
    """What a kernel takes whatever limits it, as bytes: what TPUs do beside, and until its first bytes arrive."""
    if machine.platform != "tpu":
        return 0.0
    return counts.beside + counts.kernels * machine.start.value * machine.streams


def _on_chip(machine: Machine, counts: Counts) -> float:
    """Bytes that are written and read again on the chip."""
    # Half of the chip's memory: the other half streams in what comes next.
    return 0.0 if counts.largest > machine.cache.value / 2 else counts.inner


@remembered(maxsize=8192)
def block_bytes(
    operation: Operation, operands: tuple[Struct, ...], sizes: tuple[tuple[str, int], ...]
) -> tuple[int, ...]:
    """The bytes that a block reads of each operand, coordinates included."""
    shaped = shape(operation, operands)
    return tuple(map(nbytes, block_structs(shaped.signature, operands, dict(sizes))))


def price_operation(
    machine: Machine,
    operation: Operation,
    operands: tuple[Struct, ...],
    part: Part,
    sizes: tuple[tuple[str, int], ...],
    written: float,
) -> tuple[Seconds, Counts, float]:
    """One operation at one layout, alone: what a search asks for.

    Args:
      machine: where.
      operation: expanded, as `Shaped` has it.
      operands: types of its whole operands.
      part: its forward or backward pass.
      sizes: of a device's block, by dimension and sorted.
      written: bytes of the results that go to memory.

    Returns:
      Seconds, counts, and the bytes moved.
    """
    counts = block_counts(operation, operands, part, sizes)
    moved = inner_bytes(machine, counts)
    if not part.by:
        read: Any = zip(counts.reads, block_bytes(operation, operands, sizes), strict=True)
        moved += sum(times * size for times, size in read) + written
    return roofline(machine, counts, moved), counts, moved
