"""`cache=`: what jobs have made is read by others, and only what it is right to read.

Thorough: an entry that is cut off, which is told as one is that was changed.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import stored
from tapestry_jax.streaming.errors import StreamError
from tapestry_jax.streaming.frozen.encoded import decode, encode
from tests.forked import run
from tests.nobody import as_nobody, read_only
from tests.tapestry_jax.streaming.whole import whole
from tests.thoroughly import but

agg = tp.aggregators
X = np.random.default_rng(0).integers(-9, 9, (23, 3)).astype(np.float32)
OVER = {"row": tp.chunks(size=4)}
total = tp.fold(agg.Sum(), "row c -> c")


@tp.program("row c -> row c")
def centred(x: Any) -> Any:
    return tp.Map(lambda a, m: a - m, "row c, c -> row c")(x, tp.fold(agg.Mean(), "row c -> c")(x))


@tp.program("row c -> c")
def spread(x: Any) -> Any:
    """Reads `centred` twice: the mean, then itself."""
    return tp.fold(agg.Max(), "row c -> c")(tp.Map(abs)(centred(x)))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)


def read_bytes(program: Any, source: Any = None, want: Any = None, over: Any = OVER, **options: Any) -> int:
    """Run a job with the cache, hold it against the program on arrays, and tell what it has read."""
    source = tp.open("x.npy") if source is None else source
    job = tp.stream(program, over, source, cache="cache", **options)
    got = job.run()
    if want is None:
        array = np.empty(source.shape, source.dtype)
        source.read(tuple((0, size) for size in source.shape), array).result()
        want = program(array)
    for mine, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(whole(mine), other, rtol=1e-5, atol=1e-5)
    return job.metrics.stage("read").bytes


def test_a_job_of_before_reads_nothing() -> None:
    assert read_bytes(centred) == 2 * X.nbytes
    assert read_bytes(centred) == 0
    assert read_bytes(centred, over={"row": tp.chunks(size=5)}) == 0


def test_what_programs_share_is_read_and_the_rest_is_computed() -> None:
    mean = tp.fold(agg.Mean(), "row c -> c")
    assert read_bytes(mean) == X.nbytes
    assert read_bytes(centred) == X.nbytes
    # `centred` is there as a tensor of the cache, and is what one pass reads now.
    assert read_bytes(spread) == X.nbytes
    both = tp.trace(lambda x: (mean(x), total(x)), tp.TensorType({"row": 23, "c": 3}))
    assert read_bytes(both, want=(X.mean(0), X.sum(0))) == X.nbytes
    assert read_bytes(both, want=(X.mean(0), X.sum(0))) == 0


def test_spilled_values_are_kept_too() -> None:
    running = tp.scan(agg.Sum(), "row c -> row c", over="row")
    assert read_bytes(running >> spread) == 2 * X.nbytes
    assert read_bytes(running) == 0
    doubled = tp.Map(lambda a: a * 2, "row c -> row c") >> tp.fold(agg.Max(), "row c -> c")
    assert read_bytes(running >> doubled) == X.nbytes


def test_a_result_of_folds_alone_needs_no_stream() -> None:
    mean = tp.fold(agg.Mean(), "row c -> c")
    read_bytes(mean)
    assert read_bytes(mean >> tp.Map(jnp.exp), sinks=tp.create("e.npy")) == 0
    np.testing.assert_allclose(np.load("e.npy"), np.exp(X.mean(0)), rtol=1e-6)


@pytest.mark.parametrize("name", ["y.npy", "y.zarr", "y.safetensors"])
@pytest.mark.parametrize("checkpoint", [None, "job"])
def test_files_of_all_formats_are_known_again(name: str, checkpoint: str | None) -> None:
    written = {"sinks": tp.create(name), "checkpoint": checkpoint}
    assert read_bytes(centred, **written) == 2 * X.nbytes
    place = Path(name) if Path(name).is_file() else Path(name) / "zarr.json"
    before = place.stat().st_ino
    assert read_bytes(centred) == 0
    again = None if checkpoint is None else "another"
    assert read_bytes(centred, sinks=tp.create(name, overwrite=True), checkpoint=again) == 0
    assert place.stat().st_ino == before, "it lies there already"


def test_files_of_the_user_are_not_stored_twice_and_are_copied_elsewhere() -> None:
    assert read_bytes(centred, sinks=tp.create("y.zarr")) == 2 * X.nbytes
    assert not list(Path("cache").glob("*.zarr"))
    before = Path("y.zarr/zarr.json").stat().st_ino
    assert read_bytes(centred, sinks=tp.create("y.zarr", overwrite=True)) == 0
    assert Path("y.zarr/zarr.json").stat().st_ino == before
    assert read_bytes(centred, sinks=tp.create("z.npy")) == 0
    np.testing.assert_allclose(np.load("z.npy"), X - X.mean(0), atol=1e-5)
    with pytest.raises(tp.FormatError, match="is there already"):
        read_bytes(centred, sinks=tp.create("z.npy"))
    np.save("y.npy", 0 * X)
    shutil.rmtree("y.zarr")
    tp.stream(tp.Map(lambda a: a + 1, "row c -> row c"), OVER, X, tp.create("y.zarr")).run().close()
    assert read_bytes(centred) == X.nbytes  # another file is in its place: of the mean alone there is a value


SOURCES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "another content": (lambda: np.save("x.npy", X), lambda: np.save("x.npy", X + 1)),
    "another array": (lambda: X, lambda: X + 1),
    "other axes": (lambda: stored(X), lambda: stored(X[::-1].copy())),
}


@pytest.mark.parametrize("name", SOURCES)
def test_other_sources_are_read(name: str) -> None:
    for make in SOURCES[name]:
        source = make()
        assert (
            read_bytes(
                total, tp.open("x.npy") if source is None else stored(np.asarray(getattr(source, "array", source)))
            )
            > 0
        )


def test_tensors_of_one_file_are_told_apart() -> None:
    np.savez("two.npz", a=X, b=X + 1)
    assert [read_bytes(total, tp.open("two.npz", name)) for name in "abab"] == [X.nbytes, X.nbytes, 0, 0]


def test_files_of_one_size_and_time_are_told_apart() -> None:
    # As they come out of an archive; a link has the inode too.
    os.link("x.npy", "same.npy")
    assert read_bytes(total) == X.nbytes
    assert read_bytes(total, tp.open("same.npy")) == X.nbytes


def kernels(text: str, number: int) -> Any:
    """A module of the user's, written anew."""
    Path("mine.py").write_text(textwrap.dedent(text))
    os.utime("mine.py", (number, number))
    shutil.rmtree("__pycache__", ignore_errors=True)
    sys.modules.pop("mine", None)
    importlib.invalidate_caches()
    return importlib.import_module("mine")


