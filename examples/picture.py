"""The loss curve of the demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np


def draw_losses(
    path: Path,
    losses: Sequence[float],
    held_out: Sequence[tuple[int, float]],
    final: float,
    tables: Mapping[str, float],
) -> None:
    """Write training and held-out loss over the steps, and the held-out loss of counting tables, as a PNG.

    Args:
      path: of the file; it appears whole.
      losses: of every step from the first on, nats per byte.
      held_out: steps and losses on a few held-out windows.
      final: loss after the last step on many of them, the windows that the tables are asked for.
      tables: name and loss of each table.
    """
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    steps = np.arange(1, len(losses) + 1)
    axes.plot(steps, losses, color="0.8", linewidth=1, label="training, each step")
    width = max(1, len(losses) // 25)
    axes.plot(
        steps[width - 1 :], np.convolve(losses, np.full(width, 1 / width), "valid"), label=f"training, mean of {width}"
    )
    axes.plot(*zip(*held_out, strict=True), "o-", markersize=4, label="held out, few windows")
    axes.plot(len(losses), final, "*", color="C3", markersize=12, label=f"held out, many windows: {final:.2f}")
    for style, (name, loss) in zip(("--", ":"), tables.items(), strict=False):
        axes.axhline(loss, color="black", linewidth=1, linestyle=style, label=f"{name} table, held out: {loss:.2f}")
    axes.set(xlabel="step", ylabel="nats per byte", title="A byte-level transformer on Python's standard library")
    axes.grid(alpha=0.3)
    axes.legend()
    partial = path.with_suffix(".partial.png")
    figure.savefig(partial, dpi=150)
    plt.close(figure)
    partial.replace(path)
