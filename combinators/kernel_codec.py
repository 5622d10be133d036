"""Kernels and plain values as JSON: what a stored graph says instead of holding Python objects.

A callable is stored as the public name under which it can be imported, never as code. Reading one back only imports:
nothing is unpickled or evaluated, and the standard library, most of which is not about arrays, cannot be named.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from combinators.errors import FormatError, KernelError, message
from combinators.kernel_names import public_name, resolve

# The parts of the standard library that kernels are made of.
_STANDARD_ALLOWED = frozenset({"math", "operator", "_operator"})
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def encode(value: object, where: str = "kernel") -> Any:
    """Turn a callable or a plain value into what the `json` module writes.

    Args:
      value: a callable with a public name; a `functools.partial` or a frozen dataclass instance of values that can be
        stored; None, a bool, an int, a float, a string, a dtype; a tuple, a list or a dict of these.
      where: what the value is, as an error names it.

    Returns:
      None, booleans, numbers, strings, lists and dicts with string keys. What JSON lacks is a dict with one key that
      starts with `$`: `{"$function": "jax.nn:gelu"}`, `{"$tuple": [...]}`, `{"$float": "inf"}`.

    Raises:
      KernelError: when the value, or something in it, has no public name or is of another kind.
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if type(value) is tuple:
        return {"$tuple": _encode_items(value, where)}
    if type(value) is list:
        return _encode_items(cast("list[object]", value), where)
    if type(value) is dict:
        return _encode_dict(cast("dict[object, object]", value), where)
    if isinstance(value, np.dtype):
        return _encode_dtype(cast("np.dtype[Any]", value), where)
    if type(value) is functools.partial:
        partial = cast("functools.partial[object]", value)
        stored = {
            "function": encode(partial.func, f"{where}.function"),
            "arguments": _encode_items(partial.args, f"{where}.arguments"),
            "keywords": {name: encode(item, f"{where}.{name}") for name, item in partial.keywords.items()},
        }
        return {"$partial": stored}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _encode_dataclass(value, where)
    if callable(value):
        return {"$function": _storable_name(value, where, value)}
    raise _unstorable(where, value, "it is neither a callable nor a plain value", "Store it apart, as an operand.")


def decode(obj: object, where: str = "kernel") -> Any:
    """Turn what `encode` made back into the value.

    Args:
      obj: what the `json` module read.
      where: what the value is, as an error names it.

    Returns:
      The value; callables are imported by their names.

    Raises:
      FormatError: when the content is not what `encode` writes, or names something that cannot be imported, is no
        callable, no frozen dataclass, or belongs to the standard library.
    """
    try:
        return _decode(obj, where)
    except RecursionError:
        raise FormatError(message(f"{where} is nested too deeply to be read.", remedy=_RESTORE)) from None


def _encode_items(items: tuple[object, ...] | list[object], where: str) -> list[Any]:
    """Encode the items of a tuple or a list."""
    return [encode(item, f"{where}[{index}]") for index, item in enumerate(items)]


def _encode_dict(value: dict[object, object], where: str) -> Any:
    """Encode a dict; as a list of pairs where its keys are not plain strings, or look like ours."""
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {str(key): encode(item, f"{where}[{key!r}]") for key, item in value.items()}
    pairs = [[encode(key, f"a key of {where}"), encode(item, f"{where}[{key!r}]")] for key, item in value.items()]
    return {"$dict": pairs}


def _encode_dtype(dtype: np.dtype[Any], where: str) -> dict[str, str]:
    """Encode a dtype by its name, where the name tells all of it."""
    if not _is_named(dtype):
        raise _unstorable(where, dtype, "its name does not tell it", "Use a dtype that jax.numpy names.")
    return {"$dtype": dtype.name}


def _encode_dataclass(value: Any, where: str) -> dict[str, Any]:
    """Encode an instance of a frozen dataclass by the name of the class and its fields."""
    if not type(value).__dataclass_params__.frozen:
        remedy = f"Declare `{type(value).__name__}` with @dataclass(frozen=True)."
        raise _unstorable(where, value, "its dataclass is not frozen", remedy)
    name = _storable_name(type(value), where, value)
    names = [field.name for field in dataclasses.fields(value) if field.init]
    return {"$dataclass": name, "fields": {name: encode(getattr(value, name), f"{where}.{name}") for name in names}}


