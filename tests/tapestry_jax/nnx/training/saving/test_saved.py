"""Checkpoints: what is restored goes on as if nothing had been, on the same mesh bit by bit."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import tapestry_jax as tp
from tapestry_jax.nnx.training import trainer as trainers
from tapestry_jax.nnx.training.saving.checkpoints import Checkpoints
from tapestry_jax.nnx.training.saving.resuming import is_resumable
from tapestry_jax.nnx.training.saving.sums import write_sums

MESHES = {
    "one": ({"data": 1}, {}),
    "2x4": ({"data": 2, "model": 4}, {"batch": "data", "mlp": "model"}),
}
TYPES = (
    tp.TensorType({"batch": 8, "embed": 6}),
    tp.TensorType({"batch": 8}, jnp.int32),
    tp.TensorType({}, jnp.int32),
)


class Model(tp.nnx.Module):
    """Sizes that do not divide, written state, random numbers."""

    def __init__(self, hidden=10):
        rngs = nnx.Rngs(0)
        self.up = tp.nnx.Linear(6, hidden, dims=("embed", "mlp"), rngs=rngs)
        self.norm = tp.nnx.BatchNorm(hidden, dims=("mlp",), rngs=rngs)
        self.drop, self.down = tp.nnx.Dropout(0.2, rngs=rngs), tp.nnx.Linear(hidden, 5, dims=("mlp", "c"), rngs=rngs)

    def forward(self, x, step):
        return self.down(self.drop(self.norm(self.up(x)), step))


def loss(model, x, labels, step):
    return tp.nnx.cross_entropy(model(x, step), labels)


@functools.cache
def plan_of(where, hidden):
    axes, entries = MESHES[where]
    mesh = tp.mesh(jax.devices()[: int(np.prod(list(axes.values())))], **axes)
    return tp.plan(tp.trace(loss, Model(hidden), *TYPES), mesh, entries)


def trainer_of(folder=None, where="2x4", optimizer=None, hidden=10, **options):
    optimizer, plan = optimizer or optax.adamw(1e-2), plan_of(where, hidden)
    return tp.nnx.Trainer(loss, Model(hidden), optimizer, plan, checkpoint=folder, **{"ema": 0.9, **options})


def batch(step):
    random = np.random.default_rng(step)
    return random.normal(size=(8, 6)).astype("float32"), random.integers(0, 5, 8).astype("int32")


class Stream:
    """Batches that say where they are, as those of Grain: by JSON, or by bytes."""

    def __init__(self, as_bytes=False):
        self.at, self._as_bytes, self.left = 0, as_bytes, -1  # Ctrl-C comes where so many are left to take

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            raise KeyboardInterrupt
        self.at, self.left = self.at + 1, self.left - 1
        return batch(self.at)

    def get_state(self):
        return str(self.at).encode() if self._as_bytes else {"at": self.at}

    def set_state(self, state):
        self.at = int(state) if self._as_bytes else state["at"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a checkpoint of step 3, the losses of the three steps behind it, and the leaves of step 3."""
    folder = tmp_path_factory.mktemp("run")
    trainer = trainer_of(folder, precision=jnp.float16)
    trainer.fit(Stream(), steps=3)
    kept = leaves(trainer)
    return folder, [float(trainer.step(*batch(step))["loss"]) for step in range(4, 7)], kept


def leaves(trainer):
    return [
        np.asarray(leaf)
        for leaf in jax.tree.leaves(trainer.state)
        if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    ]


def test_a_run_that_goes_on_gives_the_same_losses_bit_by_bit(saved):
    folder, losses, expected = saved
    again = trainer_of(folder, precision=jnp.float16, keep=9)
    again.restore()
    assert again.steps == 3 and [row["step"] for row in again.history] == [3]
    for found, kept in zip(leaves(again), expected, strict=True):
        np.testing.assert_array_equal(found, kept)
    stream, told = Stream(), []
    again.fit(stream, steps=6, every=1, save_every=2, report=lambda step, found: told.append(found["loss"]))
    assert stream.at == 6 and told == losses


def test_a_checkpoint_is_restored_on_another_mesh(saved):
    folder, losses, expected = saved
    one = trainer_of(folder, "one", precision=jnp.float16)
    one.restore(3)
    for found, kept in zip(leaves(one), expected, strict=True):
        np.testing.assert_array_equal(found, kept)
    places = jax.tree.leaves(jax.tree.map(lambda leaf: len(leaf.devices()), one.state))
    assert {*places} == {1}
    assert float(one.step(*batch(4))["loss"]) == pytest.approx(losses[0], rel=1e-2)


