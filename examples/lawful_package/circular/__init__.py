"""Angles: their mean direction, and a blur around the circle."""

from __future__ import annotations

from circular.blur import blur as blur
from circular.direction import MEAN_DIRECTION as MEAN_DIRECTION
