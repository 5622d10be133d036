"""What is true of every operation, asked where one is made: leaves, files and rewrites make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from combinators.errors import SignatureError, message, spelt
from combinators.index_space.boundary import BOUNDARIES, OWN
from combinators.index_space.signature import Signature
from combinators.merging.monoid import Monoid
from combinators.operations.dense import Dense, bare, stands_for

if TYPE_CHECKING:
    from combinators.operations.operation import Operation

_OF_SCANS = {"reverse": False, "exclusive": False}
_OF_STATES: dict[str, Any] = {"carrier": None, "present": None}
_NOT_OF_SCANS: dict[str, Any] = {"boundary": "valid", "pad": None}


def check_operation(operation: Operation, where: str) -> None:
    """Hold the fields of an operation against its signature and each other.

    Args:
      operation: of any origin.
      where: what it is, as errors call it.

    Raises:
      SignatureError: for one that is neither a map, nor a fold, nor a scan.
    """
    signature = operation.signature
    if operation.monoid is None:
        _check_unset(operation, {"over": None, **_OF_SCANS, **_OF_STATES}, "a map", where)
        check_maps(signature, where)
    elif operation.over is None:
        check_monoid(operation.monoid, signature, where)
        _check_unset(operation, _OF_SCANS, "a fold", where)
        _check_merged(operation, where)
    else:
        check_monoid(operation.monoid, signature, where)
        check_scans(signature, operation.over, where)
        _check_unset(operation, _NOT_OF_SCANS, "a scan", where)
    _check_sizes(operation, where)
    check_boundary(operation.boundary, where)
    check_pad(_without_coordinates(operation), signature, where)
    _check_carrier(operation, where)
    check_conditions(operation.dense, signature, operation.monoid, where)
    if any(stands_for(entry, operation.kernel) is False for entry in operation.dense):
        raise SignatureError(
            message(
                f"{where}, dense= holds a kernel that computes something else than its own",
                f"signature {signature}",
                remedy="Make both of the same fields, or leave it out.",
            )
        )


def check_maps(signature: Signature, where: str) -> None:
    """Refuse a fold without a monoid.

    Raises:
      SignatureError: with the dimension that would be folded.
    """
    if signature.fold_dims:
        raise SignatureError(
            message(
                f"{where} folds `{signature.fold_dims[0]}` without a monoid",
                f"signature {signature}",
                remedy=f"Use tp.Reduce with a monoid, or write [{signature.fold_dims[0]}] if the kernel needs all.",
            )
        )


def check_monoid(monoid: Any, signature: Signature, where: str) -> None:
    """Refuse what is not a monoid.

    Raises:
      SignatureError: with the dimension that would be folded.
    """
    if isinstance(monoid, Monoid):
        return
    folded = ", ".join(f"`{dim}`" for dim in signature.fold_dims)
    needs = f"folds {folded} and needs a monoid for it" if folded else "needs a monoid"
    got = "no monoid" if monoid is None else f"{type(monoid).__name__}: {spelt(monoid, 60)}"
    raise SignatureError(
        message(
            f"{where} {needs}",
            f"signature {signature}",
            f"got {got}",
            remedy="Pass one of tp.monoids, such as tp.monoids.Sum, or your own tp.Monoid(identity, combine)."
            if folded or where.startswith("tp.Scan")
            else "Use tp.Map, since nothing stands on the left alone.",
        )
    )


def check_scans(signature: Signature, over: str, where: str) -> None:
    """Refuse a scan along what the result does not carry, and one that folds.

    Raises:
      SignatureError: with the dimension.
    """
    if signature.fold_dims or over not in signature.map_dims:
        raise SignatureError(
            message(
                f"{where} cannot scan over `{over}`",
                f"signature {signature}",
                f"expected `{over}` on both sides, and no dimension on the left alone",
                remedy="Scan over a dimension that the result carries; fold others with tp.Reduce first.",
            )
        )


def check_boundary(boundary: str | Sequence[str], where: str, allowed: Sequence[str] = (*BOUNDARIES, OWN)) -> None:
    """Refuse modes that there are not.

    Raises:
      SignatureError: with the first.
    """
    for mode in (boundary,) if isinstance(boundary, str) else boundary:
        if not isinstance(mode, str) or mode not in allowed:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SignatureError(
                message(
                    f"{where} has the unknown boundary {mode!r}",
                    f"expected one of {', '.join(BOUNDARIES)}",
                    remedy="Name one mode, or one for each window axis.",
                )
            )


def check_pad(pad: Sequence[Any] | None, signature: Signature, where: str) -> None:
    """Refuse neutral values that are not one for each array operand.

    Raises:
      SignatureError: with both numbers.
    """
    count = sum(operand.coordinate is None for operand in signature.operands)
    if pad is not None and len(pad) != count:
        raise SignatureError(
            message(
                f"{where} declares {len(pad)} neutral values for {count} operands",
                remedy="Give one value, or None, for each array operand.",
            )
        )


def check_conditions(dense: Sequence[Any], signature: Signature, monoid: Any, where: str) -> None:
    """Hold the conditions of dense kernels against the operation that they stand in for.

    Raises:
      SignatureError: for one that names a dimension which the signature has not, or gives a state that nothing merges.
    """
    for entry in dense:
        if not isinstance(entry, Dense):
            continue
        strange = [dim for dim in entry.whole or () if dim not in signature.dims]
        if strange:
            raise SignatureError(
                message(
                    f"{where}, dense= wants `{strange[0]}` whole, which is no dimension of the signature",
                    f"signature {signature}",
                    remedy="Name dimensions of the signature in whole=.",
                )
            )
        if entry.gives == "state" and monoid is None:
            raise SignatureError(
                message(
                    f"{where}, dense= gives a state, and a map has none",
                    remedy='Leave gives="state" out, or use tp.Reduce.',
                )
            )


def is_merged_by(kernel: Any, monoid: Any) -> bool | None:
    """Whether a kernel folds by a monoid, as its attribute `merged_by` says; None for one that says nothing."""
    known: Sequence[Any] | None = getattr(bare(kernel), "merged_by", None)
    return None if known is None else monoid in known


def _check_merged(operation: Operation, where: str) -> None:
    if operation.signature.fold_dims and is_merged_by(operation.kernel, operation.monoid) is False:
        raise SignatureError(
            message(
                f"{where} is merged by another monoid than its kernel folds by",
                f"signature {operation.signature}",
                f"got {operation.monoid}",
                remedy="Merge by the monoid of the kernel.",
            )
        )


def _check_unset(operation: Operation, fields: dict[str, Any], kind: str, where: str) -> None:
    for name, default in fields.items():
        if getattr(operation, name) != default:
            raise SignatureError(
                message(
                    f"{where} is {kind}, which has no `{name}`",
                    f"signature {operation.signature}",
                    f"expected {default!r}, got {getattr(operation, name)!r:.60}",
                    remedy=f"Leave `{name}` out, or use the leaf that takes it.",
                )
            )


def _without_coordinates(operation: Operation) -> Sequence[Any] | None:
    """The neutral values without a None for each coordinate, which scatters have at the end."""
    pad, operands = operation.pad, operation.signature.operands
    count = sum(operand.coordinate is None for operand in operands)
    is_longer = pad is not None and len(pad) == len(operands) and all(value is None for value in pad[count:])
    return pad[:count] if pad is not None and is_longer else pad


def _check_sizes(operation: Operation, where: str) -> None:
    names = [name for name, _ in operation.sizes]
    if len(set(names)) < len(names):
        raise SignatureError(
            message(f"{where} has two sizes of a dimension", f"got {operation.sizes}", remedy="Give each one size.")
        )


def _check_carrier(operation: Operation, where: str) -> None:
    folds = operation.signature.fold_dims
    for axes in operation.carrier or ():
        if problem := _carries(axes, folds, operation.over):
            raise SignatureError(
                message(
                    f"the carrier of {where} {problem}",
                    f"signature {operation.signature}",
                    f"got {' '.join(axes)!r}",
                    remedy="List the axes of every leaf of the state; what is folded is none of them.",
                )
            )
    _check_carried(operation, where)


def _check_carried(operation: Operation, where: str) -> None:
    """Refuse a carrier without a dimension that results have: nothing would say where its cells are."""
    if operation.carrier is None:
        return
    names = [name for axes in operation.carrier for name in axes]
    missing = [name for name in operation.signature.map_dims if name not in names]
    strange = [name for name in names if name not in (*operation.signature.dims, "...")]
    if missing:
        raise SignatureError(
            message(
                f"the carrier of {where} does not have `{missing[0]}`, which results have",
                f"signature {operation.signature}",
                f"got {', '.join(map(' '.join, operation.carrier))!r}",
                *([f"`{strange[0]}` is no dimension of the signature"] if strange else []),
                remedy="carrier= lists the axes of every leaf of the state; a dtype is for tp.plan(accumulate=).",
            )
        )


def _carries(axes: Sequence[str], folds: Sequence[str], over: str | None) -> str:
    """What is wrong with the axes of a leaf of the state; empty where nothing is."""
    twice = next((name for name in axes if axes.count(name) > 1), None)
    folded = next((name for name in axes if name in folds), None)
    if twice is not None:
        return f"has the axis `{twice}` twice"
    if folded is not None:
        return f"has the axis `{folded}`, which is folded"
    return f"does not have `{over}`, which is scanned" if over is not None and over not in axes else ""
