"""Names that two instructions of one fused loop share once XLA for CPUs has made functions of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable

from tapestry_jax.hlo.text import read


def shared_names(text: str) -> list[tuple[str, ...]]:
    """Instructions of one fusion whose names differ in `-`, `.` and `_` alone: one may be run in place of the other."""
    return _of_fusions(text, lambda name: name)


def nearly_shared_names(text: str) -> list[tuple[str, ...]]:
    """Kinds of instructions of one fusion that would share a name if they had the same number."""
    return _of_fusions(text, lambda name: name.split(".")[0])


def _of_fusions(text: str, kind: Callable[[str], str]) -> list[tuple[str, ...]]:
    module = read(text)
    listed = [each for instructions in module.computations.values() for each in instructions]
    fused = {called for each in listed if each.opcode == "fusion" for _, called in each.called}
    names = [{kind(each.name) for each in module.computations[name]} for name in sorted(fused)]
    return [group for each in names for group in _alike(each)]


def _alike(names: set[str]) -> list[tuple[str, ...]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        found[re.sub(r"\W", "_", name)].append(name)
    return [tuple(each) for each in found.values() if len(each) > 1]
