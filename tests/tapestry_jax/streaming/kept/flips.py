"""Bits that are flipped in the files of a job that was stopped, and what the job makes of them that goes on.

    python -m tests.tapestry_jax.streaming.kept.flips --flips 2 --seed 1

A job is stopped at each of its states, before and after it is written. Then bits of each of its files are flipped, one
file after the other; it goes on, and all is put back. Its result has the bits of a job that nobody stopped, or there is
a typed error.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tapestry_jax as tp
from tapestry_jax.streaming.kept import checkpoint
from tests.tapestry_jax.streaming.kept.killed_jobs import JOBS, arrays, ran, source, traced
from tests.tapestry_jax.streaming.kept.stops import Stop

RIGHT, REFUSED, WRONG, RAW = "right", "refused", "wrong", "raw"
Run = Callable[[Path], list[np.ndarray]]


def _killed(name: str, every: int, folder: Path) -> list[np.ndarray]:
    return arrays(ran(name, JOBS[name].sizes[-1], folder, every))


def _arriving(folder: Path) -> list[np.ndarray]:
    """Rows of a generator, two passes, a value between them and a sink, both in chunks of Zarr."""
    rows = source("centred")
    created = {"y/0": tp.create(folder / "y.zarr")}
    kept = {"checkpoint": folder / "run", "save_every": 2}
    given = iter(np.array_split(rows, 5))
    return arrays(tp.stream(traced("centred"), {"row": tp.chunks(size=4)}, (given,), created, **kept).run())


RUNS: dict[str, Run] = {
    **{name: lambda folder, name=name: _killed(name, 2, folder) for name in ("floats", "running", "doubled", "days")},
    **{name: lambda folder, name=name: _killed(name, 3, folder) for name in ("centred", "repeated", "batches")},
    "arriving": _arriving,
}


@dataclass(frozen=True)
class Told:
    """What came of flipped bits.

    Attributes:
      kind: one of the four.
      told: where they were, and what was said.
    """

    kind: str
    told: str


def stopped_at(run: Run, folder: Path, number: int, *, before: bool) -> bool:
    """Whether a job was stopped where it writes its state of that number, before or after it is written."""
    save, left = checkpoint.save, number

    def stopped(place: Any, frozen: Any) -> int:
        nonlocal left
        left -= 1
        if not left and before:
            raise Stop
        written = save(place, frozen)
        if not left:
            raise Stop
        return written

    checkpoint.save = stopped
    try:
        run(folder)
    except Stop:
        return True
    finally:
        checkpoint.save = save
    return False


def flips(
    run: Run, folder: Path, expected: list[np.ndarray], count: int, random: np.random.Generator
) -> Iterator[Told]:
    """Flip bits in each of the files of a stopped job, so many times, go on, and put all back."""
    aside = folder.with_name(f"{folder.name}-aside")
    shutil.copytree(folder, aside)
    for path in [path.relative_to(folder) for path in files(folder)] * count:
        _restore(aside, folder)
        places = flip(folder / path, random)
        yield _gone_on(run, folder, expected, f"{path}, bits {places}")


def files(folder: Path) -> list[Path]:
    """The files of a job: what its rows lie in is held by its fingerprint, and is the user's."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not _is_source(path)]


def flip(path: Path, random: np.random.Generator, begin: int = 0) -> list[int]:
    """Flip one to three bits of a file; their numbers."""
    content = bytearray(path.read_bytes())
    places = 8 * begin + random.permutation(8 * (len(content) - begin))[: random.integers(1, 4)]
    for place in places:
        content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    return places.tolist()


def _gone_on(run: Run, folder: Path, expected: list[np.ndarray], where: str) -> Told:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = run(folder)
    except tp.TapestryError as error:
        return Told(REFUSED, f"{where}: {error}")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no word of ours
        return Told(RAW, f"{where}: {type(error).__name__}: {error}")
    same = all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(got, expected, strict=True))
    return Told(RIGHT if same else WRONG, where)


def _is_source(path: Path) -> bool:
    return path.parent.name != "run" and path.name.startswith("x") and path.suffix == ".npy"


def _restore(aside: Path, folder: Path) -> None:
    """All but the sources, which are others by their times where they are written anew."""
    for path in folder.iterdir():
        if not _is_source(path):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in aside.iterdir():
        if not _is_source(path):
            shutil.copytree(path, folder / path.name) if path.is_dir() else shutil.copy2(path, folder / path.name)


def stops(run: Run, top: Path) -> Iterator[tuple[int, bool, Path]]:
    """A folder for each state of a job, stopped before and after it is written."""
    for number in itertools.count(1):
        for before in (True, False):
            folder = top / f"{number}-{before}"
            folder.mkdir()
            if not stopped_at(run, folder, number, before=before):
                return
            yield number, before, folder


def main() -> None:
    """Flip bits, and count what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.tapestry_jax.streaming.kept.flips", description=__doc__)
    parser.add_argument("--flips", type=int, default=2, help="of each file at each stop")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", nargs="*", default=[*RUNS])
    asked = parser.parse_args()
    random = np.random.default_rng(asked.seed)
    for name in asked.jobs:
        with tempfile.TemporaryDirectory() as place:
            top, run, found, at = Path(place), RUNS[name], list[Told](), 0
            (top / "whole").mkdir()
            expected = run(top / "whole")
            for _, _, folder in stops(run, top):
                at += 1
                found += flips(run, folder, expected, asked.flips, random)
            print(name, f"{at} stops", dict(Counter(each.kind for each in found)), flush=True)
            for each in found:
                if each.kind in (WRONG, RAW):
                    print("  ", each.kind, each.told)


if __name__ == "__main__":
    main()
