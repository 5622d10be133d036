"""Which transfers of a scheduled program go on while something is computed.

A collective that is split into a start and a done leaves the time between them to what stands there in the schedule.
What stands there counts where it computes something of weight: a counter of a loop, a copy, or a fusion that only moves
elements hides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from combinators.frozen import dataclass
from tapestry_jax.hlo.chains import links
from tapestry_jax.hlo.text import Instruction, Module
from tapestry_jax.hlo.trips import executions

_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_KERNELS = frozenset(
    ("convolution", "dot", "sort", "scatter", "reduce", "reduce-window", "select-and-scatter", "fft", "map")
    + ("triangular-solve", "cholesky", "ragged-dot", "scaled-dot")
)
_RUNS = frozenset(("fusion", "while", "conditional", "call"))
# What fusions may hold that moves elements, and computes none.
_MOVES = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "reshape", "copy", "transpose", "broadcast")
    + (
        "convert",
        "slice",
        "dynamic-slice",
        "dynamic-update-slice",
        "concatenate",
        "pad",
        "iota",
        "reverse",
        "opt-barrier",
    )
    + ("copy-start", "copy-done", "after-all", "partition-id", "replica-id")
)
# Custom calls by which compilers hold places in memory, or name a part of a number or of a transfer.
_PLACES = re.compile(
    r"AllocateBuffer|AsyncCollective|Bitcast|X64|Sharding|ShardShape|FullShape|Pin|Assume|Token|Barrier|PrepareAsync",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Enclosed:
    """What stands between the start of a transfer and its end.

    Attributes:
      kernels: how many instructions of weight.
      cycles: of them, trip counts of loops among them included, where the compiler estimates any.
    """

    kernels: int = 0
    cycles: int = 0

    def __add__(self, other: Enclosed) -> Enclosed:
        return Enclosed(self.kernels + other.kernels, self.cycles + other.cycles)

    def __sub__(self, other: Enclosed) -> Enclosed:
        return Enclosed(self.kernels - other.kernels, self.cycles - other.cycles)


def enclosed(module: Module) -> Mapping[tuple[str, str], Enclosed]:
    """What stands between each start of a transfer and its end.

    Returns:
      By computation and name of the starting instruction, and of the collective in the fusion or in the computation of
      another core that it starts; what has no end in the same computation is absent.
    """
    chained = links(module)
    listed = (each for instructions in module.computations.values() for each in instructions)
    if not chained and not any(each.opcode.endswith("-start") for each in listed):
        return {}  # everything is waited for
    weights = Weights(module)
    found: dict[tuple[str, str], Enclosed] = {}
    for name, instructions in module.computations.items():
        begun: dict[str, tuple[list[tuple[str, str]], Enclosed]] = {}
        chains: dict[str, tuple[tuple[str, str], Enclosed]] = {}
        busy, empty = Enclosed(), set[str]()
        for instruction in instructions:
            if instruction.opcode.endswith("-start"):
                empty |= set() if instruction.operands else {instruction.name}
                inside = [(to, each.name) for _, to in instruction.called for each in module.computations.get(to, ())]
                begun[instruction.name] = [(name, instruction.name), *inside], busy
            elif instruction.opcode.endswith("-update"):
                for operand in instruction.operands:
                    if operand in begun:
                        keys, before = begun[operand]
                        # Another core may be started before it has anything to send: it is given that here.
                        begun[instruction.name] = keys, busy if operand in empty else before
            elif instruction.opcode.endswith("-done"):
                for operand in instruction.operands:
                    if operand in begun:
                        keys, before = begun.pop(operand)
                        found |= dict.fromkeys(keys, busy - before)
            else:
                callee, link = next(((to, chained[to]) for _, to in instruction.called if to in chained), ("", None))
                if link is not None and link.ends and link.chain in chains:
                    key, before = chains.pop(link.chain)
                    found[key] = busy - before
                busy += weights.of(instruction, name)
                if link is not None and link.starts:
                    chains[link.chain] = (callee, link.name), busy
    return found


class Weights:
    """Which instructions compute something of weight, and in how many cycles."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._times = executions(module)
        self._known: dict[str, Enclosed] = {}

    def of(self, instruction: Instruction, where: str) -> Enclosed:
        """The weight of one execution of an instruction: one kernel at most, and the cycles of all that it runs.

        Args:
          instruction: of the program.
          where: the computation that it stands in.
        """
        if is_kernel(instruction):
            return Enclosed(1, _cycles(instruction))
        if instruction.opcode not in _RUNS:
            return Enclosed()
        fused, inside = instruction.opcode == "fusion", Enclosed()
        for role, callee in instruction.called:
            turns = self._times.get(callee, 1) // max(self._times.get(where, 1), 1) if role == "body" else 1
            body = self._computation(callee, fused)
            inside += Enclosed(body.kernels, 0 if fused else body.cycles * max(turns, 1))
        return Enclosed(1, inside.cycles + _cycles(instruction)) if inside.kernels else Enclosed()

    def _computation(self, name: str, fused: bool) -> Enclosed:
        """The weight of what a computation runs; inside of a fusion what computes elements counts."""
        if name not in self._known:
            self._known[name] = Enclosed()
            total = Enclosed()
            for each in self._module.computations.get(name, ()):
                total += Enclosed(1) if fused and _computes(each) else self.of(each, name)
            self._known[name] = total
        return self._known[name]


def is_kernel(instruction: Instruction) -> bool:
    """Whether an instruction computes by itself, running no other computation: a product, or a call of a kernel."""
    if instruction.opcode != "custom-call":
        return instruction.opcode in _KERNELS
    target = _TARGET.search(instruction.rest)
    return target is None or _PLACES.search(target.group(1)) is None


def _computes(fused: Instruction) -> bool:
    """Whether an instruction of a fusion computes elements; numbers alone, such as places of slices, are none."""
    return fused.opcode not in _MOVES | _RUNS and "[]" not in fused.shape


def _cycles(instruction: Instruction) -> int:
    said = _CYCLES.search(instruction.rest)
    return int(said.group(1)) if said else 0
