"""The public functions of laws, every argument, the table of wrong values: only typed errors come out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tapestry_jax as tp
from tests.laws.counterexamples.test_tokens import CONTENT, PLUS, token
from tests.tapestry_jax.test_arguments import FLAG, GRAPH, LISTS, MESH, NAMES, PLAN, WRONG, X, outcomes

laws = tp.laws
ONE: dict[str, Any] = {"piece": PLUS, "laws": "associativity", "examples": 1}
TYPES = LISTS | {"[1, 2]", "(None,)"}
FUNCTION = {"None", "()", "class"}  # an empty tuple is what is passed where nothing is
VALUES = LISTS | {"[1, 2]", "['a']", "(None,)", "array", "jax array", "objects"}
NAME = NAMES | {"()"}
SEEDS = {"0", "1", "10**30", "np.int64"}
OPTIONS = {
    "piece": set[str](),
    "types": TYPES,
    "lift": FUNCTION,
    "values": VALUES,
    "observe": FUNCTION,
    "laws": {"None", "()"},
    "name": NAME,
    "known": LISTS,
    "examples": {"1", "np.int64"},
    "seed": SEEDS,
}
POINT = jax.ShapeDtypeStruct((), jnp.float32)
STRUCT = jax.ShapeDtypeStruct((3,), jnp.float32)
BOUND = {"None", "True", "-2", "0", "1", "2.7", "inf", "10**30", "np.int64", "np.float32", "np.bool_"}
LISTED = {"bytes", "[1, 2]", "()", "{1: a}", "set", "array", "range"}

SUBJECTS: dict[str, tuple[Callable[..., Any], dict[str, set[str]]]] = {
    "check": (lambda **k: laws.check(**(ONE | k)), OPTIONS),
    "examine": (lambda **k: laws.examine(**(ONE | k)), OPTIONS | {"shrink": FLAG}),
    "given": (
        lambda **k: laws.check(laws.given(**({"piece": PLUS} | k))),
        {name: accepted for name, accepted in OPTIONS.items() if name not in ("examples", "seed")},
    ),
    "mutants": (lambda **k: laws.mutants(**(ONE | {"laws": "left_identity"} | k)), {"only": set()}),
    "replay": (
        lambda **k: laws.replay(**({"token": token(CONTENT), "piece": PLUS} | k)),
        {"token": set(), "piece": set(), "types": TYPES, "lift": FUNCTION, "values": VALUES, "name": NAME},
    ),
    "assert_equivalent": (
        lambda **k: laws.assert_equivalent(**({"plan": PLAN} | k)),
        {"plan": set(), "grads": set(), "args": set(), "seed": set(), "name": set()},
    ),
    "known_failing": (
        lambda **k: laws.known_failing(**({"law": CONTENT[0], "reason": "rounding"} | k)),
        {"law": NAMES - {"None"}, "reason": NAMES - {"None", "empty text"}, "counterexample": {"None"}},
    ),
    "Semiring": (
        lambda **k: laws.Semiring(**({"add": PLUS, "multiply": PLUS} | k)),
        {"add": set(), "multiply": set(), "name": NAMES},
    ),
    "Homomorphism": (
        lambda **k: laws.Homomorphism(**({"function": jnp.negative, "source": PLUS, "target": PLUS} | k)),
        {"function": {"class"}, "source": set(), "target": set(), "name": NAMES},
    ),
    "Action": (
        lambda **k: laws.Action(**({"act": jnp.add, "monoid": PLUS, "point": POINT} | k)),
        {"act": {"class"}, "monoid": set(), "name": NAMES}
        | {"point": {"array", "jax array", "struct", "type", "objects"} | {n for n in WRONG if n.startswith("np.")}},
    ),
    "values": (
        lambda **k: laws.values(**({"type": STRUCT} | k)).validate(),
        {
            "type": {"array", "jax array", "struct", "type", "np.int64", "np.float32", "np.bool_"},
            "min": BOUND,
            "max": BOUND,
            "elements": LISTED - {"()"} | {"None"},
            "special": LISTED,
        },
    ),
    "states": (
        lambda **k: laws.states(**({"piece": PLUS} | k)).validate(),
        {"piece": set(), "types": TYPES, "lift": FUNCTION, "values": VALUES},
    ),
    "partitions": (
        lambda **k: laws.partitions(**({"box": tp.Box((0,), (3,))} | k)).validate(),
        {"box": set(), "most": {"1", "10**30", "np.int64"}, "empty": FLAG},
    ),
    "plans": (
        lambda **k: laws.plans(**({"graph": GRAPH, "mesh": MESH} | k)).validate(),
        # What has no axes is a mesh of one device.
        {"graph": set(), "mesh": LISTS | {"empty text", "{}", "{a: 1}", "np.int64", "np.str_"} | FLAG | {"np.float32"}},
    ),
    "graphs": (
        lambda **k: laws.graphs(**k).validate(),
        {"most": {"0", "1", "10**30", "np.int64"}, "shapes": set()},
    ),
    "arrows": (
        lambda **k: laws.arrows(**({"type_in": X, "type_out": X} | k)).validate(),
        {"type_in": {"type"}, "type_out": {"type"}, "most": {"0", "1", "10**30", "np.int64"}},
    ),
    "parse": (lambda **k: laws.parse(**k), {"text": set()}),
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_wrong_values_are_typed_errors(subject: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call, arguments = SUBJECTS[subject]
    if subject in ("check", "given"):
        monkeypatch.delenv("PYTEST_CURRENT_TEST")  # inside of a test `check` refuses everything
    for argument, accepted in arguments.items():
        skipped = {"10**30"} if argument == "examples" else {"None", "empty text", *LISTS} if argument == "only" else ()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy and JAX warn of what they convert
            found = dict(outcomes(call, argument, without=skipped))
        raw = {name: error for name, error in found.items() if error and not isinstance(error, tp.TapestryError)}
        assert not raw, f"{subject}({argument}=...)"
        assert {name for name, error in found.items() if error is None} <= accepted, f"{subject}({argument}=...)"
