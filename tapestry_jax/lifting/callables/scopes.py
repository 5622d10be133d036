"""Where in a model an equation stands: nnx modules tell their paths while they are traced, as linen ones do."""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import Any

import jax

_MARK = "module:"
_PATH = "_tapestry_path"
# What transformations write around the scopes that they are applied in: `vmap(jvp(decoder/norm))`.
_TRANSFORMS = re.compile(r"\b\w+\(([^()]*)\)")
# `jnp.einsum` opens a scope of its specification, such as `BTNH,BSNH->BNTS`.
_SPEC = "->"


def with_scopes(module: Any) -> Any:
    """The module, each module in which opens a scope of its path when it is called.

    Args:
      module: of `flax.nnx`, made for one trace; nobody else holds it.
    """
    nnx: Any = sys.modules["flax.nnx"]
    for path, part in nnx.iter_modules(module):
        if path and callable(part):
            object.__setattr__(part, _PATH, "/".join(map(str, path)))
            part.__class__ = _scoped(type(part))
    return module


@cache
def _scoped(kind: Any) -> Any:
    """A class of modules whose calls open scopes: it stands in the place of its only base."""

    def call(self: Any, *args: Any, **options: Any) -> Any:
        with jax.named_scope(_MARK + getattr(self, _PATH)):
            return kind.__call__(self, *args, **options)

    told = {"__call__": call, "__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind)(kind.__name__, (kind,), told)


def scope_of(equation: Any, around: str, root: str) -> str:
    """The path of the module that an equation was written in, and scopes that users opened in it.

    Args:
      equation: of a jaxpr.
      around: the scope of the call that the equation stands in.
      root: what scopes begin with that say the whole program.
    """
    told = str(getattr(equation.source_info, "name_stack", ""))
    while (inner := _TRANSFORMS.sub(r"\1", told)) != told:
        told = inner
    _, mark, inside = told.rpartition(_MARK)
    if mark:
        around, told = "", inside
    parts = [part for part in told.split("/") if part and not part.startswith(f"{root}.") and _SPEC not in part]
    if parts and parts[0] == root:
        around, parts = "", parts[1:]
    return "/".join([*([around] if around else []), *(re.sub(r"[^\w.-]", "_", part) for part in parts)])
