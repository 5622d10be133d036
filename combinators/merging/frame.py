"""Frames: how the states of a monoid become plain sums once a reference point is known.

Log-sum-exp states do not add, but once a common maximum `F` is known, `s * exp(m - F)` does. Moments do not add, but
once a common reference mean `F` is known, `n`, `n * (mean - F)` and `m2 + n * (mean - F)**2` do. A frame writes that
down: one native collective finds `F`, a second adds, and `restore` leads back to a state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, final

import jax
import jax.numpy as jnp

from combinators.errors import GraphError, message
from combinators.frozen import dataclass
from combinators.kernels.immutable import Immutable
from combinators.merging.parts import SideBySide

Merge = Literal["max", "sum"]


@final
@dataclass(frozen=True)
class Frame(Immutable):
    """A reference point under which the states of a monoid are plain addends.

    All parts are written for one cell, as the monoid is, and the library maps them. With `F = at(total)`, `total` the
    merged summaries of all states,

        restore(F, sum_i express(s_i, F)) ~ s_1 + ... + s_n

    holds for **every** admissible `F`, not only for the one that `at` returns. The fold therefore does not depend on
    `F`, its derivative through `F` is zero, and `F` may be under `stop_gradient`. All parts are finite, with finite
    gradients, at the identity.

    Args:
      summary: state -> pytree of arrays that merge elementwise.
      merge: `"max"` or `"sum"`: how summaries merge, on every leaf.
      at: merged summary -> `F`, a pytree of arrays; finite also where the merged summary is the identity's.
      express: (state, `F`) -> pytree of addends.
      restore: (`F`, sum of addends) -> state, of the shapes and dtypes of the states that were expressed.

    Raises:
      GraphError: when `merge` is not one of the two, or a part cannot be called.

    Laws: frame_fold, frame_independence.
    Source: original; the maximum of Milakov, Gimelshein (2018) and the shift of Chan, Golub, LeVeque (1983) are cases.
    """

    summary: Callable[[Any], Any]
    merge: Merge
    at: Callable[[Any], Any]
    express: Callable[[Any, Any], Any]
    restore: Callable[[Any, Any], Any]

    def __post_init__(self) -> None:
        if not isinstance(self.merge, str) or self.merge not in ("max", "sum"):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise GraphError(
                message(
                    "Frame: `merge` names no native collective.",
                    "expected  'max' or 'sum'",
                    f"got       {self.merge!r}",
                    remedy="Use 'max' or 'sum', or leave the monoid without a frame.",
                )
            )
        parts = ("summary", "at", "express", "restore")
        bad = [part for part in parts if not callable(getattr(self, part))]
        if bad:
            raise GraphError(
                message(
                    "Frame: every part but `merge` is a function.",
                    *(f"{part} is {getattr(self, part)!r}" for part in bad),
                    remedy="Pass functions of one cell.",
                )
            )

    def merge_summaries(self, left: Any, right: Any) -> Any:
        """Merge two summaries elementwise.

        Args:
          left: a summary.
          right: a summary of the same tree and shapes.

        Returns:
          Their maximum or their sum, leaf by leaf.
        """
        return jax.tree.map(jnp.maximum if self.merge == "max" else jnp.add, left, right)

    def fold(self, states: Sequence[Any], reference: Any = None) -> Any:
        """Fold states through the frame: summarise, merge, express, add, restore.

        Args:
          states: one state or more.
          reference: an admissible `F`; `at(merged summary)` where it is None.

        Returns:
          The state that the monoid's own fold would give, up to rounding and the carrier's equality.

        Raises:
          GraphError: when there is no state to fold.
        """
        if not states:
            raise GraphError(
                message("Frame.fold: there is no state.", remedy="Use `Monoid.identity_for` for an empty fold.")
            )
        if reference is None:
            total = self.summary(states[0])
            for state in states[1:]:
                total = self.merge_summaries(total, self.summary(state))
            reference = self.at(total)
        addends = self.express(states[0], reference)
        for state in states[1:]:
            addends = jax.tree.map(jnp.add, addends, self.express(state, reference))
        return self.restore(reference, addends)


def frames_side_by_side(frames: Sequence[Frame | None], keys: tuple[str, ...] | None) -> Frame | None:
    """The frame of states that lie side by side, where all parts have one of the same merge; else None."""
    present = [frame for frame in frames if frame is not None]
    if len(present) < len(frames) or len({frame.merge for frame in present}) != 1:
        return None
    return Frame(
        SideBySide(tuple(frame.summary for frame in present), keys),
        present[0].merge,
        SideBySide(tuple(frame.at for frame in present), keys),
        SideBySide(tuple(frame.express for frame in present), keys),
        SideBySide(tuple(frame.restore for frame in present), keys),
    )
