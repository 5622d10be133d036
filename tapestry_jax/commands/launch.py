"""What `tapestry launch --processes N script.py` does."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from combinators.errors import message, spelt
from tapestry_jax.launching.environment import check_alone
from tapestry_jax.launching.launch import Launch, LaunchError
from tapestry_jax.launching.supervise import supervise

_ABOUT = """
Run a script as several processes of this machine, which jax.distributed.initialize() joins:

  tapestry launch --processes 2 train.py --steps 300

Every rank is `python train.py --steps 300`; with -m, a module. Lines are printed with the number of the rank. When a
rank dies, the others are ended, and all are started again, from the last checkpoint of the script, --restarts times.

With --stuck SECONDS a rank that gives no sign of life for so long is asked where it stands, which it prints, and counts
as dead. Signs of life are a line of output, a step of tp.nnx.Trainer, a turn of tp.stream with
checkpoint=, and tapestry_jax.launching.heartbeat.beat(). Compiling gives none.

Ctrl-C and SIGTERM are handed on to all ranks; those that do not end within --grace seconds are killed, and all of them
at a second Ctrl-C. No rank outlives this command, nor what a rank has started, even when this command is killed.

Where Slurm, Open MPI or Kubernetes start the processes, leave --processes out: `srun tapestry launch train.py` watches
each, and JAX finds the others as it always does.

exit status: 0 all ranks ended well, 2 nothing could be started, 124 a rank was stuck, 130 interrupted, 143 after
SIGTERM; else that of the rank that failed first, 128 and the number of the signal where one ended it"""


def words(parser: argparse.ArgumentParser) -> None:
    """The words of `tapestry launch`."""
    parser.description = _ABOUT.strip()
    parser.add_argument("--processes", type=_count, metavar="N", help="how many processes; one that JAX joins as ever")
    parser.add_argument("--devices", type=_count, metavar="N", help="CPU devices of each process")
    parser.add_argument("--restarts", type=_restarts, default=3, metavar="N", help="how often all start again (3)")
    parser.add_argument("--stuck", type=_seconds, metavar="SECONDS", help="without a sign of life: a rank is stuck")
    parser.add_argument("--grace", type=_seconds, default=10.0, metavar="SECONDS", help="from a signal to SIGKILL (10)")
    parser.add_argument("-m", action="store_true", dest="is_module", help="SCRIPT is the name of a module")
    parser.add_argument("script", metavar="SCRIPT", help="a file in Python")
    parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER, help="its arguments")


def run(chosen: argparse.Namespace, *, is_process: bool) -> int:
    """Run `tapestry launch`.

    Raises:
      LaunchError: when there is no such script, a cluster has started several of this command, or nothing starts.
    """
    del is_process
    if chosen.processes is not None:
        check_alone(os.environ, chosen.processes)
    if not chosen.is_module and not Path(chosen.script).is_file():
        raise LaunchError(
            message(
                f"tapestry launch: there is no file {spelt(chosen.script, 200)}.",
                remedy="Name a script, or a module after -m; options of launch come before it.",
            )
        )
    script = ("-m", chosen.script) if chosen.is_module else (chosen.script,)
    return supervise(
        Launch(
            (sys.executable, *script, *chosen.arguments),
            chosen.processes,
            chosen.devices,
            chosen.restarts,
            chosen.stuck,
            chosen.grace,
            dict(os.environ),
        )
    )


def _count(text: str) -> int:
    return _whole(text, 1, 4096)


def _restarts(text: str) -> int:
    return _whole(text, 0, 10**9)


def _whole(text: str, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"{spelt(text, 40)} is no whole number from {least} to {most}")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < 10**9:
        raise argparse.ArgumentTypeError(f"{spelt(text, 40)} is no number of seconds above 0")
    return number
