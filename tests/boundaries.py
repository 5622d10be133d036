"""What NumPy calls the boundaries of windows: tests take modes from here, so that a new one is drawn by all of them."""

from __future__ import annotations

from typing import Any

PADS: dict[str, Any] = {"zero": "constant", "periodic": "wrap", "reflect": "reflect", "edge": "edge"}
