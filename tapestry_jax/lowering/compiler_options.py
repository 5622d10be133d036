"""Options of compilers with which they hide more transfers behind compute, by machine.

Measured as docs/design/accelerators.md says: the share of the bytes of stacked layers under FSDP that are sent while
something is computed.

There are none for TPUs. Gathers that go on in the fusions beside them, which a v5e makes without being asked, hid 38%
on v5p and v6e with libtpu 0.0.42.1; since 0.0.46.3 it refuses them there, "not supported/recommended on platforms other
than TPU v5e, and this might lead to many errors including but not limited to: incorrect results, hang, SDC".
"""

from __future__ import annotations

from typing import Any

import jax

from tapestry_jax.planning.rewrites.platforms import platforms_of

# A loop's turn begins the gather of the next one, and ends the reduce-scatter of the one before: 65% to 92%. From 0.11
# on compilers have no such option.
_CUDA = {"xla_gpu_enable_pipelined_all_gather": True} if jax.__version_info__ < (0, 11) else {}


def compiler_options(mesh: Any) -> dict[str, bool]:
    """What is known to hide more on the machine of a mesh; empty where nothing is, and for abstract meshes."""
    return dict(_CUDA) if platforms_of(mesh) == ("cuda",) else {}
