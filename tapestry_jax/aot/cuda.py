"""Compile-only CUDA devices, from the CUDA plugin of JAX: no GPU, no driver and no CUDA libraries are needed.

The plugin's own start fails without CUDA, so its library is loaded by path, under a name of ours.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import jax
from jaxlib import xla_client

from tapestry_jax.aot.known import Machine
from tapestry_jax.aot.missing import missing, refused

PACKAGE = "jax-cuda12-pjrt"
_PLUGIN, _LIBRARY = "jax_plugins.xla_cuda12", "xla_cuda_plugin.so"
_LOADED_AS = "tapestry_cuda"
# What XLA asks a driver for, as it stands on an H100 SXM5 of 80 GB (NVIDIA H100 data sheet; compute capability 9.0).
_H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 device_memory_size: 84978434048
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  cuda_compute_capability { major: 9 minor: 0 }
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
_TARGETS = {"h100": _H100}


def is_installed() -> bool:
    """Whether the plugin is here, with its library."""
    return _library() is not None


def cuda_devices(machine: Machine) -> list[Any]:
    """The devices of some hosts with GPUs; each host is one domain of fast links.

    Raises:
      MeshError: when the plugin is not installed, or does not fit to jaxlib.
    """
    library = _library()
    if library is None:
        raise missing(PACKAGE, machine)
    hosts, each = machine.shape
    try:
        topology: Any = xla_client.make_c_api_device_topology(
            _loaded(str(library)), str(machine), target_config=_TARGETS[machine.kind], topology=f"{hosts}x1x{each}"
        )
        return list(topology._make_compile_only_devices())
    except (jax.errors.JaxRuntimeError, RuntimeError, ValueError, AttributeError) as error:
        raise refused(PACKAGE, machine, error) from error


@functools.cache
def _loaded(library: str) -> Any:
    # JAX's own backends come first: afterwards it looks for no plugin any more.
    jax.local_devices(backend="cpu")
    loaded: Any = xla_client.load_pjrt_plugin_dynamically(_LOADED_AS, library)
    xla_client.initialize_pjrt_plugin(_LOADED_AS)
    return loaded


def _library() -> Path | None:
    try:
        found = importlib.util.find_spec(_PLUGIN)
    except ModuleNotFoundError:
        return None
    places = [] if found is None else list(found.submodule_search_locations or ())
    return next((Path(place) / _LIBRARY for place in places if (Path(place) / _LIBRARY).exists()), None)
