"""As what a platform's compiler runs a collective, where that is another one of the same bytes.

The TPU compiler sums zeros and one's own part where it does not gather or scatter. Found by asking libtpu 0.0.42.1 for
single collectives over eight devices of a v5e, float32 and bfloat16 (docs/design/accelerators.md):

- a vector is gathered where the part of a device is a multiple of 128 elements, the lanes of the machine, and summed
  where not, however long it is; arrays of more dimensions are gathered, but those of which a device has no multiple of
  128 elements may be laid out as vectors. Dimensions of size 1 count as none;
- a vector is never scattered, but summed; so are arrays of which a device has fewer than 128 elements; above, arrays
  are scattered where their layout lets them, and from 256 KiB on where the part of a device is a multiple of 8 along
  the dimension that is cut. A v6e does the same; a v5p was seen to sum at 256 KiB as well: nothing is sure there.
- over 64 devices a v5p sums every gather, a v5e and a v6e those of some arrays; over 16 and 32 all are gathered. So
  above 32 it may be either.

Parts that do not fit the machine's tiles are padded, and put right by permutations, for which there is no rule here.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tapestry_jax.planning.prediction.collective import Collective

LANES, SUBLANES = 128, 8
SUMMED, SCATTERED = 128, 256 * 1024
"""Elements of a part below which reduce-scatters are summed; bytes of the whole from which on they are not."""
SURE = 32
"""Devices of one collective above which the rules say nothing sure."""
_SCATTER = ("lite", "v6")
"""Parts of the names of the machines that do."""


def as_compiled(found: Collective, platform: str, machine: str = "", devices: int = 1) -> Collective:
    """The collective that the compiler of a platform runs for a predicted one.

    Args:
      found: a collective of the program.
      platform: as lowering names it.
      machine: the kind of its devices, as JAX names it.
      devices: how many of them take part.

    Returns:
      It, or an all-reduce in its place; `perhaps` names the all-reduce where the layout decides, which is not known.
    """
    if platform != "tpu" or found.kind not in ("all-gather", "reduce-scatter"):
        return found
    decided = _is_summed(found, any(name in machine for name in _SCATTER))
    if decided is None or (not decided and devices > SURE):
        return replace(found, perhaps="all-reduce")
    return replace(found, kind="all-reduce") if decided else found


def _is_summed(found: Collective, scatters: bool) -> bool | None:
    if not found.part:
        return None
    is_vector = math.prod(found.part[1:]) == 1
    if found.kind == "all-gather":
        # Who reads an array as a vector, such as a loop over its rows, has it gathered as one.
        return (is_vector or None) if math.prod(found.part) % LANES else False
    if is_vector or math.prod(found.part) < SUMMED:
        return True
    return False if scatters and found.bytes >= SCATTERED and found.part[0] % SUBLANES == 0 else None
