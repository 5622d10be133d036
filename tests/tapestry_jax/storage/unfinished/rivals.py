"""Processes that write one tensor at the same time, each a number of its own, killed and stopped at random moments.

Each does what a job with `checkpoint=` does: it remembers by a token what it has begun, and goes on with nothing else.
In the end the place holds the number of one that has ended well, in every cell; the others were refused in words. One
that was killed may have written its own before, and be refused when it comes back, for another has begun since.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tapestry_jax as tp
from tapestry_jax.fabric import fabric as _fabric  # imported before the forks
from tapestry_jax.storage.unfinished.partial import filled_place, remove
from tapestry_jax.streaming.jobs.outputs import whole
from tests.children import child

SHAPE, ROWS = (6, 2), 2
_MOST = 4
"""Signals of a round."""


def write(folder: Path, kind: str, number: int, overwrite: bool, draw: random.Random) -> None:
    """Write a number into every cell, or go on with that."""
    if (folder / f"done-{number}").exists():
        return
    if kind != "fabric":
        _write(tp.create(folder / f"y.{kind}", overwrite=overwrite), folder, number, draw)
        return
    with _fabric.Fabric(folder / "f") as fabric:
        _write(fabric.create("y", overwrite=overwrite), folder, number, draw)


def _write(creation: Any, folder: Path, number: int, draw: random.Random) -> None:
    sink = _begun(creation, folder / f"token-{number}")
    try:
        for row in range(0, SHAPE[0], ROWS):
            time.sleep(draw.random() * 0.003)
            sink.write(((row, row + ROWS), (0, SHAPE[1])), np.full((ROWS, SHAPE[1]), number, np.int32)).result()
            if draw.random() < 0.5:
                sink.flush()
        made = sink.finish()
    except BaseException:
        sink.close()
        raise
    time.sleep(draw.random() * 0.003)
    made.close()
    (folder / f"done-{number}").touch()
    if hasattr(sink, "draft"):
        remove(filled_place(sink.draft.path))


def _begun(creation: Any, token: Path) -> Any:
    is_again = token.exists()
    chunks = (ROWS, SHAPE[1]) if creation.has_chunks and not is_again else None
    sink = (creation.again if is_again else creation.make)(SHAPE, np.int32, None, chunks)
    if hasattr(sink, "draft"):
        sink.draft.leaves_filled = True
    if not is_again:
        sink.flush()
        draft = token.with_suffix(".new")
        draft.write_text(sink.filled.token)
        draft.rename(token)
    elif sink.filled.token != token.read_text():
        sink.close()
        raise tp.StorageError("another one has begun it")
    sink.filled.is_own = True
    return sink


def forked(work: Callable[[], object]) -> int:
    """A process that ends with 0, with 7 where it is refused in words, and with 1 and a trace otherwise."""
    return child(work, {tp.TapestryError: 7})


def trial(folder: Path, seed: int) -> None:
    """One place, and those who write to it; raises where they leave something wrong."""
    draw = random.Random(seed)
    kind, overwrite = draw.choice(["npy", "zarr", "fabric", "fabric"]), draw.random() < 0.6
    if kind == "fabric":
        _fabric.Fabric(folder / "f").close()

    def start(number: int) -> int:
        own = draw.random()
        return forked(lambda: write(folder, kind, number, overwrite, random.Random(own)))

    ended, killed = _disturbed({number: start(number) for number in range(1, draw.choice([2, 3]) + 1)}, start, draw)
    assert {*ended.values()} <= {0, 7}, (kind, overwrite, ended)
    # TensorStore's threads do not go over a fork: whoever forks has none.
    found = forked(lambda: _check(folder, kind, overwrite, ended, killed))
    assert os.waitpid(found, 0)[1] == 0, (kind, overwrite, ended)


def _disturbed(
    running: dict[int, int], start: Callable[[int], int], draw: random.Random
) -> tuple[dict[int, int], set[int]]:
    """How each has ended, and which were killed.

    Those that are killed are started again, those that are stopped wake when others went on.
    """
    ended, killed, stopped = dict[int, int](), set[int](), dict[int, float]()
    signals, limit = 0, time.monotonic() + 60
    while running:
        assert time.monotonic() < limit, "they wait for each other"
        time.sleep(draw.random() * 0.01)
        for number, process in list(running.items()):
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                ended[number] = os.waitstatus_to_exitcode(status)
                stopped.pop(number, None)
                del running[number]
        for number in [each for each in stopped if time.monotonic() > stopped[each] or {*running} == {*stopped}]:
            os.kill(running[number], signal.SIGCONT)
            del stopped[number]
        free = [number for number in running if number not in stopped]
        if free and signals < _MOST and draw.random() < 0.5:
            signals, number = signals + 1, draw.choice(free)
            if draw.random() < 0.5:
                os.kill(running[number], signal.SIGKILL)
                os.waitpid(running[number], 0)
                killed.add(number)
                running[number] = start(number)
            else:
                os.kill(running[number], signal.SIGSTOP)
                stopped[number] = time.monotonic() + draw.random() * 0.05
    return ended, killed


def _check(folder: Path, kind: str, overwrite: bool, ended: dict[int, int], killed: set[int]) -> None:
    well = {number for number, status in ended.items() if status == 0}
    if kind == "fabric":
        with _fabric.Fabric(folder / "f") as fabric:
            found = fabric.read("y") if "y" in fabric else None
            assert found is None or fabric.check("y") == ()
            catalogue = fabric._opened.catalogue  # pyright: ignore[reportPrivateUsage]
            named = {str(file) for (file,) in catalogue.ask("SELECT file FROM blocks")}
            blocks = folder / "f" / "blocks"
            assert {path.relative_to(blocks).as_posix() for path in blocks.glob("*/[0-9]*")} == named
    else:
        path = folder / f"y.{kind}"
        found = whole(tp.open(path)) if path.exists() else None
        beside = [each.name for each in folder.iterdir() if ".partial" in each.name or ".replaced" in each.name]
        assert not beside or {*ended} > well, beside
    # Without overwriting there is one, and it was not replaced.
    assert len(well) <= 1 or overwrite, well
    assert not well if found is None else (found == found[0, 0]).all() and found[0, 0] in well | killed, (found, ended)


def main(rounds: int, seed: int) -> None:
    """Trials in folders of their own, in memory where there is one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as top:
        for number in range(seed, seed + rounds):
            folder = Path(top) / str(number)
            folder.mkdir()
            trial(folder, number)