def _storable_name(value: Any, where: str, got: object) -> str:
    """Give the public name of a callable that may be stored; an error shows what was `got`."""
    name = public_name(value)
    if name is not None:
        if (forbidden := _forbidden(name)) is None:
            return name
        raise _unstorable(where, got, f"`{name}` {forbidden}", "Wrap it in a function of your own module.")
    qualified = str(getattr(value, "__qualname__", getattr(value, "__name__", "")))
    if "<lambda>" in qualified:
        reason = "a lambda has no name"
    elif "<locals>" in qualified:
        reason = f"`{qualified}` is local to a function"
    elif getattr(value, "__module__", None) == "__main__":
        reason = "`__main__` is another module in each process"
    else:
        reason = "no import gives this very object"
    raise _unstorable(where, got, reason, "Define it at the top level of an importable module.")


def _unstorable(where: str, value: object, reason: str, remedy: str) -> KernelError:
    """Build the error for a value that JSON cannot hold."""
    return KernelError(message(f"{where} cannot be stored: {reason}.", f"got {value!r}"[:200], remedy=remedy))


_RESTORE = "Restore the file from what `to_json` wrote."


def _decode(obj: object, where: str) -> Any:
    """Decode any value."""
    if obj is None or type(obj) in (bool, int, float, str):
        return obj
    if isinstance(obj, list):
        return _decode_items(obj, where)
    if not isinstance(obj, dict):
        raise _malformed(where, "a JSON value", obj)
    entries = cast("dict[object, object]", obj)
    tags = [key for key in entries if not isinstance(key, str) or key.startswith("$")]
    if not tags:
        return {str(key): _decode(item, f"{where}[{key!r}]") for key, item in entries.items()}
    tag = str(tags[0])
    allowed = {"$dataclass", "fields"} if tag == "$dataclass" else {tag}
    if tag not in _DECODERS or entries.keys() != allowed:
        raise _malformed(where, "one of " + ", ".join(_DECODERS), sorted(map(str, entries)))
    return _DECODERS[tag](entries if tag == "$dataclass" else entries[tag], where)


def _decode_items(obj: object, where: str) -> list[Any]:
    """Decode the items of a list."""
    items = _expect(list, obj, where)
    return [_decode(item, f"{where}[{index}]") for index, item in enumerate(items)]


def _decode_dict(obj: object, where: str) -> dict[Any, Any]:
    """Decode a dict that was stored as a list of pairs."""
    result: dict[Any, Any] = {}
    for index, pair in enumerate(_decode_items(obj, where)):
        if not isinstance(pair, list) or len(cast("list[object]", pair)) != 2:
            raise _malformed(f"{where}[{index}]", "a key and a value", pair)
        try:
            result[pair[0]] = pair[1]
        except TypeError:
            raise _malformed(f"{where}[{index}]", "a key that can be hashed", pair[0]) from None
    return result


def _decode_float(obj: object, where: str) -> float:
    """Decode a float for which JSON has no number."""
    if obj not in ("inf", "-inf", "nan"):
        raise _malformed(where, "inf, -inf or nan", obj)
    return float(cast("str", obj))


def _decode_dtype(obj: object, where: str) -> np.dtype[Any]:
    """Decode a dtype from its name."""
    name = _expect(str, obj, where)
    try:
        dtype = np.dtype(name)
    except (TypeError, ValueError, SyntaxError):  # NumPy reads some names as struct formats
        raise _malformed(where, "the name of a dtype", name) from None
    if dtype.name != name or not _is_named(dtype):
        raise _malformed(where, "the name of a dtype", name)
    return dtype


def _decode_function(obj: object, where: str) -> Callable[..., Any]:
    """Decode a callable from its public name."""
    found = _import(obj, where)
    if not callable(found):
        raise FormatError(message(f"{where}: `{obj}` is not callable.", f"got {found!r}"[:200], remedy=_RESTORE))
    return found


def _decode_partial(obj: object, where: str) -> functools.partial[Any]:
    """Decode a partial."""
    entries = _expect(dict, obj, where)
    if entries.keys() != {"function", "arguments", "keywords"}:
        raise _malformed(where, "function, arguments and keywords", sorted(map(str, entries)))
    function = _decode(entries["function"], f"{where}.function")
    if not callable(function):
        raise _malformed(f"{where}.function", "a callable", function)
    keywords = _expect(dict, entries["keywords"], f"{where}.keywords")
    arguments = _decode_items(entries["arguments"], f"{where}.arguments")
    return functools.partial(
        function, *arguments, **{str(name): _decode(item, f"{where}.{name}") for name, item in keywords.items()}
    )


