"""What kernels on TPUs take beside what they read and write, as bytes that memory would move in that time.

Each rule was measured by compiling single kernels (docs/design/cost.md, "Single kernels"): the compiler says how many
cycles it expects of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tapestry_jax.planning.pricing.counting.arithmetic import filled, is_by_vector
from tapestry_jax.planning.pricing.counting.fused import Kernel
from tapestry_jax.planning.pricing.counting.opened import Program, Step
from tapestry_jax.planning.pricing.counting.primitives import is_reduction

_PREFIXES = 5.0
"""Prefixes are products of blocks with a triangle, then what the blocks before add, in a layout turned twice."""
_SLICES = ("slice", "dynamic_slice")


def beside(program: Program, together: Sequence[Kernel]) -> float:
    """Bytes for all kernels of a program; none elsewhere than on TPUs."""
    if program.platform != "tpu":
        return 0.0
    return float(sum(rule(program, each) for each in together for rule in _RULES))


def _reduced(program: Program, kernel: Kernel) -> float:
    """A reduction takes as long as if it wrote what it reads; of several values at once, all of them."""
    sizes = [0.0]
    for step in kernel.roots:
        if is_reduction(step.name):
            sizes.append(sum(program.types[key] for key in step.reads[: len(step.makes)]))
        elif is_by_vector(step):
            sizes.append(max((program.types[key] for key in step.reads), default=0.0))
    return max(sizes)


def _sliced(program: Program, kernel: Kernel) -> float:
    """Each slice of a value is read by itself, and of what is put together each piece takes as long as the whole."""
    steps = [program.steps[number] for number in kernel.fused]
    sizes: dict[Any, float] = {}
    for key, size in _read(program, kernel, steps):
        sizes[key] = sizes.get(key, 0.0) + size
    more = sum(max(size - program.types[key], 0.0) for key, size in sizes.items())
    for step in steps:
        if step.name == "concatenate":
            more += (len(step.reads) - 1) * sum(program.types[key] for key in step.makes)
    return more


def _read(program: Program, kernel: Kernel, steps: Sequence[Step]) -> Iterator[tuple[Any, float]]:
    """What is read of the values of a kernel: every slice, and the whole once where something else reads it too."""
    whole: set[Any] = set()
    for step in (*steps, *kernel.roots):
        for key in kernel.values.intersection(step.reads):
            if step.name in _SLICES and key == step.reads[0]:
                yield key, program.types[step.makes[0]]
            else:
                whole.add(key)
    yield from ((key, program.types[key]) for key in whole)


def _prefixed(program: Program, kernel: Kernel) -> float:
    prefixes = (step for step in kernel.roots if step.name.startswith("cum") and step.reads)
    return sum(_PREFIXES * program.types[step.reads[0]] for step in prefixes)


def _copied(program: Program, kernel: Kernel) -> float:
    """Convolutions write the batch beside the features, in lanes of 128; a copy puts them back into their order."""
    found = 0.0
    for step in kernel.roots:
        if step.name == "conv_general_dilated":
            features = step.equation.params["dimension_numbers"].out_spec[1]
            found += program.types[step.makes[0]] * filled(step.equation.outvars[0].aval.shape[features])
    return found


_RULES = (_reduced, _sliced, _prefixed, _copied)
