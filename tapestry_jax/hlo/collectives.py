"""Reading the collectives of a compiled program from its HLO text."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from combinators.frozen import dataclass
from tapestry_jax.hlo.chains import links
from tapestry_jax.hlo.overlap import Enclosed, enclosed
from tapestry_jax.hlo.text import Instruction, Module, read
from tapestry_jax.hlo.trips import executions

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\](?:\{[^{}]*E\((\d+)\)[^{}]*\})?")
"""A dtype, sizes, and the bits of an element where the layout packs several into a byte."""
_BITS = re.compile(r"[a-z]+(\d+)")
"""A dtype begins with its kind, and its bits: `s32`, `bf16`, `f8e4m3fn`."""


@dataclass(frozen=True)
class Found:
    """A collective of a compiled program.

    Attributes:
      kind: as HLO names it, without `-start`.
      axes: the mesh axes; `("?",)` where its groups are those of no set of axes.
      bytes: per device and execution: the larger of operand and result.
      times: executions.
      origin: where it comes from, in JAX's words (`op_name`).
      enclosed: how many instructions of weight (`overlap`) are scheduled between its start and its end; 0 where it is
        waited for.
      cycles: estimated, of what is enclosed; 0 where the compiler estimates none.
    """

    kind: str
    axes: tuple[str, ...]
    bytes: int
    times: int
    origin: str = ""
    enclosed: int = 0
    cycles: int = 0

    def __str__(self) -> str:
        repeated = f" x{self.times}" if self.times > 1 else ""
        return f"{self.kind} over {'+'.join(self.axes)}: {self.bytes:,} B{repeated}, {self.origin or 'unknown origin'}"


def compiled_collectives(text: str, mesh: Any) -> list[Found]:
    """The collectives in an optimised HLO text, with mesh axes and trip counts.

    Args:
      text: `compiled.as_text()`.
      mesh: the mesh that the program was compiled for.

    Returns:
      One entry for each instruction; bytes are the larger of operand and result on one device.
    """
    return collectives_of(read(text), mesh)


def collectives_of(module: Module, mesh: Any) -> list[Found]:
    """The collectives of a program that was read already."""
    times = executions(module)
    groups = _axis_groups(mesh)
    hidden = enclosed(module)
    # A collective that goes on in several fusions is sent once: where it starts.
    repeated = {(name, link.name) for name, link in links(module).items() if not link.starts}
    return [
        replace(found, enclosed=between.kernels, cycles=between.cycles)
        for name, instructions in module.computations.items()
        if times[name]
        for instruction in instructions
        if kind_of(instruction) and (name, instruction.name) not in repeated
        for between in (hidden.get((name, instruction.name), Enclosed()),)
        for found in _read(instruction, groups, times[name], mesh)
    ]


def kind_of(instruction: Instruction) -> str:
    """The kind of collective that an instruction starts; empty for any other."""
    kind = instruction.opcode.removesuffix("-start")
    return kind if kind in KINDS else ""


def _read(instruction: Instruction, groups: dict[Any, tuple[str, ...]], times: int, mesh: Any) -> Iterator[Found]:
    kind = kind_of(instruction)
    axes, members = _axes(kind, instruction.rest, groups, mesh)
    total = sent_bytes(instruction)
    if kind == "reduce-scatter" and not instruction.opcode.endswith("-start"):
        total *= members
    if members > 1:
        yield Found(kind, axes, total, times, instruction.origin)


def sent_bytes(instruction: Instruction) -> int:
    """The bytes of a collective's operands or results; for `all-gather` of its results."""
    kind, shape = kind_of(instruction), instruction.shape
    if shape.startswith("(("):
        # The asynchronous form of newer versions: a tuple of its operands, then its results.
        operands, results = _parted(shape)
        shape = results if kind == "all-gather" else operands
        return sum(_nbytes(*found) for found in _SHAPE.findall(shape))
    sizes = [_nbytes(*found) for found in _SHAPE.findall(shape)]
    if instruction.opcode.endswith("-start") and kind != "all-reduce":
        # The asynchronous form returns its operands, its results and scratch values.
        count = max(instruction.argument.count("%"), 1)
        sizes = sizes[count : 2 * count] if kind == "all-gather" else sizes[:count]
    return sum(sizes)


