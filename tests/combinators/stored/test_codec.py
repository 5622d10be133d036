"""Kernels as JSON: what is stored, what is refused when writing, and what is refused when reading."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator
import sys
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from combinators.errors import FormatError, KernelError
from combinators.stored.codec import decode as decode_named
from combinators.stored.codec import encode
from combinators.stored.readable import Readable
from tests.ids import stable_id


@dataclasses.dataclass(frozen=True)
class Scaled:
    inner: Any
    factor: float = 1.0
    cached: int = dataclasses.field(default=7, init=False)

    def __post_init__(self) -> None:
        if self.factor == 13:
            raise ValueError("13 is refused")


@dataclasses.dataclass
class Thawed:
    factor: float = 1.0


def double(x: Any) -> Any:
    return x * 2


NUMBER = 3
# The reader of these tests trusts this module, and packages that are not there or lack what is named.
NAMES = Readable.of(("tests", "no_such_package", "jax.nn:no_such", "numpy:add"))


def decode(obj: Any, where: str = "kernel") -> Any:
    return decode_named(obj, where, NAMES)


# encode


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (2.5, 2.5),
        ("text", "text"),
        (math.inf, {"$float": "inf"}),
        (-math.inf, {"$float": "-inf"}),
        (math.nan, {"$float": "nan"}),
        ((1, (2,)), {"$tuple": [1, {"$tuple": [2]}]}),
        ([1, "a"], [1, "a"]),
        ({"a": 1}, {"a": 1}),
        ({"$a": 1}, {"$dict": [["$a", 1]]}),
        ({(1, 2): 3}, {"$dict": [[{"$tuple": [1, 2]}, 3]]}),
        (np.dtype("float32"), {"$dtype": "float32"}),
        (jnp.dtype(jnp.bfloat16), {"$dtype": "bfloat16"}),
        (jax.nn.gelu, {"$function": "jax.nn:gelu"}),
        (jax.nn.relu, {"$function": "jax.nn:relu"}),
        (jnp.add, {"$function": "jax.numpy:add"}),
        (jnp.float32, {"$function": "jax.numpy:float32"}),
        (np.add, {"$function": "numpy:add"}),
        (operator.add, {"$function": "operator:add"}),
        (math.sin, {"$function": "math:sin"}),
        (double, {"$function": f"{__name__}:double"}),
        (
            functools.partial(jnp.sum, axis=(0, 1)),
            {
                "$partial": {
                    "function": {"$function": "jax.numpy:sum"},
                    "arguments": [],
                    "keywords": {"axis": {"$tuple": [0, 1]}},
                }
            },
        ),
        (
            Scaled(jnp.tanh, 2.0),
            {
                "$dataclass": f"{__name__}:Scaled",
                "fields": {"inner": {"$function": "jax.numpy:tanh"}, "factor": 2.0},
            },
        ),
    ],
    ids=stable_id,
)
def test_encode_then_decode_gives_the_value_back(value: Any, stored: Any) -> None:
    assert encode(value) == stored
    text = json.dumps(encode(value), allow_nan=False)
    back = decode(json.loads(text))
    assert type(back) is type(value)
    if isinstance(value, functools.partial):
        assert (back.func, back.args, back.keywords) == (value.func, value.args, value.keywords)
    elif isinstance(value, float) and math.isnan(value):
        assert math.isnan(back)
    else:
        assert back == value
        assert not callable(value) or isinstance(value, Scaled) or back is value


def test_encode_keeps_the_kind_of_numbers() -> None:
    assert [type(item) for item in decode(json.loads(json.dumps(encode([1, 1.0, True, -0.0]))))] == [
        int,
        float,
        bool,
        float,
    ]
    assert math.copysign(1, decode(json.loads(json.dumps(encode(-0.0))))) == -1


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint32", "float16", "bfloat16", "complex64", "float8_e4m3fn", "int4"]
)
def test_dtypes_come_back(dtype: str) -> None:
    value = np.dtype(getattr(ml_dtypes, dtype, dtype))
    assert decode(encode(value)) == value


def _in_main() -> Any:
    def kernel(x: Any) -> Any:
        return x

    kernel.__module__, kernel.__qualname__ = "__main__", "kernel"
    return kernel


def _local_dataclass() -> Any:
    @dataclasses.dataclass(frozen=True)
    class Local:
        factor: int = 1

    return Local()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda x: x, "a lambda has no name"),
        (_in_main(), "`__main__` is another module in each process"),
        (_local_dataclass(), "`_local_dataclass.<locals>.Local` is local to a function"),
        (_local_dataclass, None),
        (jax.jit(double), "no import gives this very object"),
        (abs, "`builtins:abs` is of the standard library"),
        (functools.reduce, "is of the standard library"),
        (Thawed(), "its dataclass is not frozen"),
        (np.ones(2), "it is neither a callable nor a plain value"),
        (jnp.ones(2), "it is neither a callable nor a plain value"),
        (np.float32(1), "it is neither a callable nor a plain value"),
        (1j, "it is neither a callable nor a plain value"),
        ({1, 2}, "it is neither a callable nor a plain value"),
        (np.dtype([("a", "f4")]), "its name does not tell it"),
        (np.dtype(object), "its name does not tell it"),
    ],
    ids=stable_id,
)
def test_encode_says_why_a_value_cannot_be_stored(value: Any, reason: str | None) -> None:
    if reason is None:  # the function beside it, at the top level of this module, can
        assert encode(value) == {"$function": f"{__name__}:_local_dataclass"}
        return
    with pytest.raises(KernelError) as caught:
        encode(value, "the kernel of `mlp`")
    assert str(caught.value).startswith("the kernel of `mlp` cannot be stored: ")
    assert reason in str(caught.value)


def test_encode_error_text() -> None:
    with pytest.raises(KernelError) as caught:
        encode(_local_dataclass(), "kernel")
    assert str(caught.value) == (
        "kernel cannot be stored: `_local_dataclass.<locals>.Local` is local to a function.\n"
        "  got _local_dataclass.<locals>.Local(factor=1)\n"
        "  Define it at the top level of an importable module."
    )


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (functools.partial(jnp.add, lambda x: x), "kernel.arguments[0] cannot"),
        (functools.partial(lambda x: x, 1), "kernel.function cannot"),
        (Scaled(lambda x: x), "kernel.inner cannot"),
        ([1, (lambda x: x,)], "kernel[1][0] cannot"),
        ({"a": lambda x: x}, "kernel['a'] cannot"),
    ],
)
def test_encode_names_the_place_inside_a_value(value: Any, place: str) -> None:
    with pytest.raises(KernelError) as caught:
        encode(value)
    assert str(caught.value).startswith(place)


# decode


def _dataclass(name: str = f"{__name__}:Scaled", **fields: Any) -> dict[str, Any]:
    return {"$dataclass": name, "fields": fields}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"$unknown": 1}, "expected one of $function"),
        ({"$function": "jax.nn:gelu", "extra": 1}, "expected one of $function"),
        ({"$function": "jax.nn:gelu", "$tuple": []}, "expected one of $function"),
        ({"$dataclass": f"{__name__}:Scaled"}, "expected one of $function"),
        (object(), "expected a JSON value"),
        ({"$tuple": 3}, "expected a list"),
        ({"$float": "1e3"}, "expected inf, -inf or nan"),
        ({"$float": []}, "expected inf, -inf or nan"),
        ({"$dtype": "float33"}, "expected the name of a dtype"),
        ({"$dtype": "object"}, "expected the name of a dtype"),
        ({"$dtype": "float"}, "expected the name of a dtype"),
        ({"$dtype": "{broken"}, "expected the name of a dtype"),
        ({"$dtype": 3}, "expected a string"),
        ({"$dict": [[1]]}, "expected a key and a value"),
        ({"$dict": [[[], 1]]}, "expected a key that can be hashed"),
        ({"$function": 3}, "expected a string"),
        ({"$function": "jax.nn.gelu"}, 'expected a name such as "jax.nn:gelu"'),
        ({"$function": "jax.nn:gelu()"}, 'expected a name such as "jax.nn:gelu"'),
        ({"$function": "..jax:gelu"}, 'expected a name such as "jax.nn:gelu"'),
        ({"$function": "jax.nn:gelu\n"}, 'expected a name such as "jax.nn:gelu"'),
        ({"$function": f"{__name__}:NUMBER"}, "is not callable"),
        ({"$function": "jax.nn:no_such"}, "cannot be imported"),
        ({"$function": "no_such_package:f"}, "cannot be imported"),
        ({"$function": "os:system"}, "is of the standard library"),
        ({"$function": "builtins:eval"}, "is of the standard library"),
        ({"$function": "subprocess:Popen"}, "is of the standard library"),
        ({"$function": "posix:system"}, "is of the standard library"),
        ({"$function": "__main__:f"}, "is in `__main__`"),
        ({"$function": f"{__name__}:double.__globals__"}, "starts with two underscores"),
        ({"$function": f"{__name__}:Scaled.__init__"}, "starts with two underscores"),
        ({"$function": f"{__name__}:json.dumps"}, "cannot be imported"),
        ({"$function": "jax.numpy:__builtins__"}, "starts with two underscores"),
        ({"$function": f"{__name__}:functools.partial"}, "cannot be imported"),
        ({"$function": f"{__name__}:loads"}, "leads out of the packages that were allowed"),
        ({"$partial": {"function": {"$function": "jax.numpy:sum"}}}, "expected function, arguments and keywords"),
        ({"$partial": {"function": 3, "arguments": [], "keywords": {}}}, "expected a callable"),
        (
            {"$partial": {"function": {"$function": "jax.numpy:sum"}, "arguments": {}, "keywords": {}}},
            "expected a list",
        ),
        (
            {"$partial": {"function": {"$function": "jax.numpy:sum"}, "arguments": [], "keywords": []}},
            "expected an object",
        ),
        (_dataclass(f"{__name__}:Thawed", factor=1.0), "is not a frozen dataclass"),
        (_dataclass(f"{__name__}:double"), "is not a frozen dataclass"),
        (_dataclass("jax.nn:gelu"), "is not a frozen dataclass"),
        (_dataclass(factor=1.0), "expected the fields ['factor', 'inner']"),
        (_dataclass(factor=1.0, inner=1, other=2), "expected the fields ['factor', 'inner']"),
        (_dataclass(factor=1.0, inner=1, cached=2), "expected the fields ['factor', 'inner']"),
        (_dataclass(factor=13, inner=1), "ValueError: 13 is refused"),
    ],
    ids=stable_id,
)
def test_decode_refuses_edited_content(stored: Any, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "loads", json.loads, raising=False)
    with pytest.raises(FormatError) as caught:
        decode(stored, "node 3")
    assert "node 3" in str(caught.value)
    assert expected in str(caught.value)


def test_decode_names_the_place() -> None:
    stored = {"a": [1, {"$partial": {"function": {"$function": "os:system"}, "arguments": [], "keywords": {}}}]}
    with pytest.raises(FormatError) as caught:
        decode(stored, "node 3")
    assert str(caught.value) == (
        "node 3['a'][1].function: `os:system` is of the standard library, of which stored programs may name `math` and "
        "`operator` only.\n"
        "  Restore the file from what `to_json` wrote."
    )


def test_decode_says_what_to_install() -> None:
    with pytest.raises(FormatError) as caught:
        decode({"$function": "no_such_package.part:f"}, "node 3")
    assert str(caught.value) == (
        "node 3 cannot be imported.\n"
        "  `no_such_package.part:f` is needed\n"
        "  ModuleNotFoundError: No module named 'no_such_package'\n"
        "  Install the package of `no_such_package.part` in the version that the file was written with."
    )


def test_decode_refuses_endless_nesting() -> None:
    stored: Any = 1
    for _ in range(100_000):
        stored = [stored]
    with pytest.raises(FormatError, match="nested too deeply"):
        decode(stored)
