"""`tp.laws` and `tp.nnx`, loaded on first use: only they need hypothesis and flax."""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {"laws": "laws", "nnx": "tapestry_jax.nnx"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    raise AttributeError(f"module 'tapestry_jax' has no attribute {name!r}")
