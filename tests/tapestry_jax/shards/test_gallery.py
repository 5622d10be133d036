"""Every plan of the gallery, block by block: proved, its values the program's and plain JAX's, and lowered so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import tapestry_jax as tp
from tests.example_modules import GALLERY, modules_of
from tests.examples.test_gallery import TINY


@pytest.fixture(scope="module")
def load() -> Iterator[Any]:
    with modules_of(GALLERY) as load:
        yield load


# Their folds, scans, rings and halos are among the others and in lowered/test_cells.py, gradients over the batch in
# fsdp, a loss over a cut vocabulary in contract/test_folds.py.
THOROUGH = (
    "cross_entropy",
    "data_parallelism",
    "flash_attention",
    "parallel_scan",
    "megatron",
    "stencil",
    "ring_attention",
    "batch_norm",
)


@pytest.mark.parametrize(
    "script", [pytest.param(script, marks=[pytest.mark.thorough] * (script in THOROUGH)) for script in TINY]
)
def test_plans_of_the_gallery_are_proved_run_and_lowered_as_their_blocks_say(script: str, load: Any) -> None:
    example = load(script).example(**TINY[script])
    graph = tp.trace(example.program, *example.arguments)
    wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(graph(*example.arguments))]
    for plain, want in zip(jax.tree.leaves(example.automatic(*example.arguments)), wanted, strict=True):
        np.testing.assert_allclose(plain, want, rtol=1e-4, atol=1e-4, err_msg="plain JAX")
    for planned in example.plans:
        plan = tp.plan(graph, tp.mesh(**planned.mesh), planned.entries, **planned.options)
        shards = plan.shards()
        shards.verify(graph)
        assert shards.abstract() == graph and shards.abstract().key == graph.key, planned.known_as
        for got, want in zip(jax.tree.leaves(shards.run(*example.arguments)), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=planned.known_as)
        shards.verify_lowered(plan.compile().jaxpr(), cells=True)
