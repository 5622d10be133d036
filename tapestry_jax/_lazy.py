"""`tp.laws`, `tp.nnx` and `tp.__version__`, loaded on first use: only laws need hypothesis, only nnx needs flax."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

_MODULES = {"laws": "laws", "nnx": "tapestry_jax.nnx"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name == "__version__":
        return importlib.metadata.version("tapestry-jax")
    raise AttributeError(f"module 'tapestry_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    package = importlib.import_module("tapestry_jax")
    special = [name for name in vars(package) if name.startswith("__") and name.endswith("__")]
    return sorted({*package.__all__, *_MODULES, *special, "__version__"})