def test_an_edited_kernel_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path.cwd())
    text = """
    FACTOR = [2]
    def helper(a): return a + 1
    def scaled(a): return FACTOR[0] * helper(a)
    def smallest(a, b):
        return {}(a, b)
    """
    edits = [("", ""), ("[2]", "[3]"), ("a + 1", "a + 2")]
    for number, (old, new) in enumerate(edits):
        module = kernels(
            "import jax.numpy as jnp\n" + textwrap.dedent(text).format("jnp.minimum").replace(old, new), number
        )
        program = tp.Map(module.scaled) >> total
        assert [read_bytes(program), read_bytes(program)] == [X.nbytes, 0]
    for number, name in enumerate(("jnp.minimum", "jnp.maximum")):
        module = kernels("import jax.numpy as jnp\n" + textwrap.dedent(text).format(name), 10 + number)
        largest = tp.Monoid([np.inf, -np.inf][number], module.smallest)
        kernel = [jnp.min, jnp.max][number]
        fold = tp.Reduce(lambda a, k=kernel: k(a, axis=0), "row c -> c", largest)
        assert [read_bytes(fold), read_bytes(fold)] == [X.nbytes, 0]
    sys.modules.pop("mine", None)


def test_a_monoid_that_merges_otherwise_is_another_program() -> None:
    """The kernel is the same, and so is the result on one piece."""
    sizes: list[int] = []
    for combine in (jnp.add, jnp.maximum):
        fold = tp.Reduce(lambda a: 0 * a[0], "row c -> c", tp.Monoid(-(2.0**30), combine))
        job = tp.stream(fold, OVER, tp.open("x.npy"), cache="cache")
        job.run()
        sizes.append(job.metrics.stage("read").bytes)
    assert sizes == [X.nbytes, X.nbytes]


