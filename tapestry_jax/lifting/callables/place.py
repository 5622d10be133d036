"""Where in the user's source an equation was written, or an error raised."""

from __future__ import annotations

import sysconfig
from functools import lru_cache
from pathlib import Path
from traceback import walk_tb
from typing import Any

_LIBRARIES = frozenset({"jax", "flax", "combinators", "tapestry_jax"})
_PACKAGES = tuple({str(Path(sysconfig.get_paths()[name])) for name in ("purelib", "platlib", "stdlib")})


def place_of(equation: Any, around: str = "") -> str:
    """`file:line (function)` of the innermost frame that the user wrote; empty where nothing tells it.

    Args:
      equation: of a jaxpr.
      around: where the call was written that it stands in: frames of what is jitted end at that.
    """
    traceback = getattr(getattr(equation, "source_info", None), "traceback", None)
    frames = list(getattr(traceback, "frames", ()))
    own = [frame for frame in frames if not _is_library(frame.file_name)]
    if not own and around:
        return around
    found = own or [frame for frame in frames if not _is_part_of(frame.file_name, _LIBRARIES)]
    if not found:
        return ""
    frame = found[0]
    return f"{frame.file_name}:{frame.line_num} ({frame.function_name})"


def place_of_error(error: BaseException) -> str:
    """`file:line (function)` of the innermost frame of a traceback that the user wrote; empty where there is none."""
    frames = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    own = [(code, line) for code, line in frames if not _is_library(code.co_filename)]
    return "" if not own else f"{own[-1][0].co_filename}:{own[-1][1]} ({own[-1][0].co_qualname})"


# Each frame of each equation asks, and a program has frames of few files.
@lru_cache(maxsize=1024)
def _is_library(file: str) -> bool:
    inside = file.startswith(_PACKAGES) or "/site-packages/" in file or file.startswith("<")
    return inside or _is_part_of(file, frozenset({"combinators", "tapestry_jax"}))


@lru_cache(maxsize=1024)
def _is_part_of(file: str, packages: frozenset[str]) -> bool:
    root = Path(__file__).parents[3]
    parts = Path(file).parts
    below = Path(file).is_relative_to(root) and len(parts) > len(root.parts) and parts[len(root.parts)] in packages
    inside = "site-packages" in parts and parts[parts.index("site-packages") + 1] in packages
    return below or inside
