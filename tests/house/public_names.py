"""The public API as text, one name a line with its kind and signature: `python -m tests.house.public_names` prints it.

What is public is what an `__init__` hands on by name, and what a public module holds of its own. Of a class its fields,
properties, methods and operators are listed, inherited ones too, as far as they are ours. Where a thing is defined is
left out, so that files may move.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOTS = ("combinators", "laws", "tapestry_jax", "tapestry_jax.nnx")
PACKAGES = ("combinators", "laws", "tapestry_jax")
OPERATORS = frozenset(
    f"__{name}__"
    for name in (
        *("call", "getitem", "contains", "len", "iter", "neg", "pos", "abs", "invert", "lt", "le", "gt", "ge"),
        *(
            f"{side}{name}"
            for side in ("", "r")
            for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
        ),
        *(f"{side}{name}" for side in ("", "r") for name in ("rshift", "lshift", "and", "or", "xor")),
    )
)


def public_names() -> list[str]:
    """Every line, sorted."""
    return sorted({line for root in ROOTS for line in _of_module(root, importlib.import_module(root))})


def _of_module(called: str, module: ModuleType) -> Iterator[str]:
    for name in handed_on(module):
        found, path = getattr(module, name), f"{called}.{name}"
        if called == "tapestry_jax" and getattr(importlib.import_module("combinators"), name, None) is found:
            yield f"{path}  is combinators.{name}"
        elif isinstance(found, ModuleType):
            yield f"{path}  module"
            if f"{called}.{name}" not in ROOTS:
                yield from _of_module(path, found)
        else:
            yield from _of_thing(path, found)


def handed_on(module: ModuleType) -> list[str]:
    """What an `__init__` imports under its own name, now or for type checkers; of a file, what is defined in it."""
    source = Path(str(module.__file__))
    if source.name == "__init__.py":
        text = source.read_text(encoding="utf-8")
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
        listed = {alias.name for node in nodes for alias in node.names if alias.asname == alias.name}
        return sorted(name for name in {*listed, *getattr(module, "__all__", ())} if not name.startswith("_"))
    own = {name: found for name, found in vars(module).items() if not name.startswith("_")}
    return sorted(name for name, found in own.items() if getattr(found, "__module__", None) == module.__name__)


def _of_thing(path: str, thing: Any) -> Iterator[str]:
    if inspect.isclass(thing) and issubclass(thing, Exception):
        yield f"{path}  error, a {thing.__mro__[1].__name__}"
    elif inspect.isclass(thing):
        yield f"{path}  class {_signature(thing)}"
        yield from (f"{path}.{line}" for line in _members(thing))
    elif inspect.isfunction(thing):
        yield f"{path}  function {_signature(thing)}"
    else:
        yield f"{path}  {type(thing).__name__}"


def _members(kind: type[Any]) -> Iterator[str]:
    seen: set[str] = set()
    fields = {each.name for each in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set[str]()
    for name in sorted(name for name in fields if not name.startswith("_")):
        seen.add(name)
        yield f"{name}  field"
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] not in PACKAGES:
            continue
        for name, member in vars(base).items():
            if name in seen or (name.startswith("_") and name not in OPERATORS):
                continue
            seen.add(name)
            if isinstance(member, staticmethod | classmethod):
                yield f"{name}  {type(member).__name__} {_signature(getattr(kind, name))}"
            elif inspect.isfunction(member):
                yield f"{name}  method {_signature(member)}"
            else:
                yield f"{name}  {'property' if not isinstance(member, int | str | tuple) else 'attribute'}"


def _signature(thing: Any) -> str:
    # Flax makes its modules by a metaclass, which takes anything.
    is_made_by_init = inspect.isclass(thing) and inspect.isfunction(thing.__init__)
    signature = inspect.signature(thing.__init__ if is_made_by_init else thing)
    parameters = [
        each.replace(default=_Shown(each.default)) if each.default is not each.empty else each
        for each in list(signature.parameters.values())[is_made_by_init:]
    ]
    text = str(signature.replace(parameters=parameters))
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)


class _Shown:
    """A default as it is written, without the place where it is defined or lies in memory."""

    def __init__(self, default: Any) -> None:
        named = inspect.isclass(default) or inspect.isroutine(default)
        self._text = default.__name__ if named else re.sub(r" at 0x\w+", "", repr(default))

    def __repr__(self) -> str:
        return self._text


if __name__ == "__main__":
    print("\n".join(public_names()))
