"""The curve of a loss."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from combinators.arguments import read_mapping, read_number
from combinators.errors import first_line, message, spelt
from combinators.stored.whole import write_whole
from tapestry_jax.nnx.training.errors import TrainingError
from tapestry_jax.nnx.training.extras import required


def plot(history: Sequence[Mapping[str, float]], path: Any, levels: Any) -> None:
    """Draw all metrics that are losses: `loss`, and what ends in it.

    Args:
      history: rows with a `step` each.
      path: of the file; it appears whole.
      levels: lines to compare with, by name.

    Raises:
      TrainingError: without matplotlib, without rows, or where the file cannot be written.
    """
    levels = read_mapping(levels, "levels= of trainer.plot", TrainingError)
    levels = {name: read_number(level, f"the level {spelt(name, 40)}", TrainingError) for name, level in levels.items()}
    if not isinstance(path, str | PathLike) or not Path(path).name:
        got = f"got {type(path).__name__}: {spelt(path)}"
        raise TrainingError(message("trainer.plot was given no path", got, remedy='Write trainer.plot("loss.png").'))
    names = list(dict.fromkeys(name for row in history for name in row if name.endswith("loss")))
    if not names:
        raise TrainingError(message("there is nothing to draw yet", remedy="Train first: trainer.fit(batches)."))
    # A figure of its own, not the one that pyplot keeps: no window is opened, and nothing of the user's is changed.
    figure: Any = required("matplotlib.figure", "matplotlib", "pictures").Figure(figsize=(8, 4.5), layout="constrained")
    axes: Any = figure.subplots()
    for name in names:
        rows = [(row["step"], row[name]) for row in history if name in row]
        axes.plot(*zip(*rows, strict=True), ".-" if len(rows) < 50 else "-", label=name.replace("_", " "))
    for style, (name, level) in zip(("--", ":", "-.") * len(levels), levels.items(), strict=False):
        axes.axhline(level, color="black", linewidth=1, linestyle=style, label=f"{name}: {level:.4g}")
    axes.set(xlabel="step", ylabel="loss")
    axes.grid(alpha=0.3)
    axes.legend()
    target, picture = Path(path), io.BytesIO()
    try:
        figure.savefig(picture, format=target.suffix.removeprefix(".") or "no suffix", dpi=150)
        write_whole(target, picture.getvalue())
    except (OSError, ValueError) as error:
        remedy = "Name a file that ends in .png, .svg or .pdf, in a folder that is there."
        raise TrainingError(
            message(f"no picture can be written to {target}", first_line(error), remedy=remedy)
        ) from error
