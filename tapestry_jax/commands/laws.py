"""What `tapestry laws package.module:piece` takes; what it does is in `laws/cli.py`, which needs hypothesis."""

from __future__ import annotations

import argparse
import importlib

from combinators.errors import TapestryError, message


def words(parser: argparse.ArgumentParser) -> None:
    """The words of `tapestry laws`."""
    parser.description = (
        "Check the laws of a piece on drawn arguments, and print the smallest that break one; or list the laws. "
        "Needs `pip install tapestry-jax[laws]`."
    )
    parser.add_argument(
        "pieces",
        nargs="*",
        metavar="package.module:piece",
        help="a monoid, aggregator, arrow, graph or plan; a function without parameters that makes one; or a mapping "
        "of such by name",
    )
    parser.add_argument("--list", action="store_true", help="print every law with its formula and source")
    parser.add_argument("--markdown", action="store_true", help="print the page of the documentation")
    parser.add_argument("--mutants", action="store_true", help="plant mistakes, and print which laws catch them")
    parser.add_argument("--replay", metavar="TOKEN", help="run one counterexample again, from the message of a failure")
    parser.add_argument(
        "--law",
        action="append",
        metavar="NAME",
        help="a law or family; may be repeated. Pieces that do not have it are not checked",
    )
    parser.add_argument("--examples", type=int, default=50, help="arguments drawn for every law (default 50)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (default 0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes for the pieces of a mapping (default 1)")


def run(chosen: argparse.Namespace, *, is_process: bool) -> int:
    """Run `tapestry laws`.

    Raises:
      TapestryError: when a package that it needs is not installed, or the question cannot be read.
    """
    try:
        found = importlib.import_module("laws.cli")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("hypothesis", "pytest"):
            raise
        raise TapestryError(
            message(
                f"tapestry laws needs the package `{error.name}`, which is not installed.",
                remedy="Install it: pip install 'tapestry-jax[laws]'.",
            )
        ) from error
    return int(found.run(chosen, is_process=is_process))
