"""Compile-only TPU devices, from libtpu: no TPU and no network is needed."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import jax
from jax.experimental import topologies

from tapestry_jax.aot.known import Machine
from tapestry_jax.aot.missing import missing, refused

PACKAGE = "libtpu"


def is_installed() -> bool:
    """Whether libtpu is here."""
    return importlib.util.find_spec(PACKAGE) is not None


def tpu_devices(machine: Machine) -> list[Any]:
    """The devices of a TPU topology.

    Raises:
      MeshError: when libtpu is not installed, does not fit to jaxlib, or does not know the topology.
    """
    if not is_installed():
        raise missing(PACKAGE, machine)
    # libtpu would ask a metadata server which machine this is, and wait for it.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    # It lets in one process at a time, for the sake of the chips; compilers need none.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=str(machine)).devices)
    except (jax.errors.JaxRuntimeError, RuntimeError, ValueError, NotImplementedError, AttributeError) as error:
        raise refused(PACKAGE, machine, error) from error
