"""What a file may name: a fixed list, and the packages that its reader trusts.

Reading imports what a file names, and calls it while types are checked. So a name is looked up in a list before
anything is imported: our own kernels (`combinators.kernels.public_names`), array functions of JAX
(`combinators.stored.array_functions`), and whatever is defined in the packages that the reader allows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, cast, final

from combinators.errors import FormatError, GraphError, message, spelt
from combinators.frozen import dataclass
from combinators.kernels.names import resolve
from combinators.kernels.public_names import KERNELS, REFERENCES, place_of
from combinators.stored.array_functions import ARRAY_FUNCTIONS
from combinators.stored.json import REMEDY, malformed

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_LONGEST_NAME = 300
# Their modules hold array functions beside what reads, writes, calls back or computes at once.
_BY_NAME = frozenset({"jax", "jaxlib", "math", "numpy", "operator"})
# The parts of the standard library that kernels are made of. The rest cannot be allowed: it is not about arrays.
_STANDARD_ALLOWED = frozenset({"math", "operator", "_operator"})


@final
@dataclass(frozen=True)
class Readable:
    """What the names of a file may stand for.

    Attributes:
      packages: whose functions and frozen dataclasses may be imported and called, beside the fixed list.
      names: single ones that may, as `"module:name"`.
    """

    packages: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, allow: Sequence[str]) -> Readable:
        """Read the `allow=` of a caller.

        Args:
          allow: packages or modules, with all that lies inside, or single functions: `("mypackage", "jax.numpy:pad")`.

        Raises:
          GraphError: for what is neither, for the standard library, and for all of JAX or NumPy.
        """
        given: Any = allow
        listed = tuple(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else None
        if listed is None or not all(isinstance(name, str) and (_is_dotted(name) or _is_name(name)) for name in listed):
            raise GraphError(
                message(
                    "allow= names the packages whose functions a file may use.",
                    f"got {spelt(given)}",
                    remedy='Pass a tuple of names: allow=("mypackage",).',
                )
            )
        packages = tuple(name for name in listed if ":" not in name)
        names = tuple(name for name in listed if ":" in name)
        wide = [name for name in packages if name.partition(".")[0] in _BY_NAME]
        refused = wide + [name for name in packages if forbidden(f"{name}:f")] + [n for n in names if forbidden(n)]
        if refused:
            remedy = "Wrap what you need in a function of your own package, and allow that."
            if wide:
                remedy = f'Allow single functions of it: allow=("{wide[0]}:name",).'
            raise GraphError(
                message(f"allow= cannot open `{refused[0]}` to files.", "a file names array functions", remedy=remedy)
            )
        return cls(packages, names)

    def find(self, name: object, where: str, *, is_reference: bool = False) -> object:
        """Give what a name stands for.

        Args:
          name: from a file: `"module:qualified.name"`.
          where: the place in the file, as an error names it.
          is_reference: whether it stands as the reference of an aggregator.

        Raises:
          FormatError: when it is no name, is not allowed, cannot be imported, or leads to what is not allowed.
        """
        if not isinstance(name, str):
            raise malformed(where, "a string", name)
        if not _is_name(name):
            raise malformed(where, 'a name such as "jax.nn:gelu"', name)
        if name in ARRAY_FUNCTIONS:
            return _imported(name, name, where)
        if name in KERNELS or (is_reference and name in REFERENCES):
            return _imported(name, place_of(name), where)
        if (reason := forbidden(name)) is not None:
            raise FormatError(message(f"{where}: `{name}` {reason}.", remedy=REMEDY))
        if name in self.names:
            return _imported(name, name, where)
        if not self._allows(name.partition(":")[0]):
            raise self._refused(name, where)
        found = _imported(name, name, where)
        # A module holds what it imported itself: `package:system` is still the function of `os`.
        home = str(getattr(found, "__module__", None) or "")
        if isinstance(found, type(sys)) or (callable(found) and not self._allows(home)):
            origin = "a module" if isinstance(found, type(sys)) else f"defined in `{home or 'no module'}`"
            raise FormatError(
                message(
                    f"{where}: `{name}` leads out of the packages that were allowed.", f"it is {origin}", remedy=REMEDY
                )
            )
        return found

    def is_opened(self, name: str) -> bool:
        """Whether a name is one that the reader allowed, and not of the fixed list."""
        fixed = name in ARRAY_FUNCTIONS or name in KERNELS or name in REFERENCES
        return not fixed and (name in self.names or self._allows(name.partition(":")[0]))

    def _allows(self, module: str) -> bool:
        return any(module == package or module.startswith(f"{package}.") for package in self.packages)

    def _refused(self, name: str, where: str) -> FormatError:
        package = name.partition(":")[0].partition(".")[0]
        known = "a file may name this library's kernels and JAX's array functions"
        if self.packages or self.names:
            known += f", and what was allowed: {', '.join((*self.packages, *self.names))}"
        if package in ("combinators", "laws", "tapestry_jax"):
            return FormatError(message(f"{where}: `{name}` is no kernel of this library.", known, remedy=REMEDY))
        opened = name if package in _BY_NAME else package
        remedy = f'Pass allow=("{opened}",) if you trust that code: it is imported, and called while types are checked.'
        return FormatError(message(f"{where}: `{name}` is not among what a file may name.", known, remedy=remedy))


def forbidden(name: str) -> str | None:
    """Say why a name can neither be stored nor read, whatever is allowed; None where it can."""
    module, _, qualified = name.partition(":")
    if is_standard(module):
        return "is of the standard library, of which stored programs may name `math` and `operator` only"
    if module.partition(".")[0] == "__main__":
        return "is in `__main__`, which is another module in each process"
    if any(part.startswith("__") for part in (*module.split("."), *qualified.split("."))):
        return "leads through a name that starts with two underscores"
    return None


def is_private(name: str) -> bool:
    """Tell whether a name is one of ours that was never published: those of lifted functions, which hold primitives."""
    return name.partition(".")[0] in ("combinators", "tapestry_jax") and name not in KERNELS | REFERENCES


def is_standard(module: str) -> bool:
    """Tell whether a module is of the standard library, other than those kernels are made of."""
    return module.partition(".")[0] in sys.stdlib_module_names and module not in _STANDARD_ALLOWED


def _imported(name: str, place: str, where: str) -> object:
    module, _, qualified = place.partition(":")
    try:
        return resolve(module, qualified)
    except (Exception, SystemExit) as error:  # the body of a module may raise anything
        details = (f"`{name}` is needed", f"{type(error).__name__}: {error}"[:300])
        remedy = f"Install the package of `{module}` in the version that the file was written with."
        raise FormatError(message(f"{where} cannot be imported.", *details, remedy=remedy)) from error


def _is_name(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None


def _is_dotted(name: str) -> bool:
    return bool(name) and all(part.isidentifier() for part in name.split("."))
