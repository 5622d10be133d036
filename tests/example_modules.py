"""Modules of the examples, imported as a script beside them imports them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parents[1] / "examples"
GALLERY = EXAMPLES / "gallery"


@contextmanager
def modules_of(folder: Path) -> Iterator[Callable[[str], ModuleType]]:
    """What imports a module of a folder by its name; none of them stays behind."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield import_module
    finally:
        sys.path.remove(str(folder))
        # Their names, such as `settings`, are too common to leave to other tests.
        for name in set(sys.modules) - before:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == folder:
                del sys.modules[name]
