"""What no rule knows: what it is called, where it was written, and primitives of others that say what they run."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.extend.core import Primitive

import tapestry_jax as tp
from combinators.kernels.jaxprs import programs_inside
from tapestry_jax.lifting.callables.place import place_of

X = np.random.default_rng(0).standard_normal((6, 8)).astype("f4")


def primitive(name: str, run: Any, like: Any) -> Any:
    """A primitive of another library, as equinox makes them: run by functions of JAX, without a derivative."""
    made = Primitive(name)
    made.def_impl(run)
    made.def_abstract_eval(like)
    return made


def truth(x: Any) -> Any:
    del x
    return jax.typeof(np.bool_(True))


ANY = primitive("some_any", lambda x: jnp.any(x), truth)
TWICE = primitive("twice", lambda x: x * 2, lambda x: x)
MEASURED = primitive("measured", lambda x: np.any(np.asarray(x)), truth)


def test_a_primitive_of_others_is_what_it_runs_where_it_has_no_derivative() -> None:
    def function(x: Any) -> Any:
        return jnp.where(ANY.bind(x > 5), 0.0, x * 2)

    graph = tp.lift(function, X)
    assert graph.opaque() == ()
    np.testing.assert_array_equal(graph(X), X * 2)


def test_one_that_could_have_a_derivative_or_wants_arrays_stays_opaque() -> None:
    assert [found.primitive for found in tp.lift(TWICE.bind, X).opaque()] == ["twice"]
    assert [found.primitive for found in tp.lift(lambda x: MEASURED.bind(x > 0), X).opaque()] == ["measured"]


def test_primitives_of_jax_are_not_run_for_what_they_hold() -> None:
    graph = tp.lift(lambda x: lax.reduce(x, jnp.int32(0), lambda a, b: a * 3 + b, (0,)), X.astype("i4"))
    assert [found.primitive for found in graph.opaque()] == ["reduce"]


def test_an_opaque_operation_in_what_others_jitted_is_told_by_the_line_that_calls_it() -> None:
    """Frames of what is jitted end at the call, and the library's own line says nothing to its user."""

    def function(x: Any) -> Any:
        return optax.losses.ctc_loss(x[None], jnp.zeros((1, 6)), jnp.ones((1, 2), int), jnp.zeros((1, 2))).sum()

    def places(jaxpr: Any, around: str) -> Any:
        for equation in jaxpr.eqns:
            own = place_of(equation, around)
            yield own
            for inner in programs_inside(equation):
                yield from places(getattr(inner, "jaxpr", inner), own)

    found = set(places(jax.make_jaxpr(function)(X).jaxpr, ""))
    assert len(found) == 1 and f"{__file__}:{inspect.getsourcelines(function)[1] + 1} " in found.pop()
