"""Kernels and plain values as JSON: what a stored graph says instead of holding Python objects.

A callable is stored as the public name under which it can be imported, never as code. Reading one back looks its name
up in what the reader allows, see `combinators.stored.readable`, and imports it: nothing is unpickled or evaluated.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable
from typing import Any, cast, final

import numpy as np

from combinators.errors import FormatError, KernelError, message, spelt
from combinators.frozen import dataclass
from combinators.kernels.names import public_name
from combinators.kernels.public_names import KERNELS, REFERENCES
from combinators.stored.array_functions import scalar_types
from combinators.stored.fields import check_fields
from combinators.stored.json import REMEDY, malformed
from combinators.stored.readable import Readable, forbidden, is_private

_FIXED = Readable()
_DTYPE = re.compile(r"[a-z][a-z0-9_]{0,31}")


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


def decode(obj: object, where: str = "kernel", names: Readable | None = _FIXED) -> Any:
    """Turn what `encode` made back into the value.

    Args:
      obj: what `read_json` gave.
      where: what the value is, as an error names it.
      names: what it may name; None for nothing, where a plain value is meant.

    Returns:
      The value; callables are imported by their names. Nothing is called but the constructors of dataclasses, which are
      ours or of a package that the reader allowed.

    Raises:
      FormatError: when the content is not what `encode` writes, or names something that is not allowed, cannot be
        imported, is no callable or no frozen dataclass.
    """
    try:
        return _Decoder(names).value(obj, where)
    except RecursionError:
        raise FormatError(message(f"{where} is nested too deeply to be read.", remedy=REMEDY)) from None


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
        if is_private(name):
            reason, remedy = f"no file may name `{name}`", "Store how it is made: lift the function again."
            raise _unstorable(where, got, reason, remedy)
        if (reason := forbidden(name)) is None:
            return name
        raise _unstorable(where, got, f"`{name}` {reason}", "Wrap it in a function of your own module.")
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


@final
@dataclass(frozen=True)
class _Decoder:
    """Decode values whose names are looked up in `names`.

    Attributes:
      names: what may be named; None for nothing.
      is_reference: whether the value belongs to the reference of an aggregator, which works on real arrays.
    """

    names: Readable | None
    is_reference: bool = False

    def value(self, obj: object, where: str) -> Any:
        """Decode any value."""
        if obj is None or type(obj) in (bool, int, float, str):
            return obj
        if isinstance(obj, list):
            return self._items(obj, where)
        if not isinstance(obj, dict):
            raise malformed(where, "a JSON value", obj)
        entries = cast("dict[object, object]", obj)
        tags = [key for key in entries if not isinstance(key, str) or key.startswith("$")]
        if not tags:
            return {str(key): self.value(item, f"{where}[{spelt(key, 60)}]") for key, item in entries.items()}
        tag = str(tags[0])
        allowed = {"$dataclass", "fields"} if tag == "$dataclass" else {tag}
        if tag not in _TAGS or entries.keys() != allowed:
            raise malformed(where, "one of " + ", ".join(_TAGS), sorted(map(str, entries)))
        match tag:
            case "$function":
                return self._function(entries[tag], where)
            case "$partial":
                return self._partial(entries[tag], where)
            case "$dataclass":
                return self._dataclass(entries, where)
            case "$tuple":
                return tuple(self._items(entries[tag], where))
            case "$dict":
                return self._dict(entries[tag], where)
            case "$dtype":
                return _decode_dtype(entries[tag], where)
            case _:
                return _decode_float(entries[tag], where)

    def _items(self, obj: object, where: str) -> list[Any]:
        items = _expect(list, obj, where)
        return [self.value(item, f"{where}[{index}]") for index, item in enumerate(items)]

    def _dict(self, obj: object, where: str) -> dict[Any, Any]:
        """A dict that was stored as a list of pairs."""
        result: dict[Any, Any] = {}
        for index, pair in enumerate(self._items(obj, where)):
            if not isinstance(pair, list) or len(cast("list[object]", pair)) != 2:
                raise malformed(f"{where}[{index}]", "a key and a value", pair)
            try:
                result[pair[0]] = pair[1]
            except TypeError:
                raise malformed(f"{where}[{index}]", "a key that can be hashed", pair[0]) from None
        return result

    def _function(self, obj: object, where: str) -> Callable[..., Any]:
        found = self._find(obj, where)
        if not callable(found):
            raise FormatError(message(f"{where}: `{obj}` is not callable.", f"got {found!r}"[:200], remedy=REMEDY))
        return found

    def _find(self, obj: object, where: str) -> object:
        if self.names is None:
            raise malformed(where, "a plain value", obj)
        return self.names.find(obj, where, is_reference=self.is_reference)

    def _partial(self, obj: object, where: str) -> functools.partial[Any]:
        entries = _expect(dict, obj, where)
        if entries.keys() != {"function", "arguments", "keywords"}:
            raise malformed(where, "function, arguments and keywords", sorted(map(str, entries)))
        stored = _expect(dict, entries["keywords"], f"{where}.keywords")
        function = self.value(entries["function"], f"{where}.function")
        if not callable(function):
            raise malformed(f"{where}.function", "a callable", function)
        arguments = self._items(entries["arguments"], f"{where}.arguments")
        keywords = {str(name): self.value(item, f"{where}.{name:.60}") for name, item in stored.items()}
        # No function of the fixed list is known to be harmless with a function among its arguments.
        if self._is_fixed(entries["function"]) and any(map(_holds_function, (*arguments, *keywords.values()))):
            raise malformed(where, "plain arguments of a function from the fixed list", "a function among them")
        return functools.partial(function, *arguments, **keywords)

    def _is_fixed(self, function: object) -> bool:
        """Whether a stored function is none of a package that the reader allowed."""
        name: Any = cast("dict[str, object]", function).get("$function") if isinstance(function, dict) else None
        return self.names is None or not isinstance(name, str) or not self.names.is_opened(name)

    def _dataclass(self, entries: dict[Any, Any], where: str) -> Any:
        name = entries["$dataclass"]
        cls = self._find(name, where)
        if not isinstance(cls, type) or not dataclasses.is_dataclass(cls) or not _is_frozen(cls):
            headline = f"{where}: `{name}` is not a frozen dataclass."
            raise FormatError(message(headline, f"got {cls!r}"[:200], remedy=REMEDY))
        stored = _expect(dict, entries["fields"], f"{where}.fields")
        known = [field for field in dataclasses.fields(cls) if field.init]
        needed = {field.name for field in known if not _has_default(field)}
        # Fields that came later have defaults: files that were written before still say all they meant.
        if not needed <= stored.keys() <= {field.name for field in known}:
            expected = f"the fields {sorted(field.name for field in known)} of `{name}`"
            raise malformed(where, expected, sorted(map(str, stored)))
        values = {str(key): self._inside(key).value(item, f"{where}.{key}") for key, item in stored.items()}
        if name in KERNELS | REFERENCES:
            check_fields(cls, values, where)
        try:
            return cls(**values)
        except (Exception, SystemExit) as error:
            headline = f"{where}: `{name}` refuses its stored fields."
            raise FormatError(message(headline, f"{type(error).__name__}: {error}"[:300], remedy=REMEDY)) from error

    def _inside(self, field: object) -> _Decoder:
        """The decoder of a field: references stand in fields of that name, and are made of others."""
        return dataclasses.replace(self, is_reference=self.is_reference or field == "reference")


_TAGS = ("$function", "$partial", "$dataclass", "$tuple", "$dict", "$dtype", "$float")


def _holds_function(value: object) -> bool:
    """Tell whether a decoded value is or holds a function; scalar types stand for dtypes."""
    if isinstance(value, list | tuple):
        return any(map(_holds_function, cast("list[object]", value)))
    if isinstance(value, dict):
        return any(map(_holds_function, cast("dict[object, object]", value).values()))
    return (callable(value) or dataclasses.is_dataclass(value)) and not any(value is kind for kind in scalar_types())


def _decode_float(obj: object, where: str) -> float:
    """Decode a float for which JSON has no number."""
    if obj not in ("inf", "-inf", "nan"):
        raise malformed(where, "inf, -inf or nan", obj)
    return float(cast("str", obj))


def _decode_dtype(obj: object, where: str) -> np.dtype[Any]:
    """Decode a dtype from its name."""
    name = _expect(str, obj, where)
    try:
        # NumPy reads some longer names as struct formats.
        dtype = np.dtype(name) if _DTYPE.fullmatch(name) else None
    except (TypeError, ValueError):
        dtype = None
    if dtype is None or dtype.name != name or not _is_named(dtype):
        raise malformed(where, "the name of a dtype", name)
    return dtype


def _has_default(field: dataclasses.Field[Any]) -> bool:
    """Tell whether a field may be left out."""
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


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
        raise malformed(where, {dict: "an object", list: "a list", str: "a string"}[kind], obj)
    return obj
