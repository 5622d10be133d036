"""Frozen dataclasses that are made in a fifth of the time.

`dataclasses.dataclass` writes six methods of each class as text and compiles them one by one: about a millisecond a
class before Python 3.13, and half of what importing this library costs. Here the three that programs call often are
compiled at once, and the others are closures, which do what those of the standard library do. Anything but
`frozen=True`, `eq=` and `repr=` is left to it.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, **options: bool) -> Any:
        """As `dataclasses.dataclass`."""
        stock = dataclasses.dataclass(frozen=frozen, **options)

        def make(given: type) -> type:
            is_plain = frozen and options.keys() <= {"eq", "repr"} and _is_plain(given)
            return _made(given, **options) if is_plain else stock(given)

        return make if cls is None else make(cls)


def _is_plain(cls: type) -> bool:
    """Whether a class has no dataclass above it, writes none of our methods itself, and has no default factories."""
    inherits = any(dataclasses.is_dataclass(base) for base in cls.__bases__)
    written = {"__init__", "__eq__", "__repr__", "__hash__", "__setattr__", "__delattr__"} & vars(cls).keys()
    parts = [part for part in vars(cls).values() if isinstance(part, dataclasses.Field)]
    special = any(part.default_factory is not dataclasses.MISSING or not part.init for part in parts)
    texts = " ".join(map(str, vars(cls).get("__annotations__", {}).values()))
    return not (inherits or written or special or "InitVar" in texts or "KW_ONLY" in texts)


def _made(cls: Any, eq: bool = True, repr: bool = True) -> type:
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    said = cls.__dataclass_params__
    said.init, said.frozen, said.eq, said.repr = True, True, eq, repr
    fields = dataclasses.fields(cls)
    methods = {**_compiled(cls, fields, eq), **_frozen(cls, frozenset(field.name for field in fields))}
    if repr:
        methods["__repr__"] = _representation([field.name for field in fields if field.repr])
    for name, method in methods.items():
        method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
    return cls


def _compiled(cls: Any, fields: Sequence[dataclasses.Field[Any]], eq: bool) -> dict[str, Any]:
    """What programs call often, as text: closures would be slower."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "__name__": cls.__module__}
    positional = [_parameter(field, scope) for field in fields if not field.kw_only]
    by_name = [_parameter(field, scope) for field in fields if field.kw_only]
    lines = [f"def __init__({', '.join(['self', *positional, *(['*'] if by_name else []), *by_name])}):", " pass"]
    lines += [f" _set(self, {field.name!r}, {field.name})" for field in fields]
    lines += [" self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    if eq:
        ours, theirs = (_values(of, [field.name for field in fields if field.compare]) for of in ("self", "other"))
        hashed = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
        lines += ["def __eq__(self, other):"]
        lines += [f" return {ours} == {theirs} if other.__class__ is self.__class__ else NotImplemented"]
        lines += ["def __hash__(self):", f" return hash({_values('self', hashed)})"]
    exec("\n".join(lines), scope)
    scope["__init__"].__annotations__ = {**{field.name: field.type for field in fields}, "return": None}
    return {name: scope[name] for name in ("__init__", *(("__eq__", "__hash__") if eq else ()))}


def _values(of: str, names: Sequence[str]) -> str:
    return "(" + "".join(f"{of}.{name}," for name in names) + ")"


def _parameter(field: dataclasses.Field[Any], scope: dict[str, Any]) -> str:
    if field.default is dataclasses.MISSING:
        return field.name
    scope[f"_of_{field.name}"] = field.default
    return f"{field.name}=_of_{field.name}"


def _frozen(cls: Any, names: frozenset[str]) -> dict[str, Any]:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            _refuse("assign to", name)
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            _refuse("delete", name)
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _refuse(what: str, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")


def _representation(names: Sequence[str]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return reprlib.recursive_repr()(__repr__)
