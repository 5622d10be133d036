"""Estimated cycles of a scheduled TPU program, by the operation that they come from.

The TPU compiler writes into every fusion, convolution and copy how many cycles it expects; other compilers write none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from combinators.frozen import dataclass
from tapestry_jax.hlo.overlap import is_kernel
from tapestry_jax.hlo.text import Module
from tapestry_jax.hlo.trips import executions

_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
# What JAX writes between the names that people gave.
_UNNAMED = re.compile(r"^(while|body|cond|closed_call|checkpoint|rematted_computation|shard_map|custom_.*|.*\(.*\))$")


@dataclass(frozen=True)
class Costed:
    """One instruction with its cost.

    Attributes:
      path: the operation of the program, or what JAX says of it; empty where XLA made it.
      cycles: of one execution.
      times: executions.
      backward: whether it belongs to the gradient.
      opcode: of the instruction.
    """

    path: str
    cycles: int
    times: int
    backward: bool
    opcode: str


def costed(module: Module, paths: Collection[str] = ()) -> tuple[Costed, ...]:
    """Every instruction that has estimated cycles, with trip counts.

    Args:
      module: of a TPU program.
      paths: of the operations of the program; an instruction belongs to the innermost that its origin names.
    """
    times = executions(module)
    known = frozenset(paths)
    return tuple(
        Costed(path_of(each.origin, known), int(found.group(1)), times[name], "transpose(" in each.origin, each.opcode)
        for name in scheduled(module)
        for each in module.computations[name]
        if times[name] and (found := _CYCLES.search(each.rest)) is not None
    )


def unestimated(module: Module) -> int:
    """How many executions of kernels have no estimated cycles: sorts, and Pallas kernels, the compiler's own too."""
    times = executions(module)
    return sum(
        times[name]
        for name in scheduled(module)
        for each in module.computations[name]
        if is_kernel(each) and _CYCLES.search(each.rest) is None
    )


def lookups(module: Module) -> int:
    """How many executions of gathers and scatters have no estimated cycles: the TPU compiler estimates none of them."""
    times = executions(module)
    return sum(
        times[name]
        for name in scheduled(module)
        for each in module.computations[name]
        if each.opcode == "fusion" and "kind=kCustom" in each.rest and _CYCLES.search(each.rest) is None
    )


def scheduled(module: Module) -> Iterator[str]:
    """The computations whose instructions run one after the other: not those inside of fusions and reductions."""
    seen: set[str] = set()
    todo = [module.entry]
    while todo:
        name = todo.pop()
        if name in seen or name not in module.computations:
            continue
        seen.add(name)
        yield name
        for instruction in module.computations[name]:
            if instruction.opcode in ("while", "conditional", "call", "async-start"):
                todo.extend(callee for _, callee in instruction.called)


def path_of(origin: str, known: Collection[str]) -> str:
    """The operation that an origin names: the longest known path that stands furthest inside.

    Without known paths, the names that people gave, without the primitive.
    """
    words = origin.split("/")
    for end in range(len(words), 0, -1):
        for start in range(end):
            if "/".join(words[start:end]) in known:
                return "/".join(words[start:end])
    return "/".join(word for word in words[:-1] if not _UNNAMED.match(word))
