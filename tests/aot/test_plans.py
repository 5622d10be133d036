"""The collective contract on the production compilers, beside the gallery: forward and with gradients."""

from __future__ import annotations

import jax
import pytest

import tapestry_jax as tp
from tests.aot.held import assert_held
from tests.aot.plans import PLANS


@pytest.mark.parametrize("grad", [False, True], ids=["forward", "gradients"])
@pytest.mark.parametrize("name", PLANS)
def test_what_is_predicted_is_compiled(name: str, grad: bool, machine: str) -> None:
    devices = list(tp.topology(machine, all=8).devices.flat)
    # At their usual precision TPUs round the operands of a product before they send them: half is sent.
    with jax.default_matmul_precision("highest"):
        assert_held(PLANS[name](devices).compile_only(grad=grad))


def test_what_is_compiled_again_is_not_read_from_the_cache_of_compilations(machine: str) -> None:
    plan = PLANS["halos"](list(tp.topology(machine, all=8).devices.flat))
    # JAX finds the first one in its cache, cannot load it, and warns; warnings are errors here.
    assert str(plan.compile_only()) == str(plan.compile_only())