def test_a_record_is_kept_and_bytes_are_a_place(tmp_path):
    trainer = trainer_of(tmp_path / "run", "one")
    trainer.step(*batch(0))
    trainer.record["losses"] = [1.5]
    trainer.save()
    trainer.fit(Stream(as_bytes=True), steps=3)
    other = trainer_of(tmp_path / "run", "one")
    other.restore(1)
    assert other.record == {"losses": [1.5]} and other.steps == 1 and other.history == []
    other.restore()
    assert [row["step"] for row in other.history] == [3]
    stream = Stream(as_bytes=True)
    other.fit(stream, steps=4)
    assert stream.at == 3, "two batches were taken before the checkpoint, and one behind it"
    other.restore(3)
    other.step(*batch(9))
    other.save()
    after = trainer_of(tmp_path / "run", "one")
    after.restore()
    np.testing.assert_array_equal(leaves(after)[3], leaves(other)[3])
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(leaves(after)[3], leaves(trainer)[3])


def refused(call, *args, **options):
    with pytest.raises(tp.nnx.TrainingError) as error:
        call(*args, **options)
    return str(error.value)


def test_another_model_and_another_optimizer_list_all_differences(saved):
    folder = saved[0]
    said = refused(trainer_of(folder, hidden=12, optimizer=optax.sgd(0.1, momentum=0.9), ema=None).restore)
    assert "is not one of this model and this optimizer" in said
    assert "params.up.kernel: float32(6, 10) there, float32(6, 12) here" in said.replace(".value", "")
    assert said.count("mu.") == 6 and said.count("nu.") == 6 and said.count("trace.") == 6 and said.count("ema.") == 6
    assert said.count("there, not here") == 6 + 6 + 6 + 1 + 2 and said.count("scale.") >= 2


def test_a_folder_of_another_run_is_not_written_to(saved):
    said = refused(trainer_of(saved[0], precision=jnp.float16).fit, Stream(), steps=1)
    assert f"{saved[0]} holds checkpoints of another run\n  it holds that of step" in said
    assert "trainer.restore()" in refused(trainer_of(saved[0], precision=jnp.float16).save)


def test_batches_that_cannot_go_where_they_were(saved):
    trainer = trainer_of(saved[0], precision=jnp.float16)
    trainer.restore()
    for _ in range(2):
        assert "got list_iterator, which has no set_state" in refused(trainer.fit, [batch(0)]), "again, too"
    said = refused(trainer.fit, Stream(as_bytes=True), steps=4)
    assert "cannot go to where those of the checkpoint were\n  Stream.set_state: TypeError: int() argument" in said


@pytest.mark.parametrize("written", ["[]", '{"arrays": {}, "history": [], "record": {}}'])
def test_a_record_of_another_version_cannot_be_read(saved, tmp_path, written):
    folder = tmp_path / "run"
    shutil.copytree(saved[0], folder)
    newest = max(folder.iterdir(), key=lambda each: int(each.name))
    (newest / "record" / "metadata").write_text(written)
    (newest / "sha256.json").unlink()
    write_sums(newest)
    checkpoints = Checkpoints(folder, 2)
    said = refused(checkpoints.record, int(newest.name))
    assert said.startswith(f"the checkpoint {newest} cannot be read\n  its record does not say ")
    assert "batches as this version does" in said
    (newest / "sha256.json").write_text("[]")
    assert "sha256.json is damaged" in refused(checkpoints.record, int(newest.name))
    (newest / "sha256.json").unlink()
    said = refused(checkpoints.record, int(newest.name))
    assert "sha256.json is missing: the run ended before the checkpoint was whole, or it was removed\n" in said
    assert said.endswith("Remove that folder to go on from the one before it.")
    for error in (PermissionError(13, "Permission denied"), ValueError("PERMISSION_DENIED: Error opening")):
        assert str(checkpoints._unreadable(1, error)).endswith("Let this process read it: it may be whole.")