AMOUNT = [1.0]


def test_what_a_kernel_reads_may_change_between_making_and_running() -> None:
    def job() -> Any:
        return tp.stream(tp.Map(lambda a: a * AMOUNT[0]) >> total, OVER, tp.open("x.npy"), cache="cache")

    AMOUNT[0] = 2.0
    first = job()
    first.plan()  # it is compiled here
    AMOUNT[0] = 3.0
    np.testing.assert_allclose(first.run(), 2 * X.sum(0))
    assert not list(Path("cache").glob("*.entry"))
    for amount in (3.0, 2.0, 3.0):
        AMOUNT[0] = amount
        np.testing.assert_allclose(job().run(), amount * X.sum(0))


def test_what_calls_out_of_jax_is_not_kept() -> None:
    def called(a: Any) -> Any:
        return jax.pure_callback(lambda b: np.asarray(b) + 1, jax.ShapeDtypeStruct(a.shape, a.dtype), a)

    program = tp.Map(called, "row c -> row c") >> total
    assert [read_bytes(program) for _ in range(2)] == [X.nbytes, X.nbytes]


def damage_entry() -> None:
    for path in Path("cache").glob("*.entry"):
        data = bytearray(path.read_bytes())
        data[-20] ^= 1
        path.write_bytes(data)


def cut_entry() -> None:
    for path in Path("cache").glob("*.entry"):
        path.write_bytes(path.read_bytes()[:-3])


def damage_chunk() -> None:
    """A bit, under the same fingerprint, as on a disk that forgets: only reading shows it."""
    for path in Path("cache").glob("*.zarr/c/**/*"):
        if path.is_file():
            at, data = path.stat(), bytearray(path.read_bytes())
            data[3] ^= 1
            path.write_bytes(data)
            os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
    for entry in Path("cache").glob("*.entry"):
        frozen = decode(bytearray(entry.read_bytes()), str(entry))
        if "value" in frozen.sinks:
            with closing(tp.open(Path("cache") / frozen.sinks["value"])) as tensor:
                entry.write_bytes(b"".join(encode(replace(frozen, sources={"value": tensor.fingerprint()}))))


def lose_tensor() -> None:
    for path in Path("cache").glob("*.zarr"):
        shutil.rmtree(path)


# What every cut of an entry makes is in frozen/test_encoded.py.
@pytest.mark.parametrize("damage", but([damage_entry, cut_entry, damage_chunk, lose_tensor], cut_entry))
def test_what_is_damaged_is_made_again(damage: Callable[[], None]) -> None:
    assert read_bytes(centred) == 2 * X.nbytes
    damage()
    assert read_bytes(spread) in (X.nbytes, 2 * X.nbytes, 3 * X.nbytes)
    assert read_bytes(centred) <= X.nbytes
    assert read_bytes(centred) == read_bytes(spread) == 0
    damage()
    assert read_bytes(centred) > 0


@pytest.mark.parametrize("rows", [0, 1, 4, 5])
def test_degenerate_sizes(rows: int) -> None:
    for _ in range(2):
        read_bytes(centred if rows else total, stored(X[:rows]))


@pytest.mark.parametrize("dtype", [np.int8, jnp.bfloat16, np.complex64])
def test_other_dtypes(dtype: Any) -> None:
    program = tp.scan(agg.Sum(), "row c -> row c", over="row") >> tp.Map(lambda a: a + a)
    x = X.astype(dtype)
    first, second = (tp.stream(program, OVER, x, cache="cache").run() for _ in range(2))
    assert first.dtype == second.dtype and first.tobytes() == second.tobytes()


def test_a_mesh_finds_what_one_device_has_made() -> None:
    assert read_bytes(centred) == 2 * X.nbytes
    mesh = tp.mesh(data=2)
    assert read_bytes(centred, over={"row": ("data", tp.chunks(size=2))}, mesh=mesh) == 0
    assert read_bytes(spread, over={"row": ("data", tp.chunks(size=2))}, mesh=mesh) == X.nbytes


