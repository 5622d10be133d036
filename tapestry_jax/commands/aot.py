"""What `tapestry aot package.module:plan --topology NAME` does."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from combinators.errors import TapestryError, message
from combinators.stored.whole import told, write_whole
from tapestry_jax.aot.topology import topology
from tapestry_jax.commands.planned import piece_plan
from tapestry_jax.planning.geometry.mesh_shape import MeshShape


def words(parser: argparse.ArgumentParser) -> None:
    """The words of `tapestry aot`."""
    parser.description = (
        "What the compilers for TPU and CUDA make of a plan: memory, collectives, cycles, beside what was predicted. "
        "Needs no TPU and no GPU, but `pip install tapestry-jax[aot]`."
    )
    parser.add_argument(
        "plan", metavar="package.module:plan", help="a plan, or a function without parameters that makes one"
    )
    parser.add_argument(
        "--topology",
        action="append",
        required=True,
        metavar="NAME",
        help="a machine and its shape, such as v5e:2x4; may be repeated. The axes are those of the plan's mesh",
    )
    parser.add_argument("--grad", action="store_true", help="values and gradients, not values alone")
    parser.add_argument("--hlo", metavar="FILE", help="write the scheduled program there; with one topology")


def run(chosen: argparse.Namespace, *, is_process: bool) -> int:
    """Run `tapestry aot`.

    Args:
      chosen: the words, as `tapestry_jax.command.parser` reads them.
      is_process: whether this process does nothing else.

    Returns:
      The exit status: 0 where no more is sent than was predicted, 1 where more is.

    Raises:
      TapestryError: when the question cannot be read, or a compiler is missing or refuses.
    """
    del is_process
    if chosen.hlo is not None and len(chosen.topology) > 1:
        raise TapestryError(
            message(
                "tapestry aot: one file cannot hold the programs of several machines.",
                f"got --hlo {chosen.hlo} and {len(chosen.topology)} topologies",
                remedy="Ask for one topology at a time.",
            )
        )
    if chosen.hlo is not None:
        _check_place(chosen.hlo)
    plan = piece_plan(chosen.plan, "tapestry aot")
    status = 0
    for name in chosen.topology:
        seen = plan.compile_only(topology(name, **dict(MeshShape.of(plan.mesh).axes)), grad=chosen.grad)
        sys.stdout.write(f"{seen}\n")
        sys.stdout.flush()
        status = max(status, int(bool(seen.unpredicted)))
        if chosen.hlo is not None:
            _write(chosen.hlo, seen.hlo)
    return status


def _check_place(path: str) -> None:
    """Before anything is compiled: there is a folder for the file, and none in its place."""
    why = "expected the name of a file in a folder that is there"
    try:
        if path and not Path(path).is_dir() and Path(path).absolute().parent.is_dir():
            return
    except (OSError, ValueError) as error:
        why = str(error)
    headline = "tapestry aot: the program cannot be written there"
    raise TapestryError(message(headline, why, f"got --hlo {path!r:.300}", remedy="Name another file."))


def _write(path: str, text: str) -> None:
    try:
        write_whole(path, text)
    except (OSError, ValueError) as error:
        headline = f"tapestry aot: the program cannot be written to {path!r:.200}"
        raise TapestryError(message(headline, told(error), remedy="Name another file.")) from error