def test_what_is_not_there_is_told(tmp_path):
    trainer = trainer_of(tmp_path / "none", "one")
    assert refused(trainer.restore).startswith(f"no checkpoint in {tmp_path / 'none'}\n")
    assert "the trainer was given no folder for checkpoints" in refused(trainer_of(where="one").save)
    assert "keep= of a trainer" in refused(trainer_of, tmp_path, "one", keep=0)
    assert "keep= of a trainer" in refused(trainer_of, None, "one", keep=0)
    (tmp_path / "file").write_text("")
    said = refused(trainer_of, tmp_path / "file", "one")
    assert f"checkpoint= of a trainer is a file: {tmp_path / 'file'}\n" in said
    trainer.save()
    said = refused(trainer.restore, 7)
    assert "no checkpoint of step 7 in" in said and "there are those of 0" in said
    data = max((tmp_path / "none" / "0" / "arrays").rglob("d/*"), key=lambda file: file.stat().st_size)
    os.truncate(data, 10)
    said = refused(trainer.restore)
    assert f"the checkpoint {tmp_path / 'none' / '0'} cannot be read" in said
    assert f"{data.name} is truncated or changed: 10 bytes" in said


def test_places_that_no_file_can_hold(tmp_path):
    class Other(Stream):
        def get_state(self):
            return {1, 2}

    said = refused(trainer_of(tmp_path / "run", "one").fit, Other(), steps=1)
    assert is_resumable(Other()) and not is_resumable([batch(0)]) and not is_resumable(iter([batch(0)]))
    assert "where the batches are cannot be stored\n  get_state gives set" in said


def test_a_record_that_no_file_can_hold_is_told_before_training(tmp_path):
    trainer = trainer_of(tmp_path / "run", "one")
    trainer.record = {"rate": np.float32(0.1), "name": "run", "places": {1, 2}}
    for called, args in ((trainer.fit, ([batch(0)],)), (trainer.save, ())):
        said = refused(called, *args)
        assert said.startswith("trainer.record holds what no checkpoint can\n  `rate`: Object of type float32 ")
        assert "`places`: Object of type set" in said and "name" not in said
    trainer.record = [1]
    assert "expected a dictionary, got list" in refused(trainer.save)
    assert trainer.steps == 0 and not (tmp_path / "run").exists()


def test_without_orbax_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    said = refused(trainer_of, tmp_path, "one")
    assert "checkpoints of a trainer need orbax-checkpoint, which is not installed" in said
    assert "pip install orbax-checkpoint" in said


def test_iterators_of_grain_go_on(tmp_path):
    grain = pytest.importorskip("grain", reason="needs `pip install grain`")
    data = grain.MapDataset.source([batch(step) for step in range(9)]).shuffle(seed=1).repeat()
    # By itself it reads hundreds of batches ahead, by many threads.
    few, losses = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2), []

    def told(step, found):
        losses.append((step, found["loss"]))

    whole, batches = trainer_of(tmp_path / "run", "one"), iter(data.to_iter_dataset(few))
    for steps in (5, 8):
        whole.fit(batches, steps=steps, every=1, report=told)
    # Another trainer would compile the same step again, and is held with other batches above.
    whole.restore(5)
    expected, losses[:] = losses[5:], []
    whole.fit(data.to_iter_dataset(few), steps=8, every=1, report=told)
    assert losses == expected


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('{"../../outside": "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"}', "outside is missing"),
        ('{"/etc/hostname": ""}', "/etc/hostname is missing"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"a": NaN}', "holds what no file of ours holds"),
        (None, "sha256.json is missing"),  # a pipe, which nobody writes into
    ],
)
def test_sums_are_data_and_name_no_file_elsewhere(tmp_path, written, told):
    folder = tmp_path / "run" / "3"
    folder.mkdir(parents=True)
    (tmp_path / "outside").write_text("b")  # of which the first sum is
    if written is None:
        os.mkfifo(folder / "sha256.json")
    else:
        (folder / "sha256.json").write_text(written)
    assert told in refused(Checkpoints(tmp_path / "run", 2).record, 3)


class Interrupted(Stream):
    """Ctrl-C comes before a batch is taken, or behind that."""

    def __init__(self, step, behind):
        super().__init__()
        self.step, self.behind = step, behind

    def __next__(self):
        if self.at == self.step:
            self.step, found = -1, super().__next__() if self.behind else None
            del found
            raise KeyboardInterrupt
        return super().__next__()


def whole(tmp_path, steps, **options):
    """A run that was never interrupted."""
    trainer = trainer_of(tmp_path / "whole")
    trainer.fit(Stream(), steps=steps, **options)
    return trainer


