"""Names of machines: `v5e:2x4`, `h100:8x8`. Nothing is loaded here."""

from __future__ import annotations

import math
import re
from typing import Any

from combinators.errors import MeshError, message, spelt
from combinators.frozen import dataclass

TPUS = {
    "v4": "v4:2x2x2",
    "v5e": "v5e:2x4, v5e:4x4, v5e:8x8, v5e:16x16",
    "v5p": "v5p:2x2x1, v5p:4x4x4, v5p:8x8x8",
    "v6e": "v6e:2x4, v6e:8x8, v6e:16x16",
    "tpu7x": "tpu7x:2x2x1",
}
"""Generations of TPU and some of their topologies: chips along each axis of the torus."""
GPUS = {"h100": "h100:1x8, h100:8x8, h100:64x8"}
"""GPUs and some of their topologies: hosts by devices of a host."""
_SHAPE = re.compile(r"[1-9]\d{0,3}(x[1-9]\d{0,3}){1,2}")


@dataclass(frozen=True)
class Machine:
    """A name that was read.

    Attributes:
      kind: `v5e`, `h100`.
      shape: chips along each axis of a torus; or hosts and devices of a host.
    """

    kind: str
    shape: tuple[int, ...]

    @property
    def is_tpu(self) -> bool:
        """Whether the TPU compiler knows it."""
        return self.kind in TPUS

    @property
    def chips(self) -> int:
        """All of them; some TPUs have two devices a chip."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.kind}:{'x'.join(map(str, self.shape))}"


# More devices are no machine; compilers would make each of them.
_MOST = 1 << 16


def read_machine(name: Any) -> Machine:
    """Read the name of a machine.

    Raises:
      MeshError: when it names none; the text lists some that are known.
    """
    kind, _, shape = name.lower().partition(":") if isinstance(name, str) else ("", "", "")
    ranks = {"v5e": 2, "v6e": 2, **dict.fromkeys(GPUS, 2)}
    if (kind in TPUS or kind in GPUS) and _SHAPE.fullmatch(shape):
        sizes = tuple(map(int, shape.split("x")))
        if len(sizes) == ranks.get(kind, 3) and math.prod(sizes) <= _MOST:
            return Machine(kind, sizes)
    raise MeshError(
        message(
            "no compiler here knows this machine",
            f"got {spelt(name)}",
            *(f"{each}: {some}" for each, some in (TPUS | GPUS).items()),
            remedy="Name a machine and its shape: tp.topology('v5e:2x4', data=2, model=4).",
        )
    )
