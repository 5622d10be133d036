"""The command line: `tapestry laws package.module:piece`. What a command needs is imported when it runs."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import sys
from collections.abc import Sequence
from typing import Any

from combinators.errors import TapestryError, message

_MODULES = {"laws": "laws.cli", "aot": "tapestry_jax.commands.aot"}
INTERRUPTED = 130
"""The exit status of a command that was interrupted, as shells have it: 128 and the number of the signal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
      arguments: the words after `tapestry`; those of this process where None.

    Returns:
      The exit status: 0 where every law, or prediction, held or was not checked, 1 where one failed or none could be
      checked, 2 where
      the question cannot be read or asked, 130 where it was interrupted.
    """
    chosen = parser().parse_args(arguments)
    try:
        return int(_command(chosen.command).run(chosen, is_process=arguments is None))
    except TapestryError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("tapestry: interrupted\n")
        return INTERRUPTED


def parser() -> argparse.ArgumentParser:
    """The words that the command line takes."""
    made = argparse.ArgumentParser(
        prog="tapestry",
        description="Tensor programs, planned; and the laws that carry them.",
        epilog="exit status: 0 all held, 1 a law or prediction failed, 2 the question cannot be read, 130 interrupted",
    )
    made.add_argument("--version", action="version", version=f"tapestry-jax {_version()}")
    commands = made.add_subparsers(dest="command", required=True)
    _add_laws(commands)
    _add_aot(commands)
    return made


def _add_laws(commands: Any) -> None:
    laws = commands.add_parser(
        "laws", help="check the laws of a piece, or list them", description="Needs `pip install tapestry-jax[laws]`."
    )
    laws.add_argument(
        "pieces",
        nargs="*",
        metavar="package.module:piece",
        help="a monoid, aggregator, arrow, graph or plan; a function without parameters that makes one; or a mapping "
        "of such by name",
    )
    laws.add_argument("--list", action="store_true", help="print every law with its formula and source")
    laws.add_argument("--markdown", action="store_true", help="print the page of the documentation")
    laws.add_argument("--mutants", action="store_true", help="plant mistakes, and print which laws catch them")
    laws.add_argument("--replay", metavar="TOKEN", help="run one counterexample again, from the message of a failure")
    laws.add_argument(
        "--law",
        action="append",
        metavar="NAME",
        help="a law or family; may be repeated. Pieces that do not have it are not checked",
    )
    laws.add_argument("--examples", type=int, default=50, help="arguments drawn for every law (default 50)")
    laws.add_argument("--seed", type=int, default=0, help="of the draws (default 0)")
    laws.add_argument("--jobs", type=int, default=1, help="processes for the pieces of a mapping (default 1)")


def _add_aot(commands: Any) -> None:
    aot = commands.add_parser(
        "aot",
        help="ask the compilers of TPUs and GPUs what a plan comes to there",
        description="Needs no TPU and no GPU, but `pip install tapestry-jax[aot]`.",
    )
    aot.add_argument(
        "plan", metavar="package.module:plan", help="a plan, or a function without parameters that makes one"
    )
    aot.add_argument(
        "--topology",
        action="append",
        required=True,
        metavar="NAME",
        help="a machine and its shape, such as v5e:2x4; may be repeated. The axes are those of the plan's mesh",
    )
    aot.add_argument("--grad", action="store_true", help="values and gradients, not values alone")
    aot.add_argument("--hlo", metavar="FILE", help="write the scheduled program there; with one topology")


def _version() -> str:
    try:
        return importlib.metadata.version("tapestry-jax")
    except importlib.metadata.PackageNotFoundError:  # a source tree on the path
        return "of a source tree"


def _command(name: str) -> Any:
    """The module that runs a command.

    Raises:
      TapestryError: when a package that it needs is not installed.
    """
    try:
        return importlib.import_module(_MODULES[name])
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("hypothesis", "pytest"):
            raise
        raise TapestryError(
            message(
                f"tapestry {name} needs the package `{error.name}`, which is not installed.",
                remedy="Install it: pip install 'tapestry-jax[laws]'.",
            )
        ) from error
