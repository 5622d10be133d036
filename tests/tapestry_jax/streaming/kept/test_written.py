"""What a stopped job has written is what it goes on with, or that is told: flipped bits, files that are gone."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from combinators.errors import FormatError
from tapestry_jax.storage.unfinished.sums import Sums
from tapestry_jax.streaming.cluster import driver
from tapestry_jax.streaming.frozen import load, save
from tapestry_jax.streaming.kept.written import without_sums
from tests.tapestry_jax.streaming.kept import flips as attack
from tests.tapestry_jax.streaming.kept.flips import RAW, RUNS, WRONG, Told, flips, stopped_at, stops
from tests.tapestry_jax.streaming.kept.killed_jobs import COLS, ROWS, arrays, ran, source, stream, traced
from tests.tapestry_jax.streaming.kept.prepared import WORKERS, one_after_the_other
from tests.thoroughly import thoroughly

HEAD = 128  # bytes of the header of a file .npy
FEW = ("running", "centred", "arriving")
DAMAGED = r"what the job in .*run has written so far is damaged"


def found(run: attack.Run, folder: Path, every: int = 1) -> list[Told]:
    """What came of bits that were flipped in all files of a job, at each of its states, or some of them."""
    (folder / "whole").mkdir()
    expected, random = run(folder / "whole"), np.random.default_rng(0)
    at = [place for number, _, place in stops(run, folder) if thoroughly() or number % every == 0]
    return [told for place in at for told in flips(run, place, expected, 1, random)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FEW else pytest.mark.thorough) for name in RUNS]
)
def test_flipped_bits_of_a_stopped_job_are_told_or_change_nothing(name: str, tmp_path: Path):
    told = found(RUNS[name], tmp_path, 5 if name == "arriving" else 1)
    assert [each.told for each in told if each.kind in (WRONG, RAW)] == []
    assert len(told) > 40


def test_the_attack_finds_what_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Sums, "again", lambda self, *_: self)
    assert any(each.kind == WRONG for each in found(RUNS["running"], tmp_path))


def stopped(name: str, folder: Path, number: int, *, before: bool = False) -> None:
    assert stopped_at(RUNS[name], folder, number, before=before)


def damage(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


# A row is 12 bytes; two turns of 8 rows are kept, and one more is written since.
@pytest.mark.parametrize(("at", "is_told"), [(0, True), (16 * 12 - 1, True), (16 * 12, False), (47 * 12, False)])
def test_what_was_written_since_the_state_may_be_anything(tmp_path: Path, at: int, is_told: bool):
    stopped("doubled", tmp_path, 2)
    damage(tmp_path / "y.npy.partial", HEAD + at)
    if not is_told:
        assert (RUNS["doubled"](tmp_path)[0] == source("doubled") * 2 + 1).all()
        return
    with pytest.raises(FormatError, match=DAMAGED) as caught:
        RUNS["doubled"](tmp_path)
    told = str(caught.value)
    assert f"the cells [0:16, 0:{COLS}] of `{tmp_path / 'y.npy'}` have another checksum" in told
    assert "expected " in told and "got " in told
    assert told.splitlines()[-1].strip() == f"Remove its states, {tmp_path / 'run'}/state-*: it begins anew."


@pytest.mark.parametrize(("name", "number"), [("doubled", 2), ("centred", 4), ("arriving", 8)])
def test_it_begins_anew_where_its_states_are_removed(name: str, number: int, tmp_path: Path):
    (tmp_path / "whole").mkdir()
    expected, run = RUNS[name](tmp_path / "whole"), tmp_path / "run"
    stopped(name, tmp_path, number)
    (data, *_) = [*run.glob("source-*.npy"), *run.glob("pass-*.npy.partial"), *tmp_path.glob("y.npy.partial")]
    damage(data, HEAD)
    with pytest.raises(FormatError, match=DAMAGED):
        RUNS[name](tmp_path)
    for state in run.glob("state-*"):
        state.unlink()
    for mine, other in zip(RUNS[name](tmp_path), expected, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_states_of_earlier_releases_without_checksums_are_gone_on_with(tmp_path: Path):
    stopped("doubled", tmp_path, 2)
    before = load(tmp_path / "run")
    assert before is not None
    assert sum(name.startswith("written/") for name in before.arrays) == 2
    save(tmp_path / "run", replace(before, arrays=without_sums(before.arrays)))
    assert (RUNS["doubled"](tmp_path)[0] == source("doubled") * 2 + 1).all()


@pytest.mark.parametrize("edit", [lambda data: data[:-1], lambda data: data + b"x", lambda _: b""])
def test_files_that_are_shorter_or_longer_are_refused(tmp_path: Path, edit: Any):
    stopped("centred", tmp_path, 2)
    (place,) = (tmp_path / "run").glob("pass-*.npy.partial")
    place.write_bytes(edit(place.read_bytes()))
    with pytest.raises(FormatError, match="is not what was begun"):
        RUNS["centred"](tmp_path)


def test_chunks_of_zarr_that_are_older_than_the_state_are_seen(tmp_path: Path):
    """Each has a right checksum of its own."""

    def run(folder: Path) -> list[np.ndarray]:
        made = {"y": tp.create(folder / "y.zarr")}
        kept = {"checkpoint": folder / "run", "save_every": 2}
        return arrays(tp.stream(traced("doubled"), {"row": tp.chunks(size=8)}, source("doubled"), made, **kept).run())

    assert stopped_at(run, tmp_path, 2, before=False)
    chunks = [path for path in sorted((tmp_path / "y.zarr.partial" / "c").rglob("*")) if path.is_file()]
    chunks[0].write_bytes(chunks[1].read_bytes())
    with pytest.raises(FormatError, match=DAMAGED):
        run(tmp_path)


def rows_of(folder: Path, rows: np.ndarray) -> list[np.ndarray]:
    kept = {"checkpoint": folder / "run", "save_every": 2}
    given = iter(np.array_split(rows, 5))
    return arrays(tp.stream(traced("running"), {"row": tp.chunks(size=8)}, (given,), **kept).run())


def test_rows_that_have_arrived_are_held_to_what_was_computed_of_them(tmp_path: Path):
    rows = source("running")
    expected = np.cumsum(rows[::-1], 0)[::-1]
    assert stopped_at(lambda folder: rows_of(folder, rows), tmp_path, 3, before=False)
    place = tmp_path / "run" / "source-0.npy"
    # They are there, and those that are given are not asked for.
    damage(place, HEAD + 12 * ROWS - 1)
    with pytest.raises(FormatError, match=f"{DAMAGED}(.|\n)*the cells .* of `rows that arrive"):
        rows_of(tmp_path, rows + 1)
    place.unlink()
    with pytest.raises(FormatError, match=DAMAGED):
        rows_of(tmp_path, rows + 1)
    place.unlink()
    (got,) = rows_of(tmp_path, rows)
    np.testing.assert_array_equal(got, expected)
    assert not place.exists()


@pytest.mark.parametrize("before", [True, False])
def test_rows_that_were_not_in_their_place_are_asked_for_again(tmp_path: Path, before: bool):
    """A state names them first: what no state names is not believed."""
    rows = source("running")
    assert stopped_at(lambda folder: rows_of(folder, rows), tmp_path, 2, before=before)
    assert not (tmp_path / "run" / "source-0.npy").exists()
    (got,) = rows_of(tmp_path, rows + 1)
    np.testing.assert_array_equal(got, np.cumsum(rows[::-1] + 1, 0)[::-1])


def test_rows_that_no_whole_state_names_are_asked_for_again(tmp_path: Path):
    rows = source("running")
    assert stopped_at(lambda folder: rows_of(folder, rows), tmp_path, 3, before=True)
    (*_, newest) = sorted((tmp_path / "run").glob("state-*"))
    damage(newest, -1)
    damage(tmp_path / "run" / "source-0.npy", HEAD)
    with pytest.warns(UserWarning, match="is passed over"):
        (got,) = rows_of(tmp_path, rows)
    np.testing.assert_array_equal(got, np.cumsum(rows[::-1], 0)[::-1])


def test_what_workers_have_left_between_passes_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(driver, "in_any_order", one_after_the_other)

    def run(folder: Path) -> list[np.ndarray]:
        return arrays(ran("centred", 4, folder, 2, WORKERS))

    assert stopped_at(run, tmp_path, 15, before=False)
    (place,) = (tmp_path / "run").glob("pass-*.npy")
    damage(place, HEAD)
    with pytest.raises(FormatError, match=DAMAGED):
        run(tmp_path)
    damage(place, HEAD)
    rows = np.cumsum(source("centred"), 0, dtype=np.int32)
    assert (run(tmp_path)[0] == rows - rows.max(0)).all()


def test_an_interrupt_ends_the_reading_of_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stopped("doubled", tmp_path, 2)
    again = Sums.again

    def interrupted(self: Sums, *given: Any) -> Sums:
        signal.raise_signal(signal.SIGINT)
        return again(self, *given)

    monkeypatch.setattr(Sums, "again", interrupted)
    with pytest.raises(KeyboardInterrupt, match="run it again"):
        RUNS["doubled"](tmp_path)
    monkeypatch.undo()
    assert (RUNS["doubled"](tmp_path)[0] == source("doubled") * 2 + 1).all()


def test_other_chunks_and_devices_read_what_older_ones_have_written(tmp_path: Path):
    stopped("doubled", tmp_path, 2)
    for size, number in ((4, 2), (2, 3)):
        job = stream("doubled", size, tmp_path)
        assert stopped_at(lambda _, job=job: arrays(job.run()), tmp_path, number, before=False)
    state = load(tmp_path / "run")
    assert state is not None
    rows = state.arrays["written/pass-0-0/0/boxes"]
    assert {tuple(row[:2]) for row in rows.tolist()} == {(8, COLS), (4, COLS), (2, COLS)}
    damage(tmp_path / "y.npy.partial", HEAD + 17 * 12)
    with pytest.raises(FormatError, match=DAMAGED):
        stream("doubled", 1, tmp_path).run()
    damage(tmp_path / "y.npy.partial", HEAD + 17 * 12)
    assert (arrays(stream("doubled", 1, tmp_path).run())[0] == source("doubled") * 2 + 1).all()


@pytest.mark.parametrize("name", FEW)
def test_a_pipe_in_the_place_of_what_a_job_goes_on_with_is_not_waited_for(name: str, tmp_path: Path):
    stopped(name, tmp_path, 4)
    files = [each for each in sorted(tmp_path.rglob("*")) if each.is_file() and not each.name.startswith("state-")]
    lie = [each for each in files if ".partial" in f"{each}" or each.name.startswith(("pass-", "source-"))]
    assert lie
    for path in lie:
        kept = path.rename(tmp_path / "aside")
        os.mkfifo(path)
        with pytest.raises(tp.TapestryError, match=r"is no file|is damaged"):
            RUNS[name](tmp_path)
        path.unlink()
        kept.rename(path)
    RUNS[name](tmp_path)
