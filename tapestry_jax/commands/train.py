"""What `tapestry train config.toml` does."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from typing import Any

from combinators.errors import TapestryError, message, spelt
from tapestry_jax.commands.config import TrainConfig, read_config
from tapestry_jax.commands.piece import made_piece
from tapestry_jax.nnx.training.trainer import Trainer

_ABOUT = """
Make a trainer as a file says, and train. The file names a function of yours, and its arguments:

  make = "training:make"           # package.module:function, which returns a tp.nnx.Trainer and its batches
  plot = "loss.png"                # draw the losses there at the end; may be left out

  [settings]                       # the arguments of that function, by name
  layers = 2
  mesh = { data = 2, model = 4 }

  [fit]                            # the arguments of trainer.fit: steps, every, save_every, progress
  steps = 300
  every = 10

Modules are looked for beside the file, then in the working directory, then where Python looks. Keys that are not known
or are missing, and values of another kind than the default of the argument, are told all at once.

Batches are what trainer.fit takes: tuples of arrays one after the other, or a function of the number of the step. What
was found is printed every `every` steps. Where the trainer has checkpoint=, --resume goes on from the newest one, with
the settings that the file says now.

Exit status 0 when it is trained, 2 where the file cannot be read or training stops."""


def words(parser: argparse.ArgumentParser) -> None:
    """The words of `tapestry train`."""
    parser.description = _ABOUT.strip()
    parser.add_argument("config", metavar="CONFIG", help="a file in TOML")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint of the trainer")
    parser.add_argument("--json", action="store_true", help="print what was found as lines of JSON, null for NaN")


def run(chosen: argparse.Namespace, *, is_process: bool) -> int:
    """Run `tapestry train`.

    Raises:
      TapestryError: when the file cannot be read, its function makes no trainer, or training stops.
    """
    del is_process
    config = read_config(chosen.config, Trainer.fit, "tapestry train")
    trainer, batches = _made(config)
    if chosen.resume:
        trainer.restore()

    def report(step: int, found: Mapping[str, float]) -> None:
        row = {"step": step, **found}
        # JSON has no word for NaN, which the mean over steps that were all skipped is.
        told = {name: value if math.isfinite(value) else None for name, value in row.items()}
        line = json.dumps(told) if chosen.json else ", ".join(f"{name} {value:.5g}" for name, value in row.items())
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    trainer.fit(batches, **config.fit, report=report)
    if config.plot is not None:
        trainer.plot(config.plot)
    return 0


def _made(config: TrainConfig) -> tuple[Trainer, Any]:
    """What the function of the file makes.

    Raises:
      TapestryError: when it raises, or returns something else.
    """
    made = made_piece(config.named, lambda: config.make(**config.settings), "tapestry train", TapestryError)
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Trainer):  # pyright: ignore[reportUnknownArgumentType]
        return made
    raise TapestryError(
        message(
            f"tapestry train: {config.named} makes no trainer.",
            "expected a tp.nnx.Trainer and its batches: return trainer, batches",
            f"got {type(made).__name__}: {spelt(made)}",
            remedy="Return both; batches as trainer.fit takes them.",
        )
    )
