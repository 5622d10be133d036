"""What users' code raises where it is only looked at: never a wrong answer, and never an interrupt that is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from combinators import Aggregator, monoids
from combinators.errors import GraphError, KernelError
from combinators.kernels.captured import check_captured, result_types
from combinators.kernels.elementwise import check_elementwise
from combinators.kernels.fingerprint import fingerprint
from combinators.kernels.names import public_name
from combinators.kernels.reachable import reachable_arrays

TABLE = np.arange(4, dtype=np.float32)  # a rule is looked at where it could reach an array
CELL = jax.ShapeDtypeStruct((4,), jnp.float32)


class Raising:
    """A kernel that raises, and so does its copy."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self.error

    def __call__(self, *blocks: Any) -> Any:
        raise self.error


class Nameless(Raising):
    @property
    def __name__(self) -> str:
        raise self.error


class RaisingMapping(Mapping[str, Any]):
    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __getitem__(self, key: str) -> Any:
        raise self.error

    def __iter__(self) -> Iterator[str]:
        raise self.error

    def __len__(self) -> int:
        return 1


def rule(error: type[BaseException]) -> Callable[..., Any]:
    """A kernel whose gradient raises."""

    @jax.custom_vjp
    def kernel(x: Any) -> Any:
        return jnp.sin(x)

    def backward(_: Any, cotangent: Any) -> Any:
        if cotangent.size:
            raise error
        return (cotangent * TABLE,)

    kernel.defvjp(lambda x: (jnp.sin(x), x), backward)
    return kernel


def sizes(error: type[BaseException]) -> Callable[..., Any]:
    """A kernel that works on blocks of some sizes."""

    def kernel(x: Any) -> Any:
        if x.shape[-1] > 8:
            raise error
        return jnp.sin(x)

    return kernel


def presents(error: type[BaseException]) -> Any:
    def present(state: Any) -> Any:
        raise error

    return Aggregator(lambda x: x, monoids.Sum, present).run(np.ones(3, np.float32))


LOOKS: dict[str, Callable[[type[BaseException]], Any]] = {
    "lift": lambda error: Aggregator(Raising(error), monoids.Sum, lambda state: state).run(np.ones(3, np.float32)),
    "present": presents,
    "captured": lambda error: check_captured(Raising(error), [CELL], "the kernel"),
    "rules": lambda error: result_types(rule(error), [CELL], "the kernel"),
    "fingerprint": lambda error: fingerprint(Raising(error)),
    "name": lambda error: public_name(Nameless(error)),
    "mapping": lambda error: (
        reachable_arrays(lambda x: RaisingMapping(error), "f") or reachable_arrays(RaisingMapping(error), "f")
    ),
    "elementwise": lambda error: check_elementwise(Raising(error), [CELL], "tp.Map(f)"),
    "sizes": lambda error: check_elementwise(sizes(error), [jax.ShapeDtypeStruct((4,), jnp.float32)], "tp.Map(f)"),
}
REFUSED = {
    "lift": GraphError,
    "present": GraphError,
    "fingerprint": KernelError,
    "elementwise": KernelError,
    "sizes": KernelError,
}
UNKNOWN = {"captured": None, "name": None, "mapping": []}


@pytest.mark.parametrize("look", LOOKS)
def test_an_interrupt_passes(look: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        LOOKS[look](KeyboardInterrupt)


@pytest.mark.parametrize("look", REFUSED)
def test_what_raises_is_refused(look: str) -> None:
    with pytest.raises(REFUSED[look]):
        LOOKS[look](ValueError)


@pytest.mark.parametrize("look", UNKNOWN)
def test_what_raises_is_unknown(look: str) -> None:
    assert LOOKS[look](ValueError) == UNKNOWN[look]


def test_a_kernel_whose_gradient_raises_is_one_without_a_gradient() -> None:
    kernel = rule(ArithmeticError)
    assert result_types(kernel, [CELL], "the kernel") == CELL
    with pytest.raises(ArithmeticError):
        jax.grad(lambda x: kernel(x).sum())(jnp.ones(4))
