"""The command line of the demo."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DESCRIPTION = """\
Train a byte-level transformer of a million parameters on the source of Python's standard library, planned onto a mesh
of devices. Writes plan.json, loss.png and checkpoint/ to the output folder. Without --mesh and --devices the mesh is
data=2,model=4 on eight devices: real ones where there are enough, otherwise simulated on the CPU."""

DEFAULT_STEPS = 300
AXES = {"data": "cuts the batch", "model": "cuts heads, mlp and vocab"}


@dataclass(frozen=True)
class Settings:
    """What a checkpoint belongs to.

    Attributes:
      layers: blocks of the transformer.
      embed: size of its residual stream; `mlp` is four times that.
      heads: of each attention.
      length: bytes in a window.
      batch: windows in a step.
      learning_rate: the largest; it falls with the square root of the step.
      seed: of parameters, batches and samples.
    """

    layers: int
    embed: int
    heads: int
    length: int
    batch: int
    learning_rate: float
    seed: int


@dataclass(frozen=True)
class Options:
    """What the command line asks for.

    Attributes:
      settings: model and data.
      mesh: name and size of every mesh axis.
      steps: the step to stop at; None for the default.
      resume: whether to go on from the checkpoint.
      out: the output folder.
      temperature: of the samples.
      machine: whose prices a search goes by: a name, `measured` or `none`.
    """

    settings: Settings
    mesh: dict[str, int]
    steps: int | None
    resume: bool
    out: Path
    temperature: float
    machine: str


def read_options(arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line.

    Raises:
      SystemExit: for options that cannot be; the message says which.
    """
    parser = argparse.ArgumentParser(prog="quickstart.py", description=DESCRIPTION)
    add = parser.add_argument
    add(
        "--steps",
        type=_positive,
        help=f"the step to stop at; default {DEFAULT_STEPS}; with --resume the one that the interrupted run had, or "
        f"{DEFAULT_STEPS} more if it got there",
    )
    add(
        "--resume",
        action="store_true",
        help="go on from the checkpoint in the output folder, with the batches of an uninterrupted run; otherwise "
        "a new run replaces the checkpoint",
    )
    axes = ", ".join(f"{name} ({what})" for name, what in AXES.items())
    add(
        "--mesh",
        type=_mesh,
        metavar="AXES",
        help=f"mesh axes and their sizes, such as data=2,model=4 or data=8; {axes}",
    )
    add(
        "--devices",
        type=_positive,
        metavar="N",
        help="how many devices; without --mesh, model is the largest of 4, 2 and 1 that divides it, and data the rest; "
        "1 cuts nothing",
    )
    add("--out", type=Path, default=Path("runs/quickstart"), metavar="FOLDER", help="default %(default)s")
    add("--seed", type=_natural, default=0, help="of parameters, batches and samples; default %(default)s")
    add("--temperature", type=_above_zero, default=0.7, help="of the samples; default %(default)s")
    add(
        "--machine",
        default="measured",
        metavar="NAME",
        help="where tp.search looks for another plan, for comparison: these devices, timed first (measured), one with"
        " known figures such as h100:1x8 or v5e:2x4, or none; default %(default)s",
    )
    sizes = parser.add_argument_group("model and data")
    for name, default, what in (
        ("layers", 2, "blocks of the transformer"),
        ("embed", 192, "size of its residual stream"),
        ("heads", 4, "of each attention; they divide embed"),
        ("length", 128, "bytes in a window"),
        ("batch", 16, "windows in a step"),
    ):
        sizes.add_argument(f"--{name}", type=_positive, default=default, help=f"{what}; default %(default)s")
    sizes.add_argument("--learning-rate", type=_above_zero, default=3e-3, help="at its peak; default %(default)s")
    given = parser.parse_args(arguments)
    if given.embed % given.heads:
        parser.error(f"argument --heads: {given.heads} heads do not divide --embed {given.embed}")
    if not 8 <= given.length <= 1024:
        parser.error(f"argument --length: {given.length} bytes; a window has 8 to 1024")
    if given.mesh and given.devices and math.prod(given.mesh.values()) != given.devices:
        shown = ",".join(f"{name}={size}" for name, size in given.mesh.items())
        parser.error(
            f"argument --devices: the mesh {shown} has {math.prod(given.mesh.values())} devices, not {given.devices};"
            " give one of --mesh and --devices"
        )
    settings = Settings(
        given.layers, given.embed, given.heads, given.length, given.batch, given.learning_rate, given.seed
    )
    mesh = given.mesh or _spread(given.devices or 8)
    return Options(settings, mesh, given.steps, given.resume, given.out, given.temperature, given.machine)


def _spread(devices: int) -> dict[str, int]:
    model = next(size for size in (4, 2, 1) if devices % size == 0)
    return {"data": devices // model, "model": model}


def _mesh(text: str) -> dict[str, int]:
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = (piece.strip() for piece in part.partition("="))
        if name not in AXES or not equals:
            raise argparse.ArgumentTypeError(
                f"{part!r} in {text!r}; write axes as data=2,model=4 (only data and model)"
            )
        if name in axes:
            raise argparse.ArgumentTypeError(f"the axis {name} stands twice in {text!r}")
        axes[name] = _positive(size)
    return axes


def _positive(text: str) -> int:
    return _whole(text, 1)


def _natural(text: str) -> int:
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"{number} is below {least}")
    return number


def _above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not (number > 0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return number
