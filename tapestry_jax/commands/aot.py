"""What `tapestry aot package.module:plan --topology NAME` does."""

from __future__ import annotations

import argparse
import inspect
import sys
from pathlib import Path
from typing import Any

from combinators.errors import TapestryError, message
from tapestry_jax.aot.topology import topology
from tapestry_jax.commands.piece import imported_piece, made_piece
from tapestry_jax.plan import Plan
from tapestry_jax.planning.geometry.mesh_shape import MeshShape


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
    if chosen.hlo and len(chosen.topology) > 1:
        raise TapestryError(
            message(
                "tapestry aot: one file cannot hold the programs of several machines.",
                f"got --hlo {chosen.hlo} and {len(chosen.topology)} topologies",
                remedy="Ask for one topology at a time.",
            )
        )
    plan = _plan(chosen.plan)
    status = 0
    for name in chosen.topology:
        seen = plan.compile_only(topology(name, **dict(MeshShape.of(plan.mesh).axes)), grad=chosen.grad)
        sys.stdout.write(f"{seen}\n")
        sys.stdout.flush()
        status = max(status, int(bool(seen.unpredicted)))
        if chosen.hlo:
            _write(chosen.hlo, seen.hlo)
    return status


def _plan(text: str) -> Plan:
    found: Any = imported_piece(text, "tapestry aot", TapestryError)
    if inspect.isfunction(found) and not inspect.signature(found).parameters:
        found = made_piece(text, found, "tapestry aot", TapestryError)
    if isinstance(found, Plan):
        return found
    raise TapestryError(
        message(
            f"tapestry aot: {text} is no plan.",
            f"got {type(found).__name__}: {found!r:.80}",
            remedy="Name what tp.plan returned, or a function without parameters that returns it.",
        )
    )


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise TapestryError(
            message(f"tapestry aot: the program cannot be written to {path}", str(error), remedy="Name another file.")
        ) from error
