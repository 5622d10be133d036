"""Checkpoints are there as a whole or not at all, and none replaces that of another run."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.nnx.training.saving import folder as folders
from tapestry_jax.nnx.training.saving.checkpoints import Checkpoints
from tapestry_jax.nnx.training.saving.sums import SUMS

RECORD: dict[str, Any] = {"history": [], "record": {}, "batches": None}


def run_of(path: Path, keep: int = 2, step: int | None = None) -> Checkpoints:
    """A run that begins in a folder, or goes on from a step."""
    made = Checkpoints(path, keep)
    if step is not None:
        made.restored(step, made.marks())
    return made


def save(run: Checkpoints, step: int, number: float) -> None:
    run.save(step, {"a": np.full(3, number, np.float32)}, RECORD | {"record": {"number": number}})


def number(path: Path, step: int) -> float:
    return Checkpoints(path, 1).record(step)["record"]["number"]


def refused(call: Any, *args: Any) -> str:
    with pytest.raises(tp.nnx.TrainingError) as error:
        call(*args)
    return str(error.value)


@pytest.mark.parametrize("theirs", [2, 4, 7])
def test_no_checkpoint_of_another_run_is_replaced_or_removed(tmp_path: Path, theirs: int) -> None:
    save(run_of(tmp_path), 1, 1.0)
    ours, other = run_of(tmp_path, 1, step=1), run_of(tmp_path, step=1)
    save(other, theirs, 2.0)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    said = refused(save, ours, 4, 3.0)
    assert said.startswith(
        f"{tmp_path} holds checkpoints of another run\n  it holds that of step {theirs}, which this "
    )
    assert refused(ours.check_known) == said and "trainer.restore()" in said
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(("late", "theirs"), [("write_sums", 4), ("write_sums", 5), ("mark_of", 4)])
def test_one_that_comes_while_ours_is_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str, theirs: int
) -> None:
    save(run_of(tmp_path), 1, 1.0)
    ours, other, known = run_of(tmp_path, 1, step=1), run_of(tmp_path, step=1), getattr(folders, late)

    def then(folder: Path) -> Any:
        if ".partial" in folder.name:  # `mark_of` of what is renamed next: nothing but the system looks after it
            monkeypatch.setattr(folders, late, known)
            save(other, theirs, 2.0)
        return known(folder)

    other._there._is_cleared = True  # as of one that saved before: it does not remove what is begun here
    monkeypatch.setattr(folders, late, then)
    said = refused(save, ours, 4, 3.0)
    assert said.startswith(f"{tmp_path} holds checkpoints of another run\n  it holds that of step {theirs}")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["1", str(theirs)] and number(tmp_path, theirs) == 2.0
    assert "holds checkpoints of another run" in refused(save, ours, 6, 3.0)


def test_a_second_try_has_another_name(tmp_path: Path) -> None:
    """Of the first one TensorStore remembers what it found there."""
    folder = folders.Folder(tmp_path)
    assert folder.begin(1) != folder.begin(1)


def test_a_run_replaces_its_own_and_what_was_there_when_it_was_restored(tmp_path: Path) -> None:
    run = run_of(tmp_path, 3)
    for step in (1, 2, 3):
        save(run, step, 1.0)
    before = (tmp_path / "3").stat().st_ino
    save(run, 3, 1.0)
    assert (tmp_path / "3").stat().st_ino == before, "one that tells the same stays"
    save(run, 3, 2.0)
    assert number(tmp_path, 3) == 2.0 and Checkpoints(tmp_path, 1).marks().keys() == {1, 2, 3}
    again = run_of(tmp_path, 3, step=1)
    save(again, 2, 2.0)
    assert Checkpoints(tmp_path, 1).marks().keys() == {1, 2} and number(tmp_path, 2) == 2.0
    for step in (4, 5):
        save(again, step, 2.0)
    assert Checkpoints(tmp_path, 1).marks().keys() == {2, 4, 5}
    # Of those that were given up here another run made others.
    back, other = run_of(tmp_path, step=2), run_of(tmp_path, step=2)
    save(other, 4, 3.0)
    assert "it holds that of step 4, which" in refused(save, back, 3, 4.0)
    assert number(tmp_path, 4) == 3.0


class Killed(BaseException):
    """The end of a process, behind which it does nothing."""


def killed_at_each_call(original: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Copies of a folder in which a run that went on from `step` was killed while it saved step 3, each one call later.

    In the last one it was not killed.
    """
    at, killed = 0, True
    while killed:
        at, killed, folder = at + 1, False, original.with_name(f"run{at}")
        shutil.copytree(original, folder)
        run = run_of(folder, 1, step=step)
        with monkeypatch.context() as patched:
            _die(patched, at)
            try:
                save(run, 3, 9.0)
            except Killed:
                killed = True
        yield folder