def _decode_dataclass(obj: object, where: str) -> Any:
    """Decode an instance of a frozen dataclass."""
    entries = _expect(dict, obj, where)
    cls = _import(entries["$dataclass"], where)
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls) or not _is_frozen(cls):
        headline = f"{where}: `{entries['$dataclass']}` is not a frozen dataclass."
        raise FormatError(message(headline, f"got {cls!r}"[:200], remedy=_RESTORE))
    stored = _expect(dict, entries["fields"], f"{where}.fields")
    known = {field.name for field in dataclasses.fields(cls) if field.init}
    if stored.keys() != known:
        raise _malformed(where, f"the fields {sorted(known)} of `{entries['$dataclass']}`", sorted(map(str, stored)))
    values = {str(name): _decode(item, f"{where}.{name}") for name, item in stored.items()}
    try:
        return cls(**values)
    except Exception as error:
        headline = f"{where}: `{entries['$dataclass']}` refuses its stored fields."
        raise FormatError(message(headline, f"{type(error).__name__}: {error}", remedy=_RESTORE)) from error


def _import(obj: object, where: str) -> object:
    """Import what a stored name stands for."""
    name = _expect(str, obj, where)
    if _NAME.fullmatch(name) is None:
        raise _malformed(where, 'a name such as "jax.nn:gelu"', name)
    if (reason := _forbidden(name)) is not None:
        raise FormatError(message(f"{where}: `{name}` {reason}.", remedy=_RESTORE))
    module, _, qualified = name.partition(":")
    try:
        found = resolve(module, qualified)
    except Exception as error:
        details = (f"`{name}` is needed", f"{type(error).__name__}: {error}")
        remedy = f"Install the package of `{module}` in the version that the file was written with."
        raise FormatError(message(f"{where} cannot be imported.", *details, remedy=remedy)) from error
    # A module may hold what it imported itself: `package:system` is still the function of `os`.
    if _is_standard(str(getattr(found, "__module__", None) or "")) or isinstance(found, type(sys)):
        raise FormatError(message(f"{where}: `{name}` leads into the standard library.", remedy=_RESTORE))
    return found


def _forbidden(name: str) -> str | None:
    """Say why a name may not be stored or read; None where it may."""
    module, _, qualified = name.partition(":")
    if _is_standard(module):
        return "is of the standard library, of which stored programs may name `math` and `operator` only"
    if module.partition(".")[0] == "__main__":
        return "is in `__main__`, which is another module in each process"
    if any(part.startswith("__") for part in (*module.split("."), *qualified.split("."))):
        return "leads through a name that starts with two underscores"
    return None


def _is_standard(module: str) -> bool:
    """Tell whether a module is of the standard library, other than those kernels are made of."""
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names and module not in _STANDARD_ALLOWED


def _is_frozen(cls: Any) -> bool:
    """Tell whether a dataclass is frozen."""
    return bool(cls.__dataclass_params__.frozen)


def _is_named(dtype: np.dtype[Any]) -> bool:
    """Tell whether the name of a dtype gives the dtype back."""
    try:
        return np.dtype(dtype.name) == dtype and not dtype.hasobject
    except (TypeError, ValueError):
        return False


def _expect(kind: type[Any], obj: object, where: str) -> Any:
    """Return an entry if it is of this JSON type."""
    if not isinstance(obj, kind):
        raise _malformed(where, {dict: "an object", list: "a list", str: "a string"}[kind], obj)
    return obj


def _malformed(where: str, expected: str, got: object) -> FormatError:
    """Build the error for content that `encode` does not write."""
    return FormatError(
        message(f"{where} cannot be read.", f"expected {expected}", f"got {got!r}"[:200], remedy=_RESTORE)
    )


_DECODERS: dict[str, Callable[[object, str], Any]] = {
    "$function": _decode_function,
    "$partial": _decode_partial,
    "$dataclass": _decode_dataclass,
    "$tuple": lambda obj, where: tuple(_decode_items(obj, where)),
    "$dict": _decode_dict,
    "$dtype": _decode_dtype,
    "$float": _decode_float,
}
