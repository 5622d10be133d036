"""Every script of the gallery at tiny sizes, in one process: its plans equal the unplanned program.

Of each script the last plan; those before it, of kinds that the contract tests hold, are thorough. So are scripts whose
program, plain JAX and plans are held together by tests/tapestry_jax/shards/test_gallery.py, or whose kinds of plans by
contract tests.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tests.example_modules import GALLERY, modules_of

TINY: dict[str, dict[str, int]] = {
    "batch_norm": {"batch": 16, "feature": 4},
    "cross_entropy": {"token": 8, "embed": 2, "vocab": 32, "chunks": 8},
    "data_parallelism": {"batch": 16, "embed": 4, "mlp": 8, "chunks": 2},
    "flash_attention": {"heads": 2, "seq": 16, "d": 2, "chunks": 2},
    "fsdp": {"batch": 8, "layers": 2, "embed": 8, "mlp": 16},
    "megatron": {"batch": 2, "seq": 4, "embed": 8, "heads": 4, "mlp": 8},
    "parallel_scan": {"time": 24, "feature": 2},
    "pencil_fft": {"height": 8, "width": 16},
    "pipeline": {"layers": 4, "batch": 8, "embed": 4, "mlp": 8, "microbatches": 2},
    "ring_attention": {"heads": 2, "seq": 32, "d": 2, "chunks": 2},
    "stored_statistics": {"shards": 16, "rows": 4, "columns": 2, "chunks": 2},
    "stencil": {"y": 16, "x": 8, "steps": 2, "depth": 2},
}
HELD_BY_BLOCKS = (
    *("batch_norm", "cross_entropy", "data_parallelism", "flash_attention", "fsdp", "megatron", "parallel_scan"),
    *("pencil_fft", "pipeline", "stored_statistics"),
)
SCRIPTS = [pytest.param(script, marks=pytest.mark.thorough) if script in HELD_BY_BLOCKS else script for script in TINY]


@pytest.fixture
def load() -> Iterator[Any]:
    with modules_of(GALLERY) as load:
        yield load


@pytest.mark.parametrize("before", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["last", "before"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_gallery_plans_equal_the_program(
    script: str, before: bool, load: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def make() -> Any:
        example = load(script).example(**TINY[script])
        assert len(example.plans) > 1
        return dataclasses.replace(example, plans=example.plans[:-1] if before else example.plans[-1:])

    found = load("gallery").show(make, rounds=0)
    printed = capsys.readouterr().out
    assert found and printed.count("equal to the unplanned program") == len(found)


def test_gallery_lists_every_script() -> None:
    scripts = {path.stem for path in GALLERY.glob("*.py")} - {"gallery"}
    listed = re.findall(r"\]\((\w+)\.py\)", (GALLERY / "README.md").read_text(encoding="utf-8"))
    assert scripts == set(TINY) == set(listed) - {"gallery"}


def test_gallery_refuses_a_program_that_its_plan_changes(load: Any) -> None:
    # Norms of halves, summed: no homomorphism, but on ones alone, which no draw meets, as the program does not name it.
    wrong = tp.Reduce(
        lambda x: jnp.where(
            jnp.all(jnp.sin(x) == jnp.sin(jnp.float32(1)), axis=0), jnp.linalg.norm(x, axis=0), x.sum(0)
        ),
        "row col -> col",
        tp.monoids.Sum,
    )
    gallery = load("gallery")

    def example() -> Any:
        return gallery.Example(wrong, (jnp.ones((8, 2)),), plans, lambda x: jnp.linalg.norm(x, axis=0))

    plans = [gallery.Planned("a norm of norms", {"row": "data"})]
    with pytest.raises(AssertionError, match="a norm of norms: differs from the unplanned program by"):
        gallery.show(example, rounds=0)
