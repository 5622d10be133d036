"""Collectives of the TPU compiler that run inside of fusions: begun in one, carried on in several, ended in another.

Every one of these fusions repeats the instruction of the collective, with the same `chain_id`; it is sent once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from combinators.frozen import dataclass
from tapestry_jax.hlo.text import Module

_CHAIN = re.compile(r'\bchain_id="(\d+)"')
_START, _DONE = 'custom_call_target="AsyncCollectiveStart"', 'custom_call_target="AsyncCollectiveDone"'


@dataclass(frozen=True)
class Link:
    """What a fusion does for a collective.

    Attributes:
      chain: which collective, in the words of the compiler.
      name: of the collective's instruction in the fusion.
      starts: whether it begins here.
      ends: whether it ends here.
    """

    chain: str
    name: str
    starts: bool
    ends: bool


def links(module: Module) -> Mapping[str, Link]:
    """By the name of a fused computation, which part of which collective it runs."""
    found: dict[str, Link] = {}
    for name, instructions in module.computations.items():
        for instruction in instructions:
            chain = _CHAIN.search(instruction.rest) if "chain_id" in instruction.rest else None
            if chain is not None:
                starts = any(_START in each.rest for each in instructions)
                ends = any(_DONE in each.rest for each in instructions)
                found[name] = Link(chain.group(1), instruction.name, starts, ends)
    return found
