"""The collective contract on the production compilers: every row of the gallery, forward and with gradients."""

from __future__ import annotations

from typing import Any

import jax
import pytest

import tapestry_jax as tp
from tests.aot.held import assert_held
from tests.example_modules import GALLERY, modules_of
from tests.examples.test_gallery import TINY

# It reads files while it runs, and JAX lowers callbacks for devices alone that are there.
ROWS = sorted(TINY.keys() - {"stored_statistics"})


@pytest.fixture(scope="module")
def gallery() -> Any:
    with modules_of(GALLERY) as load:
        yield load


@pytest.mark.parametrize("grad", [False, True], ids=["forward", "gradients"])
@pytest.mark.parametrize("row", ROWS)
def test_what_is_predicted_is_compiled(row: str, grad: bool, machine: str, gallery: Any) -> None:
    example = gallery(row).example(**TINY[row])
    devices = list(tp.topology(machine, all=8).devices.flat)
    # At their usual precision TPUs round the operands of a product before they send them: half is sent.
    with jax.default_matmul_precision("highest"):
        graph = tp.trace(example.program, *example.arguments)
        for planned in example.plans:
            mesh = tp.mesh(devices, **planned.mesh)
            seen = tp.plan(graph, mesh, planned.entries, **planned.options).compile_only(grad=grad)
            assert_held(seen, planned.known_as)
