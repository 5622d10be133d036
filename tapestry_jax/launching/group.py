"""The ranks of one attempt: one process group, so that they end together with all that they have started."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

from combinators.errors import first_line, message, spelt
from tapestry_jax.launching.environment import environment_of, free_port
from tapestry_jax.launching.launch import Launch, LaunchError
from tapestry_jax.launching.output import Lines

_GUARDIAN = Path(__file__).with_name("guardian.py")
_TURN = 0.05  # seconds that the loop waits for output at most


class Rank:
    """One process of the group.

    Args:
      number: its rank.
      process: it.
      heartbeat: the file of its heartbeat.
    """

    def __init__(self, number: int, process: subprocess.Popen[bytes], heartbeat: Path) -> None:
        self.number, self.process = number, process
        self._heartbeat, self._seen, self._lived = heartbeat, heartbeat.stat().st_mtime_ns, time.monotonic()

    def lives(self) -> None:
        """Note a sign of life."""
        self._lived = time.monotonic()

    def silent(self) -> float:
        """For how many seconds it has given no sign of life."""
        with contextlib.suppress(OSError):
            if (changed := self._heartbeat.stat().st_mtime_ns) != self._seen:
                self._seen = changed
                self.lives()
        return time.monotonic() - self._lived


class Group:
    """The ranks of an attempt, running. Use it with `with`: when it is left, none of them is there any more.

    Args:
      launch: what was asked for.
      attempt: how often the group was started before.
      folder: for the files of heartbeats; empty.

    Raises:
      LaunchError: when a process cannot be started.
    """

    def __init__(self, launch: Launch, attempt: int, folder: Path) -> None:
        self.ranks: list[Rank] = []
        self._selector = selectors.DefaultSelector()
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARDIAN)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        try:
            assert self._guardian.stdout is not None
            self._guardian.stdout.readline()  # from here on it ignores what ends the others
            port = free_port()
            for number in range(launch.processes or 1):
                self._start(launch, number, port, attempt, folder)
        except OSError as error:
            self.end()
            told = first_line(error)
            headline = f"tapestry launch: {spelt(launch.words[0])} cannot be started."
            raise LaunchError(message(headline, told, remedy="Name a script or a program.")) from error
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def turn(self) -> None:
        """Pass on output for a moment."""
        for key, _ in self._selector.select(_TURN):
            lines, rank = key.data
            if lines.pass_on() is None:
                self._selector.unregister(key.fileobj)
                lines.source.close()
            else:
                rank.lives()

    def running(self) -> list[Rank]:
        """The ranks that have not ended."""
        return [rank for rank in self.ranks if rank.process.poll() is None]

    def failed(self) -> list[Rank]:
        """The ranks that have ended otherwise than well, the lowest number first."""
        return [rank for rank in self.ranks if rank.process.poll()]

    def signal(self, number: int) -> None:
        """Send a signal to all that run, and to what they have started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._guardian.pid, number)

    def wait(self, seconds: float) -> bool:
        """Whether all ranks end within some seconds; output is passed on meanwhile."""
        until = time.monotonic() + seconds
        while self.running():
            if time.monotonic() > until:
                return False
            self.turn()
        return True

    def end(self) -> None:
        """End all that is left of the group, and pass on what it has written."""
        self.signal(signal.SIGKILL)
        for rank in self.ranks:
            rank.process.kill()  # it may have left the group
        for process in (self._guardian, *(rank.process for rank in self.ranks)):
            process.wait()
        for key in list(self._selector.get_map().values()):
            lines, _ = key.data
            while lines.pass_on():
                pass
            lines.flush()
            lines.source.close()
        self._selector.close()
        for pipe in (self._guardian.stdin, self._guardian.stdout):
            if pipe is not None:
                pipe.close()

    def _start(self, launch: Launch, number: int, port: int, attempt: int, folder: Path) -> None:
        heartbeat = folder / f"{attempt}-{number}"
        heartbeat.touch()
        process = subprocess.Popen(
            launch.words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment_of(launch, number, port, attempt, str(heartbeat)),
            process_group=self._guardian.pid,
        )
        rank = Rank(number, process, heartbeat)
        self.ranks.append(rank)
        for source, sink in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            assert source is not None
            lines = Lines(source, sink, f"[{number}] " if launch.processes is not None else "")
            self._selector.register(source, selectors.EVENT_READ, (lines, rank))
