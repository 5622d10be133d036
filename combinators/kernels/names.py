"""Public importable names of functions: what a stored program writes in place of a kernel.

`jax.nn.gelu` says that it lives in `jax._src.nn.functions`, a ufunc of `jax.numpy` has no qualified name, and
`operator.add` says `_operator`. A stored name has to outlive such details, so the name that users import is searched
for and then checked: importing it must give the very same object.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from combinators.kernels.public_names import published

# Where JAX publishes what it defines under `jax._src`, in the order in which an alias is preferred.
_JAX_PUBLIC_MODULES = (
    "jax.nn",
    "jax.numpy",
    "jax.lax",
    "jax.numpy.linalg",
    "jax.numpy.fft",
    "jax.scipy.special",
    "jax.scipy.linalg",
    "jax.nn.initializers",
    "jax.random",
    "jax",
)


def public_name(value: object) -> str | None:
    """Find the name under which a function, a class or another named callable can be imported.

    Args:
      value: a function, a class, a ufunc, a jitted function or anything else that carries its name.

    Returns:
      `"module:qualified.name"`, such as `"jax.nn:gelu"`, of which an import gives the very same object. None for what
      no import gives: a lambda, a local function, something defined in `__main__`, a partial. Kernels of this library
      have the names under which they were published, see `combinators.kernels.public_names`.

    Example:
      >>> import jax
      >>> public_name(jax.nn.gelu)
      'jax.nn:gelu'
      >>> public_name(lambda x: x) is None
      True
    """
    module = _text_attribute(value, "__module__")
    name = _text_attribute(value, "__qualname__") or _text_attribute(value, "__name__")
    if module is None or name is None or "<" in name or module.partition(".")[0] == "__main__":
        return None
    for candidate in _candidate_modules(module):
        if _gives(candidate, name, value):
            return published(f"{candidate}:{name}")
    return _assigned_name(module, value)


def resolve(module: str, name: str) -> object:
    """Import a module and walk to an attribute through classes, never through other modules.

    Args:
      module: dotted name of the module.
      name: dotted path of the attribute inside the module.

    Returns:
      The object.

    Raises:
      ImportError: when there is no such module.
      AttributeError: when the module has no such attribute, or the path leads through something that is no class.
    """
    found: object = sys.modules.get(module) or importlib.import_module(module)
    for index, part in enumerate(name.split(".")):
        # Only modules and classes define qualified names; a walk through an imported module would reach anything.
        if index > 0 and not isinstance(found, type):
            raise AttributeError(f"`{part}` of `{name}` is looked up on something that is not a class")
        found = getattr(found, part)
    return found


def _candidate_modules(module: str) -> Iterator[str]:
    """Yield the modules that may publish what `module` defines, the preferred ones first."""
    parts = module.split(".")
    private = next((index for index, part in enumerate(parts) if part.startswith("_")), len(parts))
    if private == len(parts):
        yield module
        return
    if parts[0] == "jax":
        yield from _JAX_PUBLIC_MODULES
    # `a._src.b.c` is published by `a.b.c`, or by one of its prefixes: `a.b`, `a`.
    visible = [part.lstrip("_") if index == 0 else part for index, part in enumerate(parts)]
    visible = [part for part in visible if part and not part.startswith("_")]
    for length in range(len(visible), 0, -1):
        yield ".".join(visible[:length])
    # A private module of a user's own package is still importable; the private modules of JAX move between releases.
    if parts[0] not in ("jax", "jaxlib", "numpy") and not parts[0].startswith("_"):
        yield module


def _gives(module: str, name: str, value: object) -> bool:
    """Tell whether importing this name gives this very object."""
    try:
        return resolve(module, name) is value
    except Exception:  # noqa: BLE001 - the body of a module that is only guessed may raise anything
        return False


def _assigned_name(module: str, value: object) -> str | None:
    """Find a value that its own module holds under another name: `normalize = jax.jit(_normalize)`."""
    found = sys.modules.get(module)
    if not isinstance(found, ModuleType) or any(part.startswith("_") for part in module.split(".")):
        return None
    attributes: dict[str, Any] = dict(vars(found))
    matches = (name for name, attribute in attributes.items() if attribute is value and not name.startswith("_"))
    return next((f"{module}:{name}" for name in matches), None)


def _text_attribute(value: object, attribute: str) -> str | None:
    """Read an attribute that should be text; objects are free to hold anything under these names."""
    try:
        found = getattr(value, attribute, None)
    except Exception:  # noqa: BLE001 - a property of a user's class may raise anything; it then has no name
        return None
    return found if isinstance(found, str) else None
