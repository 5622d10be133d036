"""Kills jobs at random moments, and sees that they end with the bits of those that nobody kills.

    python -m tests.tapestry_jax.streaming.kept.kills --kills 1000 --seed 0

One process imports everything once and forks the jobs, before JAX has looked at a device: so a job costs what it
computes. Each is killed several times by SIGKILL, and goes on in a new process, in chunks of another size where that is
exact. What was lost by a kill is what had been done since the last state: turns, and seconds.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tapestry_jax.streaming.kept import checkpoint
from tests.quickly import quickly
from tests.tapestry_jax.streaming.kept.killed_jobs import JOBS, arrays, ran, traced

_PAUSE = 0.002  # seconds by which every sync and every rename of a file takes longer, so that kills fall between them
_MOST = 0.25  # seconds after the first turn within which a kill falls
_EARLY = 0.1  # of the kills fall before the first turn


@dataclass
class Found:
    """What the kills have come to."""

    kills: int = 0
    ends: int = 0
    wrong: list[str] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def told(self) -> str:
        """All of it, as JSON."""
        lost = sorted(self.seconds) or [0.0]
        return json.dumps(
            {
                "kills": self.kills,
                "jobs": self.ends,
                "wrong": self.wrong,
                "turns lost, most": max(self.turns, default=0),
                "turns lost, mean": sum(self.turns) / max(1, len(self.turns)),
                "seconds lost, most": lost[-1],
                "seconds lost, median": lost[len(lost) // 2],
            }
        )


def forked(work: Callable[[], None]) -> int:
    """A process that does some work and ends with 0, or with 1 and a trace on its error output."""
    with warnings.catch_warnings():
        # No device was looked at here: JAX has no thread yet.
        warnings.simplefilter("ignore")
        process = os.fork()
    if process:
        return process
    status = 1
    try:
        os.setpgid(0, 0)
        work()
        status = 0
    except BaseException:  # noqa: BLE001, the process ends here
        sys.excepthook(*sys.exc_info())  # pyright: ignore[reportArgumentType]
    finally:
        os._exit(status)


def run(name: str, size: int, folder: Path, every: Any) -> None:
    """Run a job in this process, noting what it does, and store what it gives."""
    import jax

    jax.config.update("jax_compilation_cache_dir", str(folder.parent / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    handle = os.open(folder / "events", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(what: str) -> None:
        os.write(handle, f"{what} {time.monotonic()}\n".encode())

    _slow()
    due, keep = checkpoint._Keeper.is_due, checkpoint._Keeper.keep
    checkpoint._Keeper.is_due = lambda keeper, position: (note("turn"), due(keeper, position))[1]  # type: ignore[method-assign]
    checkpoint._Keeper.keep = lambda keeper, snapshot: (keep(keeper, snapshot), note("kept"))[0]  # type: ignore[method-assign]
    note("begun")
    result = arrays(ran(name, size, folder, every))
    np.savez(folder / "result.partial.npz", *result)
    (folder / "result.partial.npz").rename(folder / "result.npz")


def _slow() -> None:
    sync, rename = os.fsync, os.replace

    def slow(call: Callable[..., Any]) -> Callable[..., Any]:
        def slowly(*given: Any) -> Any:
            time.sleep(_PAUSE)
            found = call(*given)
            time.sleep(_PAUSE)
            return found

        return slowly

    os.fsync, os.replace = slow(sync), slow(rename)


def events(folder: Path) -> list[tuple[str, float]]:
    """What a job has noted."""
    path = folder / "events"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(line.split()[0], float(line.split()[1])) for line in lines if len(line.split()) == 2]


def wait(process: int, until: float) -> int | None:
    """The status of a process that ends before some moment."""
    while time.monotonic() < until:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def killed(process: int, folder: Path, chance: random.Random) -> bool:
    """Kill a process at a random moment; whether it had not ended before."""
    begun = len(events(folder))
    if chance.random() > _EARLY:
        limit = time.monotonic() + 60
        while not any(what == "turn" for what, _ in events(folder)[begun:]):
            if (status := wait(process, time.monotonic() + 0.005)) is not None:
                return _ended(status)
            assert time.monotonic() < limit, "no turn in a minute"
    if (status := wait(process, time.monotonic() + chance.random() * _MOST)) is not None:
        return _ended(status)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return True


def _ended(status: int) -> bool:
    assert status == 0, f"a job ended with {status}"
    return False


def trial(name: str, folder: Path, expected: list[np.ndarray], chance: random.Random, kills: int, found: Found) -> None:
    """One job, killed until it has ended, or often enough."""
    for number in range(kills + 1):
        size = chance.choice(JOBS[name].sizes)
        every = chance.choice([1, 2, 3, "0.02s"])
        before = len(events(folder))
        process = forked(lambda size=size, every=every: run(name, _size(name, folder, size), folder, every))
        if number == kills:
            _ended(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
            break
        if not killed(process, folder, chance):
            break
        found.kills += 1
        _note_loss(events(folder)[before:], time.monotonic(), found)
    found.ends += 1
    with np.load(folder / "result.npz") as stored:
        got = [stored[key] for key in stored.files]
    if [(a.dtype, a.shape, a.tobytes()) for a in got] != [(a.dtype, a.shape, a.tobytes()) for a in expected]:
        found.wrong.append(f"{name} in {folder}")


def _size(name: str, folder: Path, size: int) -> int:
    """A size of chunks that ends where the job stands."""
    from tapestry_jax.streaming.frozen import load

    state = load(folder / "run") if (folder / "run").exists() else None
    return size if state is None or state.position.cells % size == 0 else min(JOBS[name].sizes)


def _note_loss(noted: list[tuple[str, float]], now: float, found: Found) -> None:
    """What had been done since the last state when the kill came."""
    since = max((at for at, (what, _) in enumerate(noted) if what == "kept"), default=0)
    turns = [moment for what, moment in noted[since:] if what == "turn"]
    if noted:
        found.turns.append(len(turns))
        found.seconds.append(now - noted[since][1])


def _whole(top: Path, name: str) -> list[np.ndarray]:
    """What a job gives that nobody kills."""
    folder = top / f"{name}-whole"
    folder.mkdir()
    traced(name)
    process = forked(lambda: run(name, JOBS[name].sizes[-1], folder, 10**6))
    _ended(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    with np.load(folder / "result.npz") as stored:
        return [stored[key] for key in stored.files]


def main(words: list[str]) -> int:
    """Kill as often as is asked for; 0 where every job was right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--each", type=int, default=4, help="kills of one job")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no job after so long")
    asked = parser.parse_args(words)
    quickly()
    chance, found, begun = random.Random(asked.seed), Found(), time.monotonic()
    with tempfile.TemporaryDirectory() as top:
        expected = functools.cache(functools.partial(_whole, Path(top)))
        while found.kills < asked.kills and time.monotonic() - begun < asked.seconds:
            name = chance.choice(list(JOBS))
            folder = Path(top) / f"{found.ends}"
            folder.mkdir()
            trial(name, folder, expected(name), chance, min(asked.each, asked.kills - found.kills), found)
            if not found.wrong:
                shutil.rmtree(folder)
    sys.stdout.write(f"{found.told()}\n")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
