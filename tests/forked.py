"""Python in processes of their own, which may be killed: forked from one that has imported the library.

Importing takes a second, forking none. In the server no device is looked at, so that JAX has no thread there.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LIMIT = 240
"""Seconds that a process may take."""


@dataclass(frozen=True)
class Ran:
    """What a process has told."""

    returncode: int
    stdout: str
    stderr: str


def run(code: str, *args: object, env: Mapping[str, str] | None = None) -> Ran:
    """Run `code` in another process, as `python -c` does.

    Args:
      code: a module.
      *args: what it finds in `sys.argv[1:]`.
      env: changes of its environment; what JAX reads when it is imported is that of the server.

    Returns:
      How it has ended: with its status, or less than zero: the signal that killed it.

    Raises:
      TimeoutError: it does not end.
    """
    with tempfile.TemporaryDirectory() as folder:
        told = [Path(folder) / name for name in ("stdout", "stderr")]
        words = ["-c", *map(str, args)]
        process = _server().Process(target=_run, args=(code, words, {**os.environ, **(env or {})}, Path.cwd(), told))
        process.start()
        process.join(_LIMIT)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"a process goes on after {_LIMIT} s:\n{code}")
        return Ran(process.exitcode, *(path.read_text() for path in told))


def start() -> None:
    """Have the process that others are forked from, unless it is there."""
    _server()
    multiprocessing.forkserver.ensure_running()


def _server() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tapestry_jax", "jax.numpy"])
    return context


def _run(code: str, words: list[str], environment: dict[str, str], folder: Path, told: list[Path]) -> None:
    for number, path in enumerate(told, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the server ignores it
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = words
    exec(compile(code, "-c", "exec"), {"__name__": "__main__"})
