"""What running equations in NumPy takes, and how much may be run: a loop without an end is left.

It is counted and not timed, so that what is left depends on no machine and no load.
"""

from __future__ import annotations

import math
from typing import Any, final

# About as many numbers are computed while Python looks at one equation.
_NUMBERS = 1024


def work(equation: Any) -> int:
    """Numbers that an equation gives, or multiplies for them: no fewer than there are."""
    given = sum(math.prod(out.aval.shape) for out in equation.outvars)
    name = equation.primitive.name
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return given * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        return given * math.prod(equation.invars[1].aval.shape)
    return given


def cost(equation: Any) -> int:
    """What an equation takes, in small equations."""
    return 1 + work(equation) // _NUMBERS


class EffortError(Exception):
    """A program took more than it may."""


@final
class Effort:
    """What is left to run, of all that is run for one purpose.

    Args:
      most: so many small equations may be run.
    """

    def __init__(self, most: int) -> None:
        self._left, self._kept = most, 0

    @property
    def left(self) -> int:
        """What all runs may still take, in small equations."""
        return max(self._left, 0) + self._kept

    def begin(self, most: int) -> None:
        """Begin with one of several runs, which may take so much of what all of them may, and no more."""
        left = self.left
        self._left = min(left, most)
        self._kept = left - self._left

    def spend(self, costs: int) -> None:
        """Run some of them.

        Raises:
          EffortError: when there are not so many left.
        """
        self._left -= costs
        if self._left < 0:
            raise EffortError("a program took more equations than it may")
