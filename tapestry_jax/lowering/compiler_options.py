"""Options of compilers with which they hide more transfers behind compute, by machine.

Measured as docs/design/accelerators.md says: the share of the bytes of stacked layers under FSDP that are sent while
something is computed.
"""

from __future__ import annotations

from typing import Any

from tapestry_jax.planning.rewrites.platforms import platforms_of

# A loop's turn begins the gather of the next one, and ends the reduce-scatter of the one before: 65% to 92%.
_CUDA = {"xla_gpu_enable_pipelined_all_gather": True}
# Gathers go on in the fusions beside them, which a v5e does without being asked: 0% to 38% on v5p and v6e.
_FUSED = {
    "xla_enable_async_all_gather": True,
    "xla_tpu_enable_async_collective_fusion": True,
    "xla_tpu_enable_async_collective_fusion_fuse_all_gather": True,
    "xla_tpu_enable_async_collective_fusion_multiple_steps": True,
    "xla_tpu_overlap_compute_collective_tc": True,
}
# Reduce-scatters run on the sparse cores, which a v5e lacks: 38% to 88% on v6e.
_SPARSE = {"xla_tpu_enable_sparse_core_collective_offload_reduce_scatter": True}
_TPUS = {"TPU v5": _FUSED, "TPU v5p": _FUSED, "TPU v6 lite": _FUSED | _SPARSE, "TPU v6e": _FUSED | _SPARSE}
"""By the kind of the devices, as JAX names it."""


def compiler_options(mesh: Any) -> dict[str, bool]:
    """What is known to hide more on the machine of a mesh; empty where nothing is, and for abstract meshes."""
    platforms = platforms_of(mesh)
    if platforms == ("cuda",):
        return dict(_CUDA)
    return dict(_TPUS.get(str(mesh.devices.flat[0].device_kind), {})) if platforms == ("tpu",) else {}
