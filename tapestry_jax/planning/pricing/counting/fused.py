"""What goes to memory and back, by how XLA fuses.

Elementwise work runs with whatever reads it, a reduction with whatever makes its operand; products, convolutions,
sorts, gathers, loops and transforms run by themselves. What runs together reads each value from memory once and writes
its results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.planning.pricing.counting.arithmetic import operations
from tapestry_jax.planning.pricing.counting.opened import Program, Step
from tapestry_jax.planning.pricing.counting.primitives import APART, MOVED, PRODUCTS, is_reduction, is_root


@dataclass(frozen=True, eq=False)
class Kernel:
    """What runs together.

    Attributes:
      values: what it reads from memory.
      roots: what it computes last, of what goes to memory by itself.
      fused: the elementwise work on the way, by number.
    """

    values: frozenset[Any]
    roots: tuple[Step, ...]
    fused: frozenset[int]


@dataclass(frozen=True)
class Memory:
    """What a program moves.

    Attributes:
      reads: for every input how often it is read.
      inner: bytes of values inside that are written and read again.
      largest: bytes of the largest of them.
      repeated: operations of elementwise work that are done beyond once, for several readers.
    """

    reads: tuple[float, ...]
    inner: float
    largest: float
    repeated: float


def kernels(program: Program) -> tuple[Kernel, ...]:
    """What of a program runs together, in the order in which it begins."""
    outputs = {key for key in program.outputs if key is not None}
    written = _written(program)
    # What every value is computed from, of what is in memory, by work that is fused with its readers; and that work.
    below: dict[Any, frozenset[Any]] = {key: frozenset((key,)) for key in program.inputs}
    work: dict[Any, frozenset[int]] = {}
    groups: dict[Any, tuple[set[Any], list[Step], set[int]]] = {}
    for number, step in enumerate(program.steps):
        found = frozenset().union(*(below.get(key, frozenset((key,))) for key in step.reads))
        fused = frozenset().union(*(work.get(key, frozenset()) for key in step.reads))
        root = is_root(step.name)
        if root:
            # Reductions of the same values run together.
            group = ("reduced", found) if is_reduction(step.name) else number
            below.update((key, frozenset((key,))) for key in step.makes)
        else:
            fused |= {number}
            apart = not written.isdisjoint(step.makes)
            below.update((key, frozenset((key,)) if apart else found) for key in step.makes)
            work.update((key, frozenset[int]() if apart else fused) for key in step.makes)
            group = ("elementwise", found)
        if root or not outputs.isdisjoint(step.makes) or not written.isdisjoint(step.makes):
            values, roots, steps = groups.setdefault(group, (set(), [], set()))
            values.update(found)
            steps.update(fused)
            roots += [step] * root
    return tuple(Kernel(frozenset(values), tuple(roots), frozenset(steps)) for values, roots, steps in groups.values())


def moved(program: Program, together: Sequence[Kernel]) -> Memory:
    """What a program reads and writes, whose kernels these are."""
    outputs = {key for key in program.outputs if key is not None}
    stored = outputs.union(_written(program), *(step.makes for step in program.steps if is_root(step.name)))
    times = Counter(key for kernel in together for key in kernel.values)
    again = Counter(number for kernel in together for number in kernel.fused)
    repeated = sum((count - 1) * operations(program.steps[number], program.platform) for number, count in again.items())
    inside = stored - set(program.inputs)
    inner = sum(program.types[key] * ((key not in outputs) + times.get(key, 0)) for key in inside)
    largest = max((program.types[key] for key in inside if key not in outputs), default=0)
    return Memory(tuple(float(times.get(key, 0)) for key in program.inputs), float(inner), float(largest), repeated)


def heads(program: Program) -> tuple[str, ...]:
    """What makes every result, as `Counts.heads` has it."""
    kinds: dict[Any, str] = {}
    for step in program.steps:
        if step.name in PRODUCTS:
            kind = "product"
        elif step.name in APART or step.name == "transpose":
            kind = "apart"
        elif is_reduction(step.name):
            kind = "reduced"
        elif step.name in MOVED:
            # What is only moved is still what it was.
            kind = next((kinds[key] for key in step.reads if key in kinds), "given")
        else:
            kind = "fused"
        kinds.update(dict.fromkeys(step.makes, kind))
    return tuple("given" if key is None else kinds.get(key, "given") for key in program.outputs)


def _written(program: Program) -> set[Any]:
    """What TPUs write although it is elementwise work: reductions of several values at once read all from memory."""
    if program.platform != "tpu":
        return set()
    several = (step for step in program.steps if step.name == "reduce" and len(step.makes) > 1)
    read = {key for step in several for key in step.reads}
    return read.intersection(*[{key for step in program.steps if not is_root(step.name) for key in step.makes}])
