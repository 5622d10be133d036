"""Proposing the signature of an unknown kernel, from what it does to poisoned operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax

from combinators.errors import GraphError, KernelError, message, spelt
from combinators.index_space.tensor_type import TensorType, type_of
from combinators.kernels.captured import check_captured
from combinators.kernels.kernel import check_kernel
from combinators.leaves.options import kernel_name
from tapestry_jax.inference.findings import Findings
from tapestry_jax.inference.folds import find_folds, find_scan
from tapestry_jax.inference.follow import follow
from tapestry_jax.inference.inferred import Inferred
from tapestry_jax.inference.names import Names
from tapestry_jax.inference.probe import Probe


def infer(function: Callable[..., Any], specs: Sequence[Any], *, name: str | None = None) -> Inferred:
    """Propose the signature of a kernel, by changing its operands slab by slab and looking at what answers.

    Floats are changed to NaN and to other numbers, integers and booleans to others. An axis that a result follows cell
    by cell is a map dimension, or a window; what no result follows is tried as a fold, by slicing it in two and merging
    the results with each monoid that ships for numbers; what stays is whole. Every proposed dimension is then cut, so
    that a kernel that knows its coordinates or its size is found. Sizes that no operand tells are those that were seen.
    It is a proposal still: test it with `tp.laws.assert_lawful(found.arrow, specs)`.

    Args:
      function: operands -> array, or a tuple of arrays; an ordinary JAX function.
      specs: a list with the type of each operand: `tp.TensorType`, `jax.ShapeDtypeStruct` or arrays, whose numbers are
        not looked at. Sizes from 3 to 8, all different where possible, tell most.
      name: what the proposal and errors call the kernel.

    Returns:
      The proposal; `found.arrow` is the leaf, `found.untold` what could not be told.

    Raises:
      GraphError: when `specs` is no list of types, or a result is no array.
      KernelError: when the kernel is no function, closes over arrays, returns nothing, or cannot run on such operands.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> left, right = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4, 5), (5, 3)))
      >>> print(infer(jnp.matmul, [left, right]))
      matmul: reduce "i k, k j -> i j", Sum
    """
    called = _checked_name(function, name)
    types = _read(specs)
    # No arrow could be made of a kernel that holds arrays.
    check_captured(function, [kind.struct for kind in types], f"tp.infer: `{called}`")
    findings = Findings(Probe(function, types, called))
    # NaN and infinity are what kernels are asked with here, and no fault.
    with jax.debug_nans(False), jax.debug_infs(False):
        find_scan(findings, follow(findings))
        find_folds(findings)
        names = Names(findings)
    return Inferred(
        function,
        names.signature,
        findings.monoid,
        None if findings.over is None else names.of_scan,
        findings.reverse,
        tuple(names.sizes.items()),
        (*findings.untold(), *names.notes),
        called,
    )


def _checked_name(function: Any, name: str | None) -> str:
    if not callable(function):
        raise KernelError(
            message(
                "tp.infer takes a kernel.",
                "expected a function from arrays to an array, or to a tuple of arrays",
                f"got {type(function).__name__}: {spelt(function)}",
                remedy="Pass the function first, then the list of its operands' types.",
            )
        )
    called = kernel_name(function, name)
    check_kernel(function, f"tp.infer({called})")
    return called


def _read(specs: Any) -> list[TensorType]:
    if isinstance(specs, Sequence) and not isinstance(specs, str | bytes) and specs:
        listed = cast("Sequence[Any]", specs)
        return [type_of(spec, f"operand {number} of tp.infer") for number, spec in enumerate(listed)]
    raise GraphError(
        message(
            "tp.infer takes the types of the kernel's operands.",
            "expected a list with a tp.TensorType, jax.ShapeDtypeStruct or array for each operand, one at least",
            f"got {type(specs).__name__}: {spelt(specs)}",
            remedy="Write tp.infer(kernel, [jax.ShapeDtypeStruct((4, 3), jnp.float32)]).",
        )
    )
