"""How much rounding a program's own steps make: the same steps in float64, each result disturbed by one rounding.

The conditioned bound knows the arguments and the result. A program of many steps, and above all a gradient, can lose
digits in between that no disturbance of its arguments explains: `1 - tanh(x)**2` where `tanh(x)` is nearly 1, or the
differences of a softmax. Monte Carlo arithmetic finds these, step by step, for every entry of the result. Each step
rounds to the dtype that it has in the program: one in bfloat16 by more than the float32 arguments that it is given.

A compiler computes what is used twice as often as it likes, fused with what uses it, and rounds differently each time:
`x` minus its mean, and the sum of these, may know two means. So every other use of a value sees it rounded otherwise.

Source: Parker 1997, Monte Carlo Arithmetic; Vignes 1993, the CESTAC method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from laws.verdicts.conditioning import FAILURES, of_shapes, vectors
from laws.verdicts.rounded import Rounding

SAMPLES = 16


@final
class Noise:
    """Roundings of one program on some arguments, drawn as they are asked for.

    Args:
      function: arguments -> pytree of arrays.
      arguments: tuple of pytrees of arrays.
      cache: keeps traced functions.
      key: of this function in the cache.
      moved: by how much arguments are moved, relative; 0 where both sides have these very arguments. Then no rounding
        moved them, nor any number on the way that the dtype of its step holds, and ties and other kinks that lie there
        are none of rounding's making: a gradient that is wrong at a kink would otherwise be excused by what it is
        beside it.
      steps: whether steps round; else the arguments alone do, and the result may be what other arguments would give
        exactly. Where the first derivative is 0, as that of a variance of equal numbers, this finds the second.
      pieces: in how many pieces a side may make its folds; in less than float32 the partial sums are rounded, too.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Any,
        cache: dict[Any, Any],
        key: str,
        *,
        moved: float,
        steps: bool = True,
        pieces: int = 1,
    ) -> None:
        self._function, self._arguments, self._cache, self._key = function, arguments, cache, key
        self._moved, self._steps, self._pieces = moved, steps, pieces
        self._drawn, self._exact = 0, [np.zeros(0)]
        self._found, self._along = np.zeros(0), np.zeros(0)

    def spread(self, samples: int = SAMPLES) -> np.ndarray[Any, Any] | None:
        """Find how far one rounding of every argument, and at every step, moves each entry of the result.

        Returns:
          For each entry of the flat inexact result the largest deviation in that many samples or more; None where the
          function cannot be run in float64.
        """
        return self._found if self._draw(samples) else None

    def along(self, samples: int = SAMPLES) -> list[tuple[np.ndarray[Any, Any], float]] | None:
        """Find how far it moves each leaf along itself.

        Returns:
          Of each inexact leaf its entries in float64, and the largest product of a deviation with them; None as above.
        """
        return list(zip(self._exact, self._along.tolist(), strict=True)) if self._draw(samples) else None

    def _draw(self, samples: int) -> bool:
        """Draw until there are so many."""
        try:
            program = of_shapes(self._function, self._arguments, self._cache, self._key)
            if not self._drawn:
                self._exact = vectors(program(self._arguments))
                self._found = np.full(sum(map(len, self._exact)), np.nan)
                self._along = np.full(len(self._exact), np.nan)
            while self._drawn < samples:
                self._drawn += 1
                rounding = Rounding(
                    self._drawn, moved=self._moved, steps=self._steps, held=not self._moved, pieces=self._pieces
                )
                with np.errstate(all="ignore"):
                    moved = [
                        a - b for a, b in zip(vectors(program(self._arguments, rounding)), self._exact, strict=True)
                    ]
                    along = [abs(a @ b) for a, b in zip(moved, self._exact, strict=True)]
                # A rounding that leads out of range tells nothing of those that do not.
                self._found = np.fmax(self._found, np.abs(np.concatenate([*moved, np.zeros(0)])))
                self._along = np.fmax(self._along, along)
        except FAILURES:
            return False
        return True
