"""The command line: `tapestry laws package.module:piece`. What a command needs is imported when it runs."""

from __future__ import annotations

import argparse
import errno
import importlib
import importlib.metadata
import re
import sys
from collections.abc import Sequence
from typing import Any

from combinators.errors import TapestryError, message
from tapestry_jax.outputs import RefusedError, give_up, open_outputs, tell

_COMMANDS = {
    "explain": "where a plan places every operation, what it computes and what it sends",
    "verify": "prove that a plan computes its program, from its schedule and from its blocks",
    "cost": "what a plan takes on a machine, in seconds, and when",
    "why": "why a dimension is not placed otherwise: the plan with one exception more, priced beside it",
    "diff": "what differs between two plans of one program",
    "search": "find the cheapest plan of a graph that fits into memory, and write it",
    "show": "write a plan as a page for a browser",
    "train": "train a model as a file in TOML says",
    "launch": "run a script as several processes that JAX joins, watched and started again",
    "fabric": "named tensors in a folder: list, show, load, export and copy them, apply programs to them",
    "aot": "ask the compilers of TPUs and GPUs what a plan comes to there",
    "laws": "check the laws of a piece, or list them",
}
"""Commands and what they do. Each is a file of its name in `tapestry_jax/commands/`: its `words(parser)` says what it
takes, `run(chosen, is_process=)` runs it and returns the exit status."""
_REMEDIES = (
    (r"overwrite=True", "--overwrite"),
    (r"cast=True", "--cast"),
    (r"tp\.open\(path, name\)", "--tensor NAME"),
    (
        r'(?:Call|Set|Write) jax\.config\.update\("jax_enable_x64", True\)(?: first)?',
        "Set JAX_ENABLE_X64=1 in the environment",
    ),
    (
        r'first thing in the program: jax\.config\.update\("jax_num_cpu_devices", (\d+)\)',
        r"in the environment: JAX_NUM_CPU_DEVICES=\1",
    ),
)
"""What remedies have one write in a program, and what says it at the command line."""
_NO_ANSWER = 2
INTERRUPTED = 130
"""The exit status of a command that was interrupted, as shells have it: 128 and the number of the signal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
      arguments: the words after `tapestry`; those of this process where None.

    Returns:
      The exit status: 0 where every law, or prediction, held or was not checked, 1 where one failed or none could be
      checked, where plans differ, or an exception is cheaper; 2 where the question cannot be read, asked, or answered
      to where the answer goes, 130 where it was interrupted.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    is_process = arguments is None
    if is_process:
        open_outputs()
    try:
        return _answered(words, is_process=is_process)
    except TapestryError as error:
        tell(_at_the_command_line(str(error)))
    except KeyboardInterrupt:
        tell("tapestry: interrupted")
        return INTERRUPTED
    except (RefusedError, BrokenPipeError) as error:
        give_up(refused=True)
        # Whoever read the output, as `head` does, wants no more of it.
        if error.errno != errno.EPIPE:
            remedy = "Look whether there is room where it goes, then ask again."
            tell(message("tapestry: the answer cannot be written.", str(error), remedy=remedy))
    except Exception as error:
        if not is_process:
            raise
        # Python would end with 1, which says that a proof has failed, or that plans differ.
        sys.excepthook(type(error), error, error.__traceback__)
    give_up(refused=False)
    return _NO_ANSWER


def _answered(words: Sequence[str], *, is_process: bool) -> int:
    try:
        chosen = parser(words).parse_args(words)
    except SystemExit:
        sys.stdout.flush()  # the page of `--help`, while it can still be told that nobody has got it
        raise
    status = int(_module(chosen.command).run(chosen, is_process=is_process))
    sys.stdout.flush()
    return status


def _at_the_command_line(told: str) -> str:
    *lines, remedy = told.split("\n")
    for written, word in _REMEDIES:
        remedy = re.sub(written, word, remedy)
    return "\n".join([*lines, remedy])


def parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """What reads the words of the command line.

    Args:
      words: the words: of the command among them its own are known, and of no other.
    """
    made = argparse.ArgumentParser(
        prog="tapestry",
        description="Tensor programs, planned; and the laws that carry them.",
        epilog="exit status: 0 all held, 1 a law or prediction failed, plans differ, or an exception is cheaper, "
        "2 the question cannot be read or answered, 130 interrupted",
    )
    made.add_argument("--version", action="version", version=f"tapestry-jax {_version()}")
    commands = made.add_subparsers(dest="command", required=True)
    named = next((word for word in words if not word.startswith("-")), "")
    for name, told in _COMMANDS.items():
        own = commands.add_parser(name, help=told, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name == named:
            _module(name).words(own)
    return made


def _version() -> str:
    try:
        return importlib.metadata.version("tapestry-jax")
    except importlib.metadata.PackageNotFoundError:  # a source tree on the path
        return "of a source tree"


def _module(name: str) -> Any:
    """The module of a command.

    Raises:
      TapestryError: when a package that it needs is not installed.
    """
    return importlib.import_module(f"tapestry_jax.commands.{name}")
