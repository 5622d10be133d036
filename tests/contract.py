"""The collective contract, as a checker: what a plan predicts is what XLA compiles, and planned is unplanned.

`assert_holds(plan, args)` checks everything; the other assertions are its parts. A plan is compiled with its gradient,
whose program computes the values and sends what is sent forwards, too. Without it, in arrays of true sizes and for
GPU and TPU, a run compiles the first plan of each class (`tests/classes.py`), and `make thorough` compiles all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from tapestry_jax.hlo.collectives import compiled_collectives
from tapestry_jax.lowering.compiled import argument_structs
from tapestry_jax.lowering.pinned import lower_pinned
from tapestry_jax.plan import Plan
from tapestry_jax.planning.derivatives.gradients import differentiated, is_inexact
from tests.classes import boundaries, is_new, operations, sending
from tests.simulated.evaluate import simulated
from tests.thoroughly import thoroughly

Table = dict[tuple[str, frozenset[str]], int]
Grad = bool | tuple[int, ...]
# A sum whose terms cancel is as far from the true one as the largest terms are. On a CPU without AVX-512 a gradient
# of two layers is off by 11 roundings of float32 of its largest number, and so is the one without a plan.
_ROUNDINGS = 32 * 2.0**-23


def assert_holds(
    plan: Plan,
    args: Sequence[Any],
    *,
    grad: Grad = True,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    reference: Callable[..., Any] | None = None,
) -> None:
    """Coverage, the contract forwards and backwards, equal values and gradients, and lowering for GPU and TPU."""
    plan.verify()
    assert_contract(plan, grad)
    assert_same(plan, args, grad=grad, rtol=rtol, atol=atol, reference=reference)
    assert_exports(plan)


def assert_contract(plan: Plan, grad: Grad = True, *, at_most: bool = False, bounded: bool = False) -> None:
    """The predicted bytes, for every kind and set of mesh axes, times trip counts, are those of the compiled HLO.

    With `at_most` gradients may send less: JAX takes what is the same in all turns out of a loop it differentiates.
    With `bounded` less may be sent in both phases, but by no more than the entries that say that they are bounds.
    What is predicted forwards is in any case what is predicted with the gradient and does not belong to it.
    """
    exact_forwards = at_most or bounded or _compiles_forwards(plan, grad)
    if grad is not False:
        alone, among = (
            [(str(each), each.bytes, each.times) for each in _predicted(plan, phase) if not each.backward]
            for phase in (False, grad)
        )
        assert alone == among, f"predicted forwards {alone}, and with the gradient {among}"
    for phase in dict.fromkeys((False, grad) if exact_forwards else (grad,)):
        listed = _predicted(plan, phase)
        predicted = table(listed)
        found = compiled_collectives(_compiled(plan, phase).as_text(), plan.mesh)
        sent = table(found)
        least = table(each for each in listed if not each.bound)
        keys = {*predicted, *sent}
        less = at_most and phase is not False and all(size <= predicted.get(key, 0) for key, size in sent.items())
        less = less or (bounded and all(least.get(key, 0) <= sent.get(key, 0) <= predicted.get(key, 0) for key in keys))
        assert sent == predicted or less, "\n".join(
            [
                f"{'forward' if phase is False else 'with the gradient'}: predicted {_shown(predicted)}",
                *("  " + str(each) for each in listed),
                f"compiled {_shown(table(found))}",
                *("  " + str(each) for each in found),
            ]
        )


def assert_same(
    plan: Plan,
    args: Sequence[Any],
    *,
    grad: Grad = True,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    reference: Callable[..., Any] | None = None,
) -> None:
    """Planned is unplanned: values and gradients, with arrays as the plan stores them.

    Where it stores padded pieces, with true sizes too, and gradients of padding are exactly zero. With `reference` the
    values are held against that function of the arguments. What is unplanned is run by NumPy, equation by equation. It
    is compiled where that differs, since XLA rounds functions such as tanh in another way; and in thorough tests.
    """
    if not thoroughly():
        try:
            return _assert_same(plan, args, grad, rtol, atol, reference, simulated)
        except AssertionError:
            pass
    _assert_same(plan, args, grad, rtol, atol, reference, _called_compiled)


def _largest(array: Any) -> float:
    """The largest finite magnitude; 0 of whole numbers."""
    numbers = np.asarray(array)
    if not is_inexact(numbers.dtype):
        return 0.0
    magnitudes = np.abs(numbers).astype(np.float64)
    return float(np.max(magnitudes, initial=0, where=np.isfinite(magnitudes)))


def _assert_same(
    plan: Plan,
    args: Sequence[Any],
    grad: Grad,
    rtol: float,
    atol: float,
    reference: Callable[..., Any] | None,
    call: Callable[..., Any],
) -> None:
    graph, wanted = plan.graph, differentiated(plan.graph, grad)

    def close(actual: Any, expected: Any, what: str) -> None:
        within = max(atol, _ROUNDINGS * _largest(expected))
        np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=rtol, atol=within, err_msg=what)

    true = [slot.type for slot in (plan.schedule.slots[i] for i in plan.schedule.outputs)]
    cotangents = [_cotangent(kind.shape, kind.dtype) for kind in true if is_inexact(kind.dtype)]
    leaves = jax.tree.leaves(tuple(args))
    values, gradients = call(_unplanned(graph, wanted), leaves, cotangents)
    if reference is not None:
        jax.tree.map(
            lambda a, b: close(a, b, "unplanned"), jax.tree.unflatten(graph.out_tree, values), reference(*args)
        )

    # From the host: of an array on a device JAX cuts each piece by a program of its own.
    placed = jax.tree.leaves(plan.put(*jax.tree.map(_on_the_host, tuple(args))))
    if _compiles_forwards(plan, grad):
        forward = plan.take(jax.tree.unflatten(graph.out_tree, _compiled(plan, False)(placed)))
        for name, actual, expected in zip(_names(plan), jax.tree.leaves(forward), values, strict=True):
            close(actual, expected, f"{name}, forward")
    if grad is False:
        run = jax.tree.leaves(plan.compile()(*args))
        assert [leaf.dtype for leaf in run] == [kind.dtype for kind in true]
        for name, actual, expected in zip(_names(plan), run, values, strict=True):
            close(actual, expected, f"{name}, true sizes")
        return

    program = _compiled(plan, grad)
    shapes = [leaf.shape for leaf in jax.tree.leaves(program.out_info)]
    smooth = [i for i, kind in enumerate(true) if is_inexact(kind.dtype)]
    padded = [_zero_padded(ct, shapes[i]) for i, ct in zip(smooth, cotangents, strict=True)]
    shardings = jax.tree.leaves(plan.out_shardings)
    padded = [jax.device_put(ct, shardings[i]) for i, ct in zip(smooth, padded, strict=True)]
    made, found = program(placed, padded)
    assert [leaf.dtype for leaf in made] == [kind.dtype for kind in true]
    for name, actual, expected in zip(_names(plan), made, values, strict=True):
        close(_crop(actual, expected.shape), expected, f"{name}, with the gradient")
    for position, actual, expected in zip(wanted, found, gradients, strict=True):
        name = f"gradient by {graph.inputs[position].name}"
        close(_crop(actual, expected.shape), expected, name)
        outside = np.array(actual)
        outside[tuple(slice(size) for size in expected.shape)] = 0
        np.testing.assert_array_equal(outside, 0, err_msg=f"{name}: padding")

    is_padded = any(leaf.shape != arg.shape for leaf, arg in zip(placed, leaves, strict=True)) or any(
        kind.shape != shape for kind, shape in zip(true, shapes, strict=False)
    )
    if is_padded and _compiles_true_sizes(plan):
        run = plan.compile().jitted

        def in_true_sizes(*flat: Any) -> list[Any]:
            results = jax.tree.leaves(run(*jax.tree.unflatten(graph.in_tree, flat)))
            return [
                leaf[tuple(map(slice, kind.shape))] if leaf.shape != kind.shape else leaf
                for leaf, kind in zip(results, true, strict=True)
            ]

        made, found = jax.jit(lambda *given: _vjp(in_true_sizes, wanted, *given))(leaves, cotangents)
        for name, actual, expected in zip(_names(plan), made, values, strict=True):
            close(actual, expected, f"{name}, true sizes")
        for position, actual, expected in zip(wanted, found, gradients, strict=True):
            close(actual, expected, f"gradient by {graph.inputs[position].name}, true sizes")


def assert_exports(plan: Plan) -> None:
    """The program lowers for CUDA and TPU, on a machine that has neither.

    What lowers, or does not, are operations: a program all of whose operations stood in programs that this process has
    lowered already, on arrays of any rank, is left to the thorough tests.
    """
    kinds = {(name, options, *(dtype for dtype, _ in given)) for name, options, *given in operations(_traced(plan))}
    if not is_new("exports", kinds):
        return
    run, structs = _program(plan), argument_structs(plan.schedule, plan.mesh)
    exported = jax.export.export(run, platforms=("cuda", "tpu"))(*structs)
    assert exported.platforms == ("cuda", "tpu")
    assert exported.nr_devices == plan.mesh.size


def _on_the_host(leaf: Any) -> Any:
    is_plain = isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(leaf) if is_plain else leaf


def inside(plan: Plan, grad: Grad = False) -> tuple[Any, ...]:
    """What a plan sends but for the entering and leaving of what does not divide."""
    return tuple(each for each in plan.collectives(grad) if not each.path.startswith(("input ", "output ")))


def table(collectives: Iterable[Any]) -> Table:
    """Bytes by kind and set of mesh axes: XLA may combine several collectives into one, which leaves these sums."""
    total: Counter[tuple[str, frozenset[str]]] = Counter()
    for each in collectives:
        total[each.kind, frozenset(each.axes)] += each.bytes * each.times
    return {key: size for key, size in total.items() if size}


@lru_cache(maxsize=8)
def _program(plan: Plan) -> Any:
    return plan.compile().jitted


def _traced(plan: Plan) -> Any:
    return _program(plan).trace(*argument_structs(plan.schedule, plan.mesh)).jaxpr.jaxpr


@lru_cache(maxsize=8)
def _compiles_forwards(plan: Plan, grad: Grad) -> bool:
    """Whether the program is compiled without its gradient as well."""
    return grad is False or is_new("forwards", sending(_traced(plan)))


@lru_cache(maxsize=8)
def _compiles_true_sizes(plan: Plan) -> bool:
    return is_new("true sizes", boundaries(plan))


@lru_cache(maxsize=8)
def _predicted(plan: Plan, grad: Grad) -> tuple[Any, ...]:
    return plan.collectives(grad)


@lru_cache(maxsize=8)
def _compiled(plan: Plan, grad: Grad) -> Any:
    return lower_pinned(plan.schedule, plan.mesh, grad, _program(plan)).compile()


@lru_cache(maxsize=8)
def _unplanned(graph: Any, wanted: tuple[int, ...]) -> Callable[..., Any]:
    def run(*leaves: Any) -> Any:
        return graph(*jax.tree.unflatten(graph.in_tree, leaves))

    return jax.jit(lambda leaves, cotangents: _vjp(run, wanted, leaves, cotangents))


def _called_compiled(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def _vjp(function: Any, wanted: Sequence[int], leaves: Sequence[Any], cotangents: Sequence[Any]) -> Any:
    def of_chosen(chosen: list[Any]) -> list[Any]:
        filled = list(leaves)
        for position, leaf in zip(wanted, chosen, strict=True):
            filled[position] = leaf
        return jax.tree.leaves(function(*filled))

    results, pull = jax.vjp(of_chosen, [jnp.asarray(leaves[position]) for position in wanted])
    given = iter(cotangents)
    full = [next(given) if is_inexact(r.dtype) else np.zeros(r.shape, jax.dtypes.float0) for r in results]
    return results, pull(full)[0]


def _cotangent(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.cos(np.arange(np.prod(shape, dtype=int))).reshape(shape).astype(dtype)


def _zero_padded(array: Any, shape: tuple[int, ...]) -> Any:
    padded = np.zeros(shape, array.dtype)
    padded[tuple(slice(size) for size in array.shape)] = array
    return padded


def _crop(array: Any, shape: tuple[int, ...]) -> Any:
    return np.asarray(array)[tuple(slice(size) for size in shape)]


def _names(plan: Plan) -> list[str]:
    return [name for name, _ in plan.graph.outputs]


def _shown(found: Table) -> str:
    rows = sorted((kind, "+".join(sorted(axes)), size) for (kind, axes), size in found.items())
    return "; ".join(f"{kind} over {axes}: {size:,} B" for kind, axes, size in rows) or "nothing"