def test_a_cache_is_made_smaller_but_not_under_a_job() -> None:
    read_bytes(centred)
    read_bytes(spread)
    left = tp.prune_cache("cache", "1MiB")
    assert left > 2 * X.nbytes / 3 and read_bytes(spread) == read_bytes(centred) == 0
    Path("cache/" + "0" * 64 + "-0123456789abcdef.zarr.partial").mkdir()
    assert 0 < tp.prune_cache("cache", left - 1) < left and not list(Path("cache").glob("*.partial"))
    assert read_bytes(centred) == 0  # asked for last
    assert tp.prune_cache("cache") == 0 and [each.name for each in Path("cache").iterdir()] == ["lock"]

    def rows() -> Any:
        with pytest.raises(StreamError, match="cache belongs to a job that is running"):
            tp.prune_cache("cache")
        yield X

    graph = tp.trace(total, tp.TensorType({"row": 23, "c": 3}))
    np.testing.assert_allclose(tp.stream(graph, OVER, rows(), cache="cache").run(), X.sum(0))
    assert [each.name for each in Path("cache").iterdir()] == ["lock"]  # what arrives has no fingerprint


def test_what_cannot_be_cached_is_refused() -> None:
    with pytest.raises(StreamError, match=r"cache= of tp.stream is a folder"):
        tp.stream(total, OVER, X, cache=3)
    for folder in ("cache", "cache/run", "."):
        with pytest.raises(tp.PlanError, match="cache= and checkpoint= are in each other's way"):
            tp.stream(total, OVER, X, cache="cache", checkpoint=folder)
    job = tp.stream(total, OVER, X, cache="cache")
    job.run()
    with pytest.raises(tp.PlanError, match="found in cache= has no state to go on from"):
        job.extend(X)
    with pytest.raises(tp.PlanError, match="prune_cache takes the folder of a cache"):
        tp.prune_cache("nowhere")


def test_pruning_leaves_what_is_not_the_caches_own() -> None:
    np.save("data.npy", X)
    others = [Path("mine") / name for name in ("precious.zarr", "thesis.entry", "a.partial", "b.filled", "0.replaced")]
    for other in others:
        other.mkdir(parents=True)
        (other / "inside").write_text("kept")
    spread_into = tp.create("mine/result.zarr")
    tp.stream(spread, OVER, tp.open("data.npy"), spread_into, cache="mine").run()
    tp.stream(total, OVER, tp.open("data.npy"), cache="mine").run()
    assert tp.prune_cache("mine", "1GiB") > 0
    assert tp.prune_cache("mine") == 0
    assert {*Path("mine").iterdir()} == {*others, Path("mine/lock"), Path("mine/result.zarr")}
    assert all((other / "inside").read_text() == "kept" for other in others)


def test_what_pruning_does_not_take_is_told() -> None:
    with pytest.raises(tp.PlanError, match=r"got '.*nowhere', which is no folder|got nowhere, which is no folder"):
        tp.prune_cache("nowhere")
    Path("cache").mkdir()
    with pytest.raises(tp.PlanError, match=r"keep= of tp.prune_cache is an amount of bytes"):
        tp.prune_cache("cache", "much")


KILLED = """
import os, signal, sys
import jax
jax.config.update("jax_platforms", "cpu")
import tapestry_jax as tp
sys.path.insert(0, sys.argv[1])
from test_cached import OVER, spread
job, left, sync = tp.stream(spread, OVER, tp.open("x.npy"), cache="cache"), int(sys.argv[2]), os.fsync

def counted(handle):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    sync(handle)

os.fsync = counted
job.run()
"""


def killed_at(number: int) -> int:
    """A process that runs `spread` and is killed when it brings something to the disk for so many times."""
    return run(KILLED, Path(__file__).parent, number).returncode


def test_a_job_that_is_killed_leaves_what_it_has_finished() -> None:
    assert killed_at(2) == -signal.SIGKILL
    assert read_bytes(spread) == X.nbytes  # the mean is there
    assert read_bytes(spread) == 0
    tp.prune_cache("cache", "1MiB")
    assert {path.suffix for path in Path("cache").iterdir()} == {"", ".entry"}


def test_jobs_at_once_share_a_cache() -> None:
    with ThreadPoolExecutor(4) as pool:
        read = [*pool.map(lambda _: read_bytes(spread), range(4))]
    assert all(each in (0, X.nbytes, 2 * X.nbytes) for each in read) and read_bytes(spread) == 0


