"""A machine: what one device computes, holds and reads, and what connects it to others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from typing import Any, cast

from combinators.arguments import is_real
from combinators.errors import FormatError, MeshError, message, spelt
from combinators.frozen import dataclass
from combinators.stored.json import REMEDY, readable_errors
from tapestry_jax.machines.figures import Figure, Link, Table
from tapestry_jax.machines.json import machine_from_json, machine_to_json

# Seconds and rates that are less, or more, are those of no machine, and what they cost need be no number.
_LEAST, _MOST = 1e-100, 1e100


@dataclass(frozen=True)
class Machine:
    """A machine; data only.

    Attributes:
      name: such as `H100`.
      platform: as lowering names it: `tpu`, `cuda`, `cpu`.
      matmul: FLOP/s of matrix products by dtype of their operands, as programs compute them by default.
      vector: FLOP/s of what is no matrix product.
      memory: bytes of a device.
      bandwidth: bytes per second between a device and its memory.
      cache: bytes of memory on the chip, where values between two kernels stay if they are small.
      inside: what connects the devices of a group.
      group: how many devices a group has: a host of GPUs, a pod of TPUs.
      between: what connects groups; its bandwidth is for each device.
      start: seconds that the smallest kernel takes.
      torus: axes of the torus; 0 for switches.
      closes: an axis of the torus closes to a ring where its length is a multiple of this.
      shape: devices along each axis of the torus, or groups and devices of a group; empty where it follows from the
        mesh.
      tables: measured collectives; they go before the links.
      hides: of what layers of a loop gather of their parameters, and scatter of their gradients, the share that
        compilers send while a layer is computed, by kind of collective, with `plan.compiler_options`.
      reached: the share of `bandwidth` that kernels reach; all of it, where nothing is known.
    """

    name: str
    platform: str
    matmul: tuple[tuple[str, Figure], ...]
    vector: Figure
    memory: Figure
    bandwidth: Figure
    cache: Figure
    inside: Link
    group: int
    between: Link
    start: Figure
    torus: int = 0
    closes: int = 1
    shape: tuple[int, ...] = ()
    tables: tuple[Table, ...] = ()
    hides: tuple[tuple[str, Figure], ...] = ()
    reached: Figure | None = None

    def __post_init__(self) -> None:
        for place, figure in self.figures():
            value: Any = figure.value if isinstance(cast("Any", figure), Figure) else figure
            if not isinstance(cast("Any", figure), Figure) or not (is_real(value) and _LEAST <= value <= _MOST):
                raise MeshError(
                    message(
                        f"a figure of the machine `{self.name}` is no positive number",
                        f"{place}: got {spelt(value)}",
                        remedy="Give finite figures above 0, in FLOP/s, bytes, bytes per second and seconds.",
                    )
                )
        for name, count in (("group", self.group), ("closes", self.closes), *(("shape", size) for size in self.shape)):
            if count < 1:
                raise MeshError(
                    message(
                        f"`{name}` of the machine `{self.name}` is {count}",
                        remedy="Give a number of devices, at least 1.",
                    )
                )
        for table in self.tables:
            numbers = [number for point in table.points for number in point]
            if not table.points or not all(math.isfinite(number) and number >= 0 for number in numbers):
                raise self._untimed(table, "Give at least one point of bytes and seconds, all finite.")
            if any(first > second for (first, _), (second, _) in pairwise(table.points)):
                raise self._untimed(table, "Give its points by ascending bytes.")
        self._check_shares()
        self._check_once()

    def _untimed(self, table: Table, remedy: str) -> MeshError:
        told = f"{table.kind} over {'+'.join(table.axes)}: got {spelt(table.points)}"
        return MeshError(message(f"a table of the machine `{self.name}` holds no times", told, remedy=remedy))

    def _check_shares(self) -> None:
        """More than all of a bandwidth is not reached, and no more than all of a transfer passes beside computing."""
        shares = {f"hides, {kind}": figure for kind, figure in self.hides}
        shares |= {} if self.reached is None else {"reached": self.reached}
        for place, figure in shares.items():
            if figure.value > 1:
                headline = f"a share of the machine `{self.name}` is more than all"
                remedy = "Give a share of 1 at most."
                raise MeshError(message(headline, f"{place}: got {spelt(figure.value)}", remedy=remedy))

    def _check_once(self) -> None:
        """Of two figures for one thing nobody knows which is meant."""
        told = [f"matmul of {dtype}" for dtype, _ in self.matmul] + [f"hides, {kind}" for kind, _ in self.hides]
        told += [f"the table of {table.kind} over {'+'.join(sorted(table.axes))}" for table in self.tables]
        twice = [name for name, times in Counter(told).items() if times > 1]
        if twice:
            remedy = "Leave one of them."
            raise MeshError(message(f"the machine `{self.name}` says something twice", *twice, remedy=remedy))

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Every figure with its place and unit."""
        for dtype, figure in self.matmul:
            yield f"matrix products of {dtype}, FLOP/s", figure
        yield "other arithmetic, FLOP/s", self.vector
        yield "memory, B", self.memory
        yield "memory, B/s", self.bandwidth
        if self.reached is not None:
            yield "share of it that kernels reach", self.reached
        yield "memory on the chip, B", self.cache
        yield f"inside a group of {self.group} ({self.inside.kind}), B/s", self.inside.bandwidth
        yield "inside a group, s a hop", self.inside.latency
        yield "between groups, B/s a device", self.between.bandwidth
        yield "between groups, s a hop", self.between.latency
        yield "smallest kernel, s", self.start
        for kind, figure in self.hides:
            yield f"{kind} of layers, share behind computing", figure

    def flops(self, dtype: str) -> float:
        """FLOP/s of matrix products whose operands have a dtype; of one without a figure, those of other arithmetic."""
        return next((figure.value for name, figure in self.matmul if name == dtype), self.vector.value)

    @property
    def streams(self) -> float:
        """Bytes per second that kernels move between a device and its memory."""
        return self.bandwidth.value * (1.0 if self.reached is None else self.reached.value)

    def to_json(self) -> str:
        """The machine as text, which `from_json` reads: data that may be edited, or written by hand."""
        return machine_to_json({item.name: getattr(self, item.name) for item in fields(self)})

    @staticmethod
    def from_json(text: str) -> Machine:
        """Read a machine back.

        Raises:
          FormatError: when the text is no machine, or one of another version.
        """
        with readable_errors():
            try:
                return Machine(**machine_from_json(text))
            except MeshError as error:
                raise FormatError(message("the file says no machine.", str(error), remedy=REMEDY)) from error

    def __str__(self) -> str:
        rows = [(place, f"{figure.value:.4g}", _source(figure)) for place, figure in self.figures()]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        lines = [f"{self.name} ({self.platform})"]
        lines += [f"  {place:<{widths[0]}}  {value:>{widths[1]}}  {source}" for place, value, source in rows]
        for table in self.tables:
            points = ", ".join(f"{size:.3g} B {seconds * 1e6:.3g} us" for size, seconds in table.points)
            lines.append(f"  {table.kind} over {'+'.join(table.axes)}: {points}")
        return "\n".join(lines)


def _source(figure: Figure) -> str:
    return ("estimate: " if figure.estimate else "") + figure.source
