"""Operations as JSON: the signature as text, kernels by public name, monoids by public name or by their fields."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import Any, cast

from combinators import monoids
from combinators.errors import FormatError, SignatureError, message, spelt
from combinators.index_space.boundary import BOUNDARIES
from combinators.index_space.operand import Operand
from combinators.index_space.signature import Signature
from combinators.merging.monoid import Monoid
from combinators.operations.operation import Operation
from combinators.operations.rules import check_boundary
from combinators.stored.codec import decode, encode
from combinators.stored.fields import check_fields
from combinators.stored.json import REMEDY, malformed
from combinators.stored.readable import Readable

_CODED = ("kernel", "carrier", "present", "over", "reverse", "exclusive", "sizes", "boundary", "pad", "dense", "name")


def operation_to_json(operation: Operation) -> dict[str, Any]:
    """Turn an operation into what the `json` module writes.

    Args:
      operation: its signature may have been expanded.

    Raises:
      KernelError: when a kernel, or what the monoid is made of, has no public name.
    """
    signature, rank = _with_ellipsis(operation.signature)
    where = f"the operation `{operation.name}`"
    stored = {name: encode(getattr(operation, name), f"`{name}` of {where}") for name in _CODED}
    return {"signature": str(signature), "rank": rank, "monoid": _monoid_to_json(operation.monoid, where), **stored}


def operation_from_json(stored: Any, where: str, names: Readable) -> Operation:
    """Read an operation back.

    Args:
      stored: what `operation_to_json` returned.
      where: the place in the file, as an error names it.
      names: what it may name.

    Raises:
      FormatError: when it is no operation.
    """
    known = {"signature", "rank", "monoid", *_CODED}
    entries = cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}
    if entries.keys() != known:
        got = f"got {sorted(entries)}" if entries else f"got {spelt(stored)}"
        raise FormatError(message(f"{where} is no operation.", f"expected {sorted(known)}", got, remedy=REMEDY))
    values: dict[str, Any] = {name: decode(entries[name], f"{where}, {name}", names) for name in _CODED}
    values["monoid"] = _monoid_from_json(entries["monoid"], f"{where}, monoid", names)
    values["signature"] = _signature_from_json(entries["signature"], entries["rank"], where)
    _check_operation(values, where)
    try:
        check_boundary(values["boundary"], f"`{values['name']}`", BOUNDARIES)
        return Operation(**values)
    except SignatureError as error:
        raise FormatError(message(f"{where} is no operation.", str(error), remedy=REMEDY)) from error


def _with_ellipsis(signature: Signature) -> tuple[Signature, int | None]:
    """The signature as its text can say it: `...0 ...1` is `...` with rank 2. The rank is None where none is."""
    rank = sum(dim.startswith("...") for dim in signature.dims)
    if rank == 0:
        return signature, None

    def close(operand: Operand) -> Operand:
        at = next((at for at, axis in enumerate(operand.axes) if axis.name == "...0"), None)
        if at is None:
            return operand
        return replace(operand, axes=operand.axes[:at] + operand.axes[at + rank :], ellipsis=True, lead=at)

    return Signature(tuple(map(close, signature.operands)), tuple(map(close, signature.results))), rank


def _signature_from_json(text: Any, rank: Any, where: str) -> Signature:
    try:
        if not isinstance(text, str) or not (rank is None or (type(rank) is int and 0 <= rank <= 64)):
            raise SignatureError(f"text {spelt(text)}, rank {spelt(rank, 20)}")
        parsed = Signature.parse(text)
        return parsed if rank is None else parsed.expand(rank)
    except SignatureError as error:
        raise FormatError(message(f"{where}: the signature cannot be read.", str(error), remedy=REMEDY)) from error


@cache
def _public_monoids() -> dict[str, Monoid]:
    return {name: item for name, item in vars(monoids).items() if isinstance(item, Monoid)}


def _monoid_to_json(monoid: Monoid | None, where: str) -> Any:
    if monoid is None:
        return None
    for name, known in _public_monoids().items():
        if known is monoid:
            return {"name": name}
    names = [field.name for field in fields(Monoid) if field.name != "parts"]
    stored = {name: encode(getattr(monoid, name), f"`{name}` of the monoid of {where}") for name in names}
    return {"fields": {**stored, "parts": [_monoid_to_json(part, where) for part in monoid.parts]}}


def _monoid_from_json(stored: Any, where: str, names: Readable) -> Monoid | None:
    if stored is None:
        return None
    entries = cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}
    known = entries.get("name")
    if entries.keys() == {"name"} and isinstance(known, str) and known in _public_monoids():
        return _public_monoids()[known]
    inner: Any = entries.get("fields")
    if entries.keys() != {"fields"} or not isinstance(inner, dict):
        raise FormatError(
            message(
                f"{where} is no monoid.",
                "expected null, the name of one of tp.monoids, or the fields of one",
                f"got {spelt(stored)}",
                remedy=REMEDY,
            )
        )
    given = cast("dict[str, Any]", inner)
    parts = given.get("parts", [])
    if not isinstance(parts, list):
        raise FormatError(message(f"{where}, parts is no list.", f"got {spelt(parts)}", remedy=REMEDY))
    strange = given.keys() - {field.name for field in fields(Monoid)}
    missing = {"identity", "combine"} - given.keys()
    if strange or missing:
        expected = f"the fields {', '.join(field.name for field in fields(Monoid))}"
        raise malformed(where, expected, sorted(given))
    values = {name: decode(value, f"{where}, {name}", names) for name, value in given.items() if name != "parts"}
    read = enumerate(cast("list[Any]", parts))
    values["parts"] = tuple(_monoid_from_json(part, f"{where}, part {number}", names) for number, part in read)
    check_fields(Monoid, values, where)
    try:
        return Monoid(**values)
    except Exception as error:
        raise FormatError(message(f"{where} cannot be built.", str(error)[:300], remedy=REMEDY)) from error


def _check_operation(values: dict[str, Any], where: str) -> None:
    """Check the kinds of the fields, so that a wrong one is found here and not where it is used."""
    dims = set(cast("Signature", values["signature"]).dims)
    optional_text = (str, type(None))
    checks: tuple[tuple[str, bool], ...] = (
        ("kernel", callable(values["kernel"])),
        ("present", values["present"] is None or callable(values["present"])),
        ("dense", isinstance(values["dense"], tuple) and all(map(callable, cast("Any", values["dense"])))),
        ("over", isinstance(values["over"], optional_text) and (values["over"] is None or values["over"] in dims)),
        ("reverse", isinstance(values["reverse"], bool)),
        ("exclusive", isinstance(values["exclusive"], bool)),
        ("name", isinstance(values["name"], str)),
        ("sizes", _is_sizes(values["sizes"])),
        ("boundary", isinstance(values["boundary"], str) or _is_texts(values["boundary"])),
        ("carrier", values["carrier"] is None or _is_tuple_of(values["carrier"], _is_texts)),
        ("pad", values["pad"] is None or _is_tuple_of(values["pad"], _is_number_or_none)),
    )
    for name, fits in checks:
        if not fits:
            raise FormatError(
                message(f"{where}: `{name}` has a wrong value.", f"got {spelt(values[name])}", remedy=REMEDY)
            )


def _is_tuple_of(value: Any, fits: Any) -> bool:
    return isinstance(value, tuple) and all(fits(item) for item in cast("tuple[Any, ...]", value))


def _is_texts(value: Any) -> bool:
    return _is_tuple_of(value, lambda item: isinstance(item, str))


def _is_sizes(value: Any) -> bool:
    return _is_tuple_of(
        value,
        lambda pair: (
            isinstance(pair, tuple)
            and [type(item) for item in cast("tuple[Any, ...]", pair)] == [str, int]
            and cast("tuple[Any, ...]", pair)[1] >= 0
        ),
    )


def _is_number_or_none(value: Any) -> bool:
    return value is None or type(value) in (int, float, bool)