def test_a_fold_inside_of_small_steps_is_found_by_others() -> None:
    ends = tp.fold(agg.MinMax(), "row c -> c")

    def size(x: Any) -> Any:
        return tp.Map(jnp.abs)(ends(x)["min"])

    graph = tp.trace(size, tp.TensorType({"row": 23, "c": 3}))
    assert read_bytes(graph, want=np.abs(X.min(0))) == X.nbytes
    assert read_bytes(ends) == 0


def test_a_plan_that_carries_folds_in_another_dtype_is_run_whole() -> None:
    x = X.astype(jnp.bfloat16)
    graph = tp.trace(centred, tp.TensorType({"row": 23, "c": 3}, jnp.bfloat16))
    mean = graph.observe("y")

    def job(program: Any, **options: Any) -> Any:
        plan = tp.plan(program, tp.mesh(device=1), {"row": tp.chunks(size=4)}, **options)
        made = tp.stream(plan, sources=x, cache="cache")
        return np.asarray(made.run(), np.float32), made.metrics.stage("read").bytes

    plain, exact = job(mean), job(mean, accumulate="float32")
    assert plain[1] == exact[1] == 2 * x.nbytes
    assert job(mean)[1] == job(mean, accumulate="float32")[1] == 0
    both = job(
        tp.trace(lambda a: tp.Map(abs)(centred(a)), tp.TensorType({"row": 23, "c": 3}, jnp.bfloat16)),
        accumulate="float32",
    )
    assert both[1] == 2 * x.nbytes and (both[0] == abs(exact[0])).all()


def test_what_a_stream_carries_wide_by_itself_is_not_run_whole() -> None:
    @tp.program("row c -> row c")
    def shifted(a: Any) -> Any:
        return a - tp.fold(agg.Sum(), "row c -> c")(a)

    def read(program: Any, x: Any) -> int:
        job = tp.stream(program, {"row": tp.chunks(size=4)}, x, cache="cache")
        job.run()
        return job.metrics.stage("read").bytes // x.nbytes

    for x in (X, X.astype(jnp.bfloat16)):
        # The sum is known from the first: the second pass alone is left.
        assert [read(tp.fold(agg.Sum(), "row c -> c"), x), read(shifted, x)] == [1, 1]


def test_outputs_that_are_known_are_not_computed_beside_others() -> None:
    read_bytes(centred)
    kinds = [tp.TensorType({"row": 23, "c": 3})] * 2
    both = tp.trace(lambda a, b: (centred(a), total(b)), *kinds)
    job = tp.stream(both, OVER, (tp.open("x.npy"), X + 1), cache="cache")
    first, second = job.run()
    np.testing.assert_allclose(first, X - X.mean(0), atol=1e-5)
    np.testing.assert_allclose(second, (X + 1).sum(0))
    assert job.metrics.stage("read").bytes == X.nbytes


@pytest.mark.filterwarnings("ignore:Error (writing|reading) persistent compilation cache")
def test_a_cache_that_may_not_be_written_to_is_told_before_anything_is_computed() -> None:
    with as_nobody() as folder:
        total, over = tp.fold(agg.Sum(), "row c -> c"), {"row": tp.chunks(size=2)}
        np.save(folder / "x.npy", np.ones((4, 2), np.float32))
        source = tp.open(folder / "x.npy")
        tp.stream(total, over, source, cache=folder / "cache").run()
        read_only(folder / "cache")
        # What is there is read.
        assert tp.stream(total, over, source, cache=folder / "cache").run().tolist() == [4, 4]
        job = tp.stream(tp.fold(agg.Max(), "row c -> c"), over, source, cache=folder / "cache")
        with pytest.raises(StreamError, match=r"cannot keep a value\n.*denied\n  Let this process write there, or"):
            job.run()
        assert not job.meters
        with pytest.raises(StreamError, match=r"cannot be made smaller\n.*denied.*\n  Let this process write there"):
            tp.prune_cache(folder / "cache")
        next((folder / "cache").glob("*.entry")).chmod(0)
        with pytest.raises(StreamError, match=r"cannot be made smaller\n.*denied"):
            tp.prune_cache(folder / "cache", "1GiB")
