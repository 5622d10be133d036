"""Arrays of tests reach JAX without a program.

JAX compiles a program that does nothing for each shape that `jnp.asarray` takes from NumPy; here the array is put where
it belongs. JAX has no public name for it: where the one that is looked for is not there, it does what it does.

A script in a process of its own: `python -m tests.quickly SCRIPT ARGUMENTS...`
"""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tests.shared_contexts import share_contexts
from tests.small_programs import run_small_programs
from tests.thoroughly import thoroughly

PROCESS = {
    # Hypothesis reads the numbers of all our modules, and keeps them: elsewhere each process reads them anew.
    "HYPOTHESIS_STORAGE_DIRECTORY": str(Path(__file__).parents[1] / ".hypothesis"),
    # Each process compiles much of what another one has compiled.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    # As tests/conftest.py has it.
    "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0",
}
"""What the environment of a process that tests start tells JAX."""


def put_without_programs() -> None:
    """From here on in this process arrays of NumPy become arrays of JAX by a copy."""
    stage: Any = getattr(importlib.import_module("jax._src.core"), "stage_p", None)
    if stage is None:
        return
    compiled = stage.impl

    def put(value: Any) -> Any:
        # JAX hands NumPy's arrays on in a wrapper. A copy: an array that a test changes later stays what it was.
        array = getattr(value, "val", None)
        if type(array) is not np.ndarray or getattr(value, "weak_type", True):
            return compiled(value)
        return jax.device_put(array.copy())

    stage.def_impl(put)


def quickly() -> None:
    """From here on in this process less is compiled, and what is compiled is lowered faster.

    `make thorough` leaves JAX's own small programs to JAX: it is held against what users run, whatever it takes.
    """
    put_without_programs()
    share_contexts()
    if not thoroughly():
        run_small_programs()


if __name__ == "__main__":
    quickly()
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
