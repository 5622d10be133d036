"""Angles: their resultant length, and a blur around the circle."""

from __future__ import annotations

from circular.blur import blur as blur
from circular.resultant import RESULTANT_LENGTH as RESULTANT_LENGTH
