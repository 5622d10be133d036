"""A blur around the circle: every cell is weighed with its two neighbours, the last one's is the first."""

from __future__ import annotations

from typing import Any

import tapestry_jax as tp


def weighed(block: Any) -> Any:
    """Weigh neighbours 1, 2, 1; the block brings one cell more on both sides."""
    return (block[:-2] + 2 * block[1:-1] + block[2:]) / 4


blur = tp.Map(weighed, "(angle+[side]-1) -> angle", boundary="periodic", sizes={"side": 3}, name="blur")