def test_whenever_a_run_is_killed_a_whole_checkpoint_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each rename, removal and sum; with a checkpoint that is given up, and one that `keep=` lets go."""
    original = tmp_path / "original"
    first = run_of(original, 2)
    for step in (1, 2, 3):
        save(first, step, float(step))
    count = 0
    for folder in killed_at_each_call(original, 2, monkeypatch):
        count += 1
        there = Checkpoints(folder, 1).marks()
        assert there and all(there.values())
        assert all(number(folder, step) in (step, *[9.0] * (step == 3)) for step in there)
        save(run_of(folder, 1, step=max(there)), 5, 5.0)
        assert [each.name for each in folder.iterdir()] == ["5"], "what was left is removed"
        assert number(folder, 5) == 5.0
    assert count > 5


@pytest.mark.parametrize("can", [True, False], ids=["at once", "one by one"])
def test_a_step_that_is_saved_again_is_there_at_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can: bool
) -> None:
    """Where the system cannot exchange two names the one before it comes back to who looks next."""
    if not can:
        monkeypatch.setattr(folders, "exchanged", lambda *_: False)
    original = tmp_path / "original"
    save(run_of(original, 1), 3, 3.0)
    count = 0
    for folder in killed_at_each_call(original, 3, monkeypatch):
        count += 1
        assert Checkpoints(folder, 1).marks().keys() == {3} and number(folder, 3) in (3.0, 9.0)
        save(run_of(folder, 1, step=3), 4, 4.0)
        assert [each.name for each in folder.iterdir()] == ["4"]
    assert count > 2


@pytest.mark.parametrize("can", [True, False], ids=["at once", "one by one"])
def test_what_comes_while_a_step_is_saved_again_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can: bool
) -> None:
    if not can:
        monkeypatch.setattr(folders, "exchanged", lambda *_: False)
    ours = run_of(tmp_path, 1)
    save(ours, 3, 1.0)
    save(ours, 3, 2.0)
    assert number(tmp_path, 3) == 2.0 and [each.name for each in tmp_path.iterdir()] == ["3"]
    known = Path.rename

    def refused_by_the_system(path: Path, target: Path) -> Path:
        if ".partial" in path.name:
            raise OSError("no")
        return known(path, target)

    monkeypatch.setattr(Path, "rename", refused_by_the_system)
    monkeypatch.setattr(folders, "exchanged", lambda *_: False)
    assert "OSError: no" in refused(save, ours, 3, 4.0)
    monkeypatch.undo()
    assert number(tmp_path, 3) == 2.0
    save(ours, 3, 5.0)
    assert number(tmp_path, 3) == 5.0
    # Another run's, which has come at the last moment.
    other, late = run_of(tmp_path, step=3), folders.mark_of

    def then(folder: Path) -> Any:
        if ".partial" in folder.name:
            monkeypatch.setattr(folders, "mark_of", late)
            save(other, 3, 6.0)
        return late(folder)

    other._there._is_cleared = True
    monkeypatch.setattr(folders, "mark_of", then)
    assert "holds checkpoints of another run" in refused(save, ours, 3, 7.0)
    assert number(tmp_path, 3) == 6.0


def test_what_was_half_removed_does_not_come_back(tmp_path: Path) -> None:
    save(run_of(tmp_path), 3, 1.0)
    (tmp_path / "3").rename(tmp_path / "3.aside-a-b")
    shutil.copytree(tmp_path / "3.aside-a-b", tmp_path / "4.aside-a-b")
    (tmp_path / "4.aside-a-b" / SUMS).unlink()
    assert Checkpoints(tmp_path, 1).marks().keys() == {3} and number(tmp_path, 3) == 1.0


def test_what_comes_before_a_step_makes_way_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = run_of(tmp_path, 1)
    save(ours, 3, 1.0)
    other = run_of(tmp_path, step=3)
    other._there._is_cleared = True

    def late(*_: Any) -> bool:
        monkeypatch.undo()
        save(other, 3, 6.0)
        monkeypatch.setattr(folders, "exchanged", lambda *_: False)
        return False

    monkeypatch.setattr(folders, "exchanged", late)
    assert "holds checkpoints of another run" in refused(save, ours, 3, 7.0)
    assert number(tmp_path, 3) == 6.0 and Checkpoints(tmp_path, 1).marks().keys() == {3}


def _die(patched: pytest.MonkeyPatch, at: int) -> None:
    """Before one of the calls that change a folder, counted from 1; of one that removes, when half is gone."""
    count = 0

    def half(found: Any) -> None:
        for each in list(found):
            (each / "record" / "metadata").unlink()

    def dying(call: Any, begun: Any = None) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == at and begun is not None:
                begun(*args, **options)
            if count >= at:
                raise Killed
            return call(*args, **options)

        return run

    patched.setattr(folders, "write_sums", dying(folders.write_sums))
    patched.setattr(Path, "rename", dying(Path.rename))
    patched.setattr(folders, "exchanged", dying(folders.exchanged))
    patched.setattr(folders, "_remove", dying(folders._remove, half))
    patched.setattr(folders.Folder, "drop", lambda self: None)


def test_what_cannot_be_written_is_told_and_the_next_one_is(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    save(run, 1, 1.0)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    for step, room in ((2, 50), (3, 400)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limit[1]))
        try:
            with pytest.raises(tp.nnx.TrainingError) as error:
                save(run, step, 2.0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        said = str(error.value)
        assert said.startswith(f"the checkpoint {tmp_path / 'run' / str(step)} could not be written\n  ")
        assert isinstance(error.value.__cause__, OSError | ValueError) and "Make room, or let" in said
        assert max(Checkpoints(tmp_path / "run", 1).marks()) == step - 1 == number(tmp_path / "run", step - 1)
        save(run, step, float(step))
        assert number(tmp_path / "run", step) == step


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = refused(save, run_of(tmp_path / "file" / "run"), 1, 1.0)
    assert f"the checkpoint {tmp_path / 'file' / 'run' / '1'} could not be written\n  NotADirectoryError: " in said
    said = refused(trainer_of, tmp_path / ("n" * 300))
    assert said.startswith("checkpoint= of a trainer is no folder: ") and "File name too long" in said


def loss(model: Any, x: Any, y: Any) -> Any:
    return tp.nnx.mean_squared_error(model(x), y)


X, Y = np.ones((4, 4), np.float32), np.ones((4, 2), np.float32)


def trainer_of(path: Path) -> tp.nnx.Trainer:
    model = tp.nnx.Linear(4, 2, dims=("embed", "out"), rngs=nnx.Rngs(0))
    types = tp.TensorType({"batch": 4, "embed": 4}), tp.TensorType({"batch": 4, "out": 2})
    plan = tp.plan(tp.trace(loss, model, *types), tp.mesh(jax.devices()[:1], data=1), {"batch": "data"})
    return tp.nnx.Trainer(loss, model, optax.sgd(0.1), plan, checkpoint=path)


def test_two_trainers_of_one_folder(tmp_path: Path) -> None:
    trainer_of(tmp_path).fit([(X, Y)])
    ours, other = trainer_of(tmp_path), trainer_of(tmp_path)
    ours.restore()
    other.restore()
    other.fit([(X, Y)] * 3)
    assert "it holds that of step 4, which" in refused(ours.fit, [(X, Y)] * 3)
    ours.step(X, Y)
    assert "it holds that of step 4, which" in refused(ours.save)
    ours.restore()
    assert ours.steps == 4
    ours.fit([(X, Y)])
    assert "it holds that of step 5, which" in refused(other.save)


def test_a_newest_checkpoint_without_sums_is_left_out_with_a_warning(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path)
    trainer.fit([(X, Y)] * 2, save_every=1)
    (tmp_path / "2" / SUMS).unlink()
    again = trainer_of(tmp_path)
    assert f"{SUMS} is missing" in refused(again.restore, 2), "nobody can say that it is whole"
    with pytest.warns(RuntimeWarning) as said:
        again.restore()
    assert again.steps == 1 and said[0].filename == __file__
    assert (
        f"trainer.restore() goes on from step 1, and leaves out what is not whole\n  {SUMS} is missing in {tmp_path}"
        in (str(said[0].message))
    )
    again.fit([(X, Y)])
    after = trainer_of(tmp_path)
    after.restore()
    assert after.steps == 2 and Checkpoints(tmp_path, 1).marks().keys() == {1, 2}
    for step in ("1", "2"):
        (tmp_path / step / SUMS).unlink()
    assert f"the checkpoint {tmp_path / '2'} cannot be read\n  {SUMS} is missing" in refused(after.restore)