def assert_same_run(trainer, other):
    assert trainer.history == other.history and trainer.steps == other.steps
    for own, theirs in zip(leaves(trainer), leaves(other), strict=True):
        np.testing.assert_array_equal(own, theirs)


@pytest.mark.parametrize("behind", [False, True], ids=["before a batch is taken", "behind"])
def test_what_is_saved_by_hand_says_where_batches_were(tmp_path, behind):
    trainer, batches = trainer_of(tmp_path / "run"), Interrupted(3, behind)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(batches, steps=6, every=2)
    trainer.save()
    again = trainer_of(tmp_path / "run")
    again.restore()
    again.save()  # at the same place
    again = trainer_of(tmp_path / "run")
    again.restore()
    assert again.steps == 3
    again.fit(Stream(), steps=6, every=2)
    assert_same_run(again, whole(tmp_path, 6, every=2))


def test_what_is_saved_where_it_is_told_loses_no_row_and_no_place(tmp_path):
    def save(step, found):
        del step, found
        trainer.save()

    trainer = trainer_of(tmp_path / "run")
    trainer.fit(Stream(), steps=5, every=2, save_every=3, report=save)
    expected = whole(tmp_path, 8, every=2)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    for step, folder in ((4, "copy"), (5, "run")):  # at 4 it was saved by hand alone
        again = trainer_of(tmp_path / folder)
        again.restore(step)
        again.fit(Stream(), steps=8, every=2)
        again.history = [row for row in again.history if row["step"] % 2 == 0][: 2 if step == 5 else 4]
        expected.history = expected.history[: len(again.history)]
        assert_same_run(again, expected)


class Late(Stream):
    """It says where it is from its first batch on."""

    def get_state(self):
        if not self.at:
            raise RuntimeError("no batch was taken yet")
        return super().get_state()


def test_batches_that_say_late_where_they_are_are_trained_on(tmp_path):
    trainer = trainer_of(tmp_path)
    trainer.fit(Late(), steps=3, save_every=2)
    assert Checkpoints(tmp_path, 1).record(3)["batches"] == {"json": {"at": 3}}


@pytest.mark.parametrize(
    ("inner", "first"), [(lambda trainer: trainer.restore(2), 3), (lambda trainer: trainer.fit(Stream(), steps=5), 5)]
)
def test_places_are_those_of_the_fit_that_saves(tmp_path, inner, first):
    def report(step, found):
        del step, found
        if not done:
            done.append(True)
            inner(trainer)

    trainer, stream, done = trainer_of(tmp_path, keep=9), Stream(), []
    trainer.fit(stream, steps=2)
    trainer.fit(stream, steps=9, every=4, save_every=1, report=report)
    for back in range(trainer.steps - first + 1):
        assert Checkpoints(tmp_path, 1).record(trainer.steps - back)["batches"]["json"]["at"] == stream.at - back
    # By hand, in a report behind the one that went elsewhere.
    done.clear()
    stream.left = 3
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(stream, steps=trainer.steps + 9, every=2, report=report)
    trainer.save()
    assert Checkpoints(tmp_path, 1).record(trainer.steps)["batches"]["json"]["at"] == stream.at


def test_a_run_that_was_stopped_says_where_the_batch_before_the_bad_one_was(tmp_path):
    class Bad(Stream):
        def __next__(self):
            x, labels = super().__next__()
            return (np.full_like(x, np.nan) if self.at == 3 else x), labels

    trainer, stream = trainer_of(tmp_path), Bad()
    with pytest.raises(tp.nnx.TrainingError, match="step 3"):
        trainer.fit(stream, steps=6)
    trainer.save()
    assert stream.at == 4 and Checkpoints(tmp_path, 1).record(2)["batches"] == {"json": {"at": 2}}


