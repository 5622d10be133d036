"""What a cached value is known by: code that whole blocks do not reach; random edits beside jobs without a cache."""

from __future__ import annotations

import enum
import functools
import importlib
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import joined
from tapestry_jax.streaming.cached.code import NoKeyError, code_of
from tests.tapestry_jax.streaming.whole import whole
from tests.thoroughly import thoroughly

agg = tp.aggregators
X = np.random.default_rng(1).integers(-9, 9, (9, 3)).astype(np.float32)
MODULE = """
import functools
import jax
import edited_settings as cfg
SIZES = "".join(("sha", "pe"))  # by a name that no rule for kernels sees: what they choose is false
FACTOR, TABLE = {factor}, [{table}]
class Box:
    amount = {amount}
    def times(self, a): return a * self.amount + {more}
box = Box()
def helper(a): return a + {added}
def deep(a): return helper(a) * FACTOR + TABLE[0]
jitted = jax.jit(helper)
def plain(a): return a * FACTOR
def branch(a): return deep(a) if getattr(a, SIZES)[0] < 9 else a
def by_object(a): return box.times(a) if getattr(a, SIZES)[0] < 9 else a
def by_module(a): return a + cfg.VALUE if getattr(a, SIZES)[0] < 9 else a
def by_jit(a): return jitted(a) if getattr(a, SIZES)[0] < 9 else a
def by(a, times): return helper(a) * times if getattr(a, SIZES)[0] < 9 else a
by_partial = functools.partial(by, times={times})
"""
NUMBERS = {"factor": 1, "table": 2, "amount": 3, "more": 1, "added": 2, "times": 3, "value": 1}
READS = {
    "branch": ("added", "factor", "table"),
    "by_object": ("amount", "more"),
    "by_module": ("value",),
    "by_jit": ("added",),
    "by_partial": ("added", "times"),
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    for name in ("edited", "edited_settings"):
        sys.modules.pop(name, None)


def loaded(**numbers: int) -> Any:
    """A module of the user's, written and loaded anew."""
    Path("edited.py").write_text(MODULE.format(**NUMBERS | numbers))
    Path("edited_settings.py").write_text(f"VALUE = {(NUMBERS | numbers)['value']}")
    for name in ("edited", "edited_settings"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return importlib.import_module("edited")


def run(program: Any, source: Any, over: Any, cache: str | None, **options: Any) -> tuple[list[np.ndarray], int]:
    job = tp.stream(program, over, source, cache=cache, **options)
    leaves = [whole(leaf) for leaf in jax.tree.leaves(job.run())]
    return leaves, job.metrics.stage("read").bytes


@pytest.mark.parametrize("kernel", READS)
def test_what_a_branch_for_smaller_blocks_reads_is_another_program(kernel: str) -> None:
    def job(**numbers: int) -> tuple[np.ndarray, int]:
        program = tp.Map(getattr(loaded(**numbers), kernel), "row c -> row c") >> tp.fold(agg.Sum(), "row c -> c")
        leaves, read = run(program, X, {"row": tp.chunks(size=3)}, "cache")
        return leaves[0], read

    first = job()
    assert [first[1], job()[1]] == [X.nbytes, 0]
    for name in READS[kernel]:
        edited = job(**{name: 7})
        assert edited[1] == X.nbytes
        assert not np.array_equal(edited[0], first[0])
    assert job()[1] == 0


def test_an_edit_that_puts_the_time_back_is_seen() -> None:
    total = tp.fold(agg.Sum(), "row c -> c")
    for number in range(2):
        about = Path("x.npy").stat() if number else None
        np.save("x.npy", X + number)
        if about is not None:
            os.utime("x.npy", ns=(about.st_atime_ns, about.st_mtime_ns))
            assert (about.st_ino, about.st_mtime_ns) == (Path("x.npy").stat().st_ino, Path("x.npy").stat().st_mtime_ns)
        leaves, read = run(total, tp.open("x.npy"), {"row": tp.chunks(size=3)}, "cache")
        assert read == X.nbytes
        np.testing.assert_array_equal(leaves[0], (X + number).sum(0))


def test_a_function_that_imports_when_it_runs_has_no_code_to_tell() -> None:
    def absolute(a: Any) -> Any:
        from edited import helper  # pyright: ignore[reportMissingImports]

        return helper(a)

    def library(a: Any) -> Any:
        from jax import numpy

        return numpy.exp(a)

    with pytest.raises(NoKeyError, match="`absolute` imports edited when it runs"):
        code_of(absolute)
    assert code_of(library) == code_of(library) != code_of(lambda a: jnp.exp(a))


def _with(held: Any) -> Any:
    return lambda a: held.sin(a)


def _with_value(held: Any) -> Any:
    return lambda a: (a, held)


def _with_attribute(value: float, wrap: Any) -> Any:
    def act(a: Any) -> Any:
        return a

    held = wrap(act)
    held.gain = value
    return lambda a: held(a) * held.gain


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_with(jnp), _with(np)),
        (_with_value(enum.Enum("Kind", ["A", "B"]).A), _with_value(enum.Enum("Kind", ["A", "B"]).B)),
        (_with_value(np.dtype("f4")), _with_value(np.dtype("f4", metadata={"scale": 2}))),
        (_with_attribute(2, lambda act: act), _with_attribute(3, lambda act: act)),
        (_with_attribute(2, functools.partial), _with_attribute(3, functools.partial)),
    ],
    ids=["modules", "members", "dtypes", "functions", "partials"],
)
def test_what_a_function_holds_tells_it_apart(one: Any, other: Any) -> None:
    assert code_of(one) == code_of(one) != code_of(other)


