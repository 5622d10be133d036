"""Reading what leaves take beside their signature: kernels, sizes, boundaries, neutral values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from combinators.arguments import (
    is_real,
    read_count,
    read_function,
    read_list,
    read_mapping,
    read_name,
    read_number,
    read_optional_name,
)
from combinators.errors import KernelError, SignatureError
from combinators.index_space.boundary import BOUNDARIES
from combinators.index_space.signature import Signature
from combinators.kernels.kernel import check_kernel, short_name
from combinators.operations.dense import Dense
from combinators.operations.rules import check_boundary, check_pad


def read_kernels(kernel: Callable[..., Any], dense: Any, where: str) -> tuple[Callable[..., Any], ...]:
    """Check a kernel and the dense ones; returns the dense ones.

    Raises:
      KernelError: for one that is not callable or closes over arrays.
    """
    check_kernel(kernel, where)
    listed = () if dense is None else tuple(dense) if isinstance(dense, list | tuple) else (dense,)
    for other in listed:
        check_kernel(other.kernel if isinstance(other, Dense) else other, f"{where}, dense=")
    return listed


def kernel_name(kernel: Callable[..., Any], name: str | None) -> str:
    """The given name, or the kernel's.

    Raises:
      GraphError: when the name is no text.
    """
    called = short_name(kernel)
    return read_optional_name(name, f"name= of tp.{called}") or called


def read_sizes(sizes: Mapping[str, int] | None, where: str = "a leaf") -> tuple[tuple[str, int], ...]:
    """Sizes as a sorted tuple.

    Raises:
      SignatureError: when they are no mapping from names to whole numbers.
    """
    known = read_mapping(sizes, f"sizes= of {where}", SignatureError)
    read = {
        read_name(name, f"a name in sizes= of {where}", SignatureError): read_count(
            size, f"the size of `{name}` in sizes= of {where}", 0, SignatureError
        )
        for name, size in known.items()
    }
    return tuple(sorted(read.items()))


def read_present(present: Any, where: str) -> Any:
    """A function of states, or None.

    Raises:
      KernelError: when it cannot be called.
    """
    return None if present is None else read_function(present, f"present= of {where}", KernelError)


def read_boundary(boundary: str | Sequence[str], where: str) -> str | tuple[str, ...]:
    """Check boundary modes.

    Raises:
      SignatureError: for one that does not exist.
    """
    what, modes = f"boundary= of {where}", ", ".join(f'"{mode}"' for mode in BOUNDARIES)
    listed = (boundary,) if isinstance(boundary, str) else read_list(boundary, what, SignatureError, or_one=modes)
    check_boundary(listed, where, BOUNDARIES)
    return boundary if isinstance(boundary, str) else listed


def read_pad(
    pad: Sequence[float | int | None] | None, signature: Signature, where: str
) -> tuple[float | int | None, ...] | None:
    """The neutral values of the operands as a tuple.

    Raises:
      SignatureError: when there is not one for each array operand.
    """
    if pad is None:
        return None
    pad = read_list(pad, f"pad= of {where}", SignatureError)
    for value in pad:
        if value is not None and not isinstance(value, bool | np.bool_) and not is_real(value):
            read_number(value, f"a neutral value in pad= of {where}", SignatureError)
    check_pad(pad, signature, where)
    return tuple(pad)
