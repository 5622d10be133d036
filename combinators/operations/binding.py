"""Where an operation is applied: its local names bind to the names of the tensors' axes."""

from __future__ import annotations

from collections.abc import Sequence

from combinators.errors import CompositionError, message
from combinators.index_space.axis import Axis
from combinators.index_space.naming import AxisName, AxisVariable, describe, find, suggest, unify
from combinators.operations.shaped import Shaped

Names = tuple[AxisName, ...]


def bind(shaped: Shaped, operands: Sequence[Names]) -> tuple[dict[str, AxisName], list[Names]]:
    """Bind the dimensions of an operation to the names of its operands' axes.

    Args:
      shaped: the operation with its sizes.
      operands: for each array operand the names of its axes.

    Returns:
      Dimension to bound name, for every dimension that is not whole, and the names of the axes of each result leaf.

    Raises:
      CompositionError: when a dimension meets two names, or two dimensions one name.
    """
    signature = shaped.signature
    arrays = [operand for operand in signature.operands if operand.coordinate is None]
    bound: dict[str, AxisName] = {}
    first: dict[str, int] = {}
    for number, (operand, names) in enumerate(zip(arrays, operands, strict=True)):
        for axis, name in zip(operand.axes, names, strict=True):
            dim = _handed_on(axis, shaped)
            if dim is None:
                continue
            if dim in bound and not unify(bound[dim], name):
                _two_names(shaped, dim, (first[dim], bound[dim]), (number, name), operands)
            bound.setdefault(dim, name)
            first.setdefault(dim, number)
    for dim in signature.dims:
        if shaped.signature.role(dim) != "whole":
            bound.setdefault(dim, dim)
    check_injective(shaped.operation.name, str(signature), bound)
    whole = _whole_names(shaped, operands)
    results = [_result_names(shaped, axes, bound, whole) for axes in shaped.result_axes]
    for names in results:
        check_distinct(shaped.operation.name, names)
    return bound, results


def meetings(shaped: Shaped, operands: Sequence[Names]) -> list[list[tuple[int, int]]]:
    """For each dimension that takes the names of axes where these are, as operand and axis."""
    arrays = [operand for operand in shaped.signature.operands if operand.coordinate is None]
    found: dict[str, list[tuple[int, int]]] = {}
    for number, (operand, names) in enumerate(zip(arrays, operands, strict=True)):
        for at, (axis, _) in enumerate(zip(operand.axes, names, strict=True)):
            dim = _handed_on(axis, shaped)
            if dim is not None:
                found.setdefault(dim, []).append((number, at))
    return list(found.values())


def suggest_names(shaped: Shaped, operands: Sequence[Names]) -> None:
    """Suggest the names of the signature for axes of the operands that have none: somebody wrote them.

    An axis takes the name of the dimension it is, or that it hands its name to; a composition suggests nothing.
    """
    arrays = [operand for operand in shaped.signature.operands if operand.coordinate is None]
    for operand, names in zip(arrays, operands, strict=True):
        for axis, name in zip(operand.axes, names, strict=True):
            suggest(name, _handed_on(axis, shaped) or axis.whole_name)


def check_injective(operation: str, signature: str, bound: dict[str, AxisName]) -> None:
    """Distinct dimensions must be bound to distinct names."""
    seen: dict[AxisName, str] = {}
    for dim, name in bound.items():
        other = seen.setdefault(find(name), dim)
        if other != dim:
            raise CompositionError(
                message(
                    f"`{operation}` meets {describe(name)} as two dimensions, `{other}` and `{dim}`",
                    f"signature {signature}",
                    remedy=_rename_remedy(name),
                )
            )


def check_distinct(operation: str, names: Sequence[AxisName]) -> None:
    """One tensor never carries a name twice."""
    found = [find(name) for name in names]
    for name in found:
        if found.count(name) > 1:
            raise CompositionError(
                message(
                    f"the result of `{operation}` would carry {describe(name)} twice",
                    f"axes: {', '.join(describe(n) for n in found)}",
                    remedy=_rename_remedy(name),
                )
            )


def _rename_remedy(name: AxisName) -> str:
    name = find(name)
    if isinstance(name, str):
        return f'Rename one operand first, as in k.rename({name}="keys").'
    return 'Name the axes, with a tp.TensorType or a signature of the program, then rename one: k.rename(seq="keys").'


def _handed_on(axis: Axis, shaped: Shaped) -> str | None:
    """The dimension that takes the name of the tensor's axis."""
    if axis.name is not None:
        return axis.name
    if axis.is_window:
        results = [t.name for t in axis.terms if shaped.signature.role(t.name) in ("map", "generated")]
        if len(results) == 1:
            return results[0]
    return None


def local_names(shaped: Shaped) -> set[str]:
    """The names that an operation gives to axes on its own: those of dimensions that no operand's axis names."""
    axes = [axis for operand in shaped.signature.operands for axis in operand.axes]
    handed = {_handed_on(axis, shaped) for axis in axes}
    whole = {axis.whole_name for axis in axes}
    signature = shaped.signature
    return {dim for dim in signature.dims if dim not in (whole if signature.role(dim) == "whole" else handed)}


def _whole_names(shaped: Shaped, operands: Sequence[Names]) -> dict[str, AxisName]:
    arrays = [operand for operand in shaped.signature.operands if operand.coordinate is None]
    whole: dict[str, AxisName] = {}
    for operand, names in zip(arrays, operands, strict=True):
        for axis, name in zip(operand.axes, names, strict=True):
            if axis.whole_name is not None:
                whole.setdefault(axis.whole_name, name)
    return whole


def _result_names(
    shaped: Shaped, axes: Sequence[Axis], bound: dict[str, AxisName], whole: dict[str, AxisName]
) -> Names:
    names: list[AxisName] = []
    for position, axis in enumerate(axes):
        if axis.name is not None:
            names.append(bound[axis.name])
        elif axis.whole_name is not None and not axis.whole_name.startswith("~"):
            names.append(whole.get(axis.whole_name, axis.whole_name))
        else:
            names.append(AxisVariable(f"axis {position} of the result of `{shaped.operation.name}`"))
    return tuple(names)


def _two_names(
    shaped: Shaped, dim: str, left: tuple[int, AxisName], right: tuple[int, AxisName], operands: Sequence[Names]
) -> None:
    names = [find(left[1]), find(right[1])]
    unnamed = [name for name in names if isinstance(name, AxisVariable)]
    shown = [
        f"operand {n}: ({', '.join(describe(name).strip('`') for name in names)})" for n, names in enumerate(operands)
    ]
    raise CompositionError(
        message(
            f"cannot apply `{shaped.operation.name}`: its `{dim}` is {describe(left[1])} on operand {left[0]} "
            f"and {describe(right[1])} on operand {right[0]}",
            f"signature {shaped.signature}",
            *shown,
            remedy=_rename_remedy(unnamed[0]) if unnamed else f'Rename one: value.rename({names[1]}="{names[0]}").',
        )
    )
