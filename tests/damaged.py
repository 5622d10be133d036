"""Functions with a fault planted in their source, wherever they were imported to."""

from __future__ import annotations

import contextlib
import inspect
import textwrap
from collections.abc import Generator
from types import FunctionType
from typing import Any


@contextlib.contextmanager
def damaged(function: Any, old: str, new: str) -> Generator[None]:
    """Run a function with one piece of its source replaced.

    The code object is changed and not the name: other modules have imported the function.

    Args:
      function: of a module or a class; without variables of a function around it.
      old: stands in its source once.
      new: stands there instead.
    """
    function = inspect.unwrap(function)
    source = textwrap.dedent(inspect.getsource(function))
    source = source[source.index("def ") :]
    if source.count(old) != 1:
        raise ValueError(f"`{function.__qualname__}` holds {old!r} {source.count(old)} times")
    found: dict[str, Any] = {}
    changed = f"from __future__ import annotations\n{source.replace(old, new)}"  # as all modules here begin
    exec(changed, function.__globals__, found)
    planted: FunctionType = found[function.__name__]
    whole, function.__code__ = function.__code__, planted.__code__
    try:
        yield
    finally:
        function.__code__ = whole