def _parted(shape: str) -> tuple[str, str]:
    """Of a tuple of tuples or arrays the first and the second, as text."""
    parts, depth = [""], 0
    for letter in shape[1:-1]:
        depth += (letter in "({[") - (letter in ")}]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts[0], parts[-1]


def _nbytes(dtype: str, dims: str, packed: str) -> int:
    found = _BITS.match(dtype)
    # `pred` takes a byte, as do smaller elements that are not packed; `token` and `opaque` are no arrays.
    bits = max(int(found[1]), 8) if found else 8 * (dtype == "pred")
    return -(-math.prod(int(dim) for dim in dims.split(",") if dim) * int(packed or bits) // 8)


def _axis_groups(mesh: Any) -> dict[Any, tuple[str, ...]]:
    """Which set of mesh axes a partition of the device positions stands for."""
    shape, names = tuple(mesh.shape.values()), tuple(mesh.shape)
    positions = np.arange(int(np.prod(shape))).reshape(shape)
    known: dict[Any, tuple[str, ...]] = {}
    for count in range(1, len(names) + 1):
        for axes in itertools.combinations(range(len(names)), count):
            others = [axis for axis in range(len(names)) if axis not in axes]
            size = int(np.prod([shape[axis] for axis in axes]))
            rows = positions.transpose(*others, *axes).reshape(-1, size)
            if size > 1 and all(shape[axis] > 1 for axis in axes):
                known.setdefault(_canonical(rows.tolist()), tuple(names[axis] for axis in axes))
    return known


def _canonical(rows: list[list[int]]) -> Any:
    return frozenset(frozenset(row) for row in rows)


def _axes(kind: str, rest: str, groups: dict[Any, tuple[str, ...]], mesh: Any) -> tuple[tuple[str, ...], int]:
    if kind == "collective-permute":
        listed = re.search(r"source_target_pairs=\{(.*?)\}\}", rest)
        pairs = [(int(a), int(b)) for a, b in re.findall(r"\{?(\d+),(\d+)\}?", listed.group(1) if listed else "")]
        return _permuted_axes(pairs, mesh), 2 if pairs else 1
    named = re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", rest)
    if named is not None:
        rows = _named_groups(*named.groups())
        # What a partitioner of XLA's own sends may name the axes of a mesh that is not ours: `axis_0`.
        return groups.get(_canonical(rows), ("?",)), len(rows[0])
    rows = _replica_groups(rest, int(np.prod(tuple(mesh.shape.values()))))
    return groups.get(_canonical(rows), ("?",)), max(map(len, rows), default=1)


def _permuted_axes(pairs: list[tuple[int, int]], mesh: Any) -> tuple[str, ...]:
    shape, names = tuple(mesh.shape.values()), tuple(mesh.shape)
    moved: set[str] = set()
    for source, target in pairs:
        a, b = np.unravel_index(source, shape), np.unravel_index(target, shape)
        moved.update(name for name, x, y in zip(names, a, b, strict=True) if x != y)
    return tuple(name for name in names if name in moved)


def _named_groups(mesh: str, among: str) -> list[list[int]]:
    """Groups in a mesh `'data'=2,'model'=4` along `'data'`, or along a part of an axis: `'model':(before)size`."""
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", mesh)}
    parts = {name: [(1, size)] for name, size in sizes.items()}
    chosen: set[tuple[str, int]] = set()
    for name, before, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", among):
        first, count = int(before or 1), int(size or sizes[name])
        parts[name] = [(1, first), (first, count), (first * count, sizes[name] // (first * count))]
        chosen.add((name, first if size else 1))
    shape = [(name, start, count) for name, split in parts.items() for start, count in split if count > 1]
    inside = [at for at, (name, start, _) in enumerate(shape) if (name, start) in chosen]
    outside = [at for at in range(len(shape)) if at not in inside]
    ids = np.arange(int(np.prod([count for *_, count in shape]))).reshape([count for *_, count in shape])
    width = int(np.prod([shape[at][2] for at in inside]))
    return ids.transpose(*outside, *inside).reshape(-1, width).tolist()


def _replica_groups(rest: str, devices: int) -> list[list[int]]:
    iota = re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", rest)
    if iota is not None:
        shape, source = ([int(d) for d in part.split(",")] for part in iota.groups()[:2])
        ids = np.arange(int(np.prod(source))).reshape(source)
        if iota.group(3):
            ids = ids.transpose([int(d) for d in iota.group(3).split(",")])
        return ids.reshape(shape).tolist()
    listed = re.search(r"replica_groups=\{(\{.*?\})\}", rest)
    if listed is None:
        return [list(range(devices))]
    return [[int(d) for d in row.split(",")] for row in re.findall(r"\{([\d,]+)\}", listed.group(1))]