@pytest.mark.parametrize("when", ["described", "faults_of"])
def test_ctrl_c_while_a_fault_is_told_leaves_it_to_be_told(tmp_path, monkeypatch, when):
    def interrupted(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    def at(step):
        x, labels = batch(step)
        return (np.full_like(x, np.nan) if step == 2 else x), labels

    trainer = trainer_of(tmp_path)
    monkeypatch.setattr(trainers, when, interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(at, steps=6)
    with pytest.raises(tp.nnx.TrainingError, match="step 3"):
        trainer.save()
    assert trainer.steps == 2
    trainer.save()
    assert all(np.isfinite(leaf).all() for leaf in leaves(trainer))


def test_what_is_saved_again_tells_what_there_is_now(tmp_path):
    trainer = trainer_of(tmp_path)
    trainer.fit(Stream(), steps=2)
    trainer.record["best"] = 0.25
    trainer.save()
    again = trainer_of(tmp_path)
    again.restore()
    assert again.record == {"best": 0.25} and len(again.history) == 1
    before = (tmp_path / "2").stat().st_ino
    again.save()
    assert (tmp_path / "2").stat().st_ino == before


def test_the_last_row_is_in_the_last_checkpoint(tmp_path):
    trainer = trainer_of(tmp_path)
    trainer.fit([batch(step) for step in range(4)], save_every=2)
    again = trainer_of(tmp_path)
    again.restore()
    assert [row["step"] for row in again.history] == [4] == [row["step"] for row in trainer.history]


def test_steps_that_were_left_out_are_listed_by_who_goes_on(tmp_path):
    def at(step):
        x, labels = batch(step)
        return (np.full_like(x, np.nan) if step in (1, 3) else x), labels

    trainer = trainer_of(tmp_path, nan="skip", keep=9)
    trainer.fit(at, steps=4, save_every=2)
    assert [text.split(":")[0] for text in trainer.skipped] == ["step 2", "step 4"]
    again = trainer_of(tmp_path, nan="skip")
    again.restore()
    assert again.skipped == trainer.skipped
    trainer.restore(2)
    assert [text.split(":")[0] for text in trainer.skipped] == ["step 2"]


@pytest.mark.parametrize("what", ["gone before it is read", "gone while it is read", "written anew"])
def test_a_run_that_writes_meanwhile_is_read_where_it_is_then(what, tmp_path, monkeypatch):
    # Whoever evaluates reads while another run keeps one checkpoint alone: what it looked at may be gone.
    writer, reader = (trainer_of(tmp_path / "run", keep=1) for _ in range(2))
    writer.step(*batch(0))
    writer.save()
    if what != "written anew":
        writer.step(*batch(0))
    arrays, read = Checkpoints.arrays, []

    def meanwhile(self, step, *args):
        read.append(step)
        if len(read) > 1:
            return arrays(self, step, *args)
        if what == "gone while it is read":
            shutil.rmtree(tmp_path / "run" / str(step) / "arrays" / "d")
            with pytest.raises(tp.TapestryError, match="cannot be read"):
                arrays(self, step, *args)
        found = arrays(self, step, *args) if what == "written anew" else None
        writer.record = {"told": "anew"}
        writer.save()
        return found or arrays(self, step, *args)

    monkeypatch.setattr(Checkpoints, "arrays", meanwhile)
    reader.restore()
    assert (reader.steps, reader.record) == (writer.steps, {"told": "anew"})
    assert read == ([1, 1] if what == "written anew" else [1, 2])


def test_a_run_that_writes_faster_than_it_is_read_is_told(tmp_path, monkeypatch):
    # What was read belongs to no one checkpoint then: it is not given.
    writer, reader = (trainer_of(tmp_path / "run", keep=1) for _ in range(2))
    writer.step(*batch(0))
    writer.save()
    record = Checkpoints.record

    def meanwhile(self, step):
        found = record(self, step)
        if self is reader._saved._checkpoints:
            writer.record = {"saves": writer.record.get("saves", 0) + 1}
            writer.save()
        return found

    monkeypatch.setattr(Checkpoints, "record", meanwhile)
    monkeypatch.setattr("tapestry_jax.nnx.training.saving.saved._TRIES", 3)
    with pytest.raises(tp.TapestryError, match=r"is another when it has been read\n  tried 3 times"):
        reader.restore()
    assert writer.record == {"saves": 6} and reader.steps == 0


def test_a_checkpoint_that_stays_unreadable_is_told_at_once(tmp_path, monkeypatch):
    writer, reader = (trainer_of(tmp_path / "run") for _ in range(2))
    writer.step(*batch(0))
    writer.save()
    (tmp_path / "run" / "1" / "record" / "metadata").write_text("")
    read = []
    record = Checkpoints.record
    monkeypatch.setattr(Checkpoints, "record", lambda self, step: read.append(step) or record(self, step))
    with pytest.raises(tp.TapestryError, match="truncated or changed"):
        reader.restore()
    assert read == [1]
