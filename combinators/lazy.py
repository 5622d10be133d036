"""Names of a package that are loaded on first use (PEP 562): who does without them imports less."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    Args:
      package: its name.
      places: from the names that are loaded later to where they are: a module, or `module:name` of what is in one. No
        file directly in the package may have such a name, unless it is what the name stands for: its import would put
        the file in the place of the name.
    """

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, inside = places[name].partition(":")
        found = importlib.import_module(module)
        return getattr(found, inside) if inside else found

    def known() -> list[str]:
        return sorted({*vars(importlib.import_module(package)), *places})

    return find, known