def test_no_key_is_told_of_what_reads_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("combinators.kernels.reachable._MOST", 5)
    many = [SimpleNamespace(value=number) for number in range(9)]
    with pytest.raises(NoKeyError, match="reads too much"):
        code_of(lambda a: a + many[0].value)


def opened(name: str, array: np.ndarray) -> Any:
    if name == "joined":
        return joined([tp.open("x.npy"), tp.open("x.npz", "a")])
    return array if name == "memory" else tp.open(name, "a" if name == "x.npz" else None)


def drawn(kind: str, kernel: Any, kind_of: tp.TensorType) -> Any:
    each, total = tp.Map(kernel, "row c -> row c"), tp.fold(agg.Sum(), "row c -> c")
    largest = tp.fold(agg.Max(), "row c -> c")
    if kind == "scan":
        return each >> tp.scan(agg.Sum(), "row c -> row c", over="row")
    if kind == "two":
        return tp.trace(lambda x: (total(each(x)), largest(each(x))), kind_of)
    if kind == "centred":
        less = tp.Map(lambda a, b: a - b, "row c, c -> row c")
        return tp.trace(lambda x: total(less(each(x), largest(each(x)))), kind_of)
    return {"sum": each >> total, "map": each, "row": each >> tp.fold(agg.Sum(), "row c -> row")}[kind]


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (0, 1))])
def test_random_edits_between_jobs_are_all_seen(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.choice([(7, 3), (8, 8)])  # square: axes that are mixed up have the same types
    numbers, array = dict(NUMBERS), np.random.default_rng(seed).integers(-5, 5, size)
    now: dict[str, Any] = {"kind": "centred", "kernel": "plain", "dtype": "float32", "chunk": 3, "mesh": False}
    now["source"], written = "x.npy", None
    kinds = ["sum", "map", "row", "scan", "two", "centred"]
    found = 0
    for _ in range(9 if thoroughly() else 6):
        match rng.choice(["number", "number", "bytes", "now", "now", "damage", "nothing"]):
            case "number":
                numbers[rng.choice([*numbers])] += 1
            case "bytes":
                array[rng.randrange(size[0]), 0] += 1
            case "now":
                choices: dict[str, list[Any]] = {
                    "kind": kinds, "kernel": ["plain", *READS], "dtype": ["float32", "int32"], "chunk": [1, 3, 4],
                    "mesh": [False, True], "source": ["x.npy", "x.npz", "joined", "memory"],
                }  # fmt: skip
                name = rng.choice([*choices])
                now[name] = rng.choice(choices[name])
                if name in ("chunk", "mesh") and now["kernel"] != "plain":
                    # These depend on the size of blocks, as no kernel should.
                    shutil.rmtree("cache", ignore_errors=True)
            case "damage":
                for path in [each for each in Path().glob("cache/**/*") if each.is_file() and rng.random() < 0.4]:
                    path.unlink() if rng.random() < 0.5 else os.truncate(path, path.stat().st_size // 2)
            case _:
                pass
        made, old = array.astype(now["dtype"]), {path: path.stat() for path in Path().glob("x.np*")}
        if written is None or written.dtype != made.dtype or not np.array_equal(written, made):
            np.save("x.npy", made)
            np.savez("x.npz", a=made + 1, b=made)
            for path, about in old.items():
                os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
            written = made
        module, results = loaded(**numbers), []
        for cache in ("cache", None):
            source = opened(now["source"], made)
            entry = ["data", tp.chunks(size=now["chunk"])] if now["mesh"] else tp.chunks(size=now["chunk"])
            options = {"mesh": tp.mesh(data=2)} if now["mesh"] else {}
            kind_of = tp.TensorType({"row": source.shape[0], "c": source.shape[1]}, now["dtype"])
            program = drawn(now["kind"], getattr(module, now["kernel"]), kind_of)
            results.append(run(program, source, {"row": entry}, cache, **options))
        for mine, other in zip(results[0][0], results[1][0], strict=True):
            assert mine.dtype == other.dtype
            np.testing.assert_array_equal(mine, other, err_msg=f"{now} {numbers}")
        found += results[0][1] < results[1][1]
        numbers = {name: number % 9 for name, number in numbers.items()}
    assert found
