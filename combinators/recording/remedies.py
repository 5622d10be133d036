"""What to write instead of the methods of arrays, which values of a program do not have."""

from __future__ import annotations

from combinators.errors import GraphError, message


class NoSuchAttribute(GraphError, AttributeError):
    """An attribute that arrays have and values of a program do not; `hasattr` answers no."""


_FOLDS = {
    "sum": "Sum",
    "mean": "Mean",
    "max": "Max",
    "min": "Min",
    "prod": "Prod",
    "any": "Any",
    "all": "All",
    "var": "Moments",
    "std": "Moments",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
}
_SCANS = {"cumsum": "Sum", "cumprod": "Prod"}
_REMEDIES = {
    **{name: f'Say what is folded: tp.fold(tp.aggregators.{kind}(), "n c -> c")(x).' for name, kind in _FOLDS.items()},
    **{name: f'Say along what: tp.scan(tp.aggregators.{kind}(), "s t -> s t")(x).' for name, kind in _SCANS.items()},
    **dict.fromkeys(
        ("reshape", "ravel", "flatten", "squeeze", "swapaxes", "repeat"),
        'Say what becomes of the axes: tp.rearrange("b (h d) -> b h d", h=8)(x).',
    ),
    **dict.fromkeys(("dot", "trace", "diagonal"), 'Say what is summed: tp.einsum("i k, k n -> i n")(x, w).'),
    **dict.fromkeys(
        ("item", "tolist", "block_until_ready", "addressable_data", "device_buffer"),
        "Return it from the program; it has numbers when the program runs.",
    ),
    **dict.fromkeys(
        ("sharding", "device", "devices", "addressable_shards", "is_fully_addressable"),
        "A program says nothing of devices; a plan does: tp.plan(graph, mesh, {...}).",
    ),
    "at": "Values do not change. Choose between two: tp.Map(jnp.where)(condition, a, b).",
    "sort": 'Give the kernel the whole axis: tp.Map(jnp.sort, "... [n] -> ... [n]")(x).',
    "argsort": 'Give the kernel the whole axis: tp.Map(jnp.argsort, "... [n] -> ... [n]")(x).',
    "take": 'Read cells by a kernel: tp.Map(lambda x, at: x[at], "[n], m -> m")(x, at).',
}
_FUNCTIONS = {"real": "real", "imag": "imag", "conj": "conj", "conjugate": "conj", "clip": "clip", "round": "round"}


def no_such_attribute(value: object, name: str) -> NoSuchAttribute:
    """The error for an attribute that a value does not have, with what to write instead.

    Args:
      value: the value, as the error shows it.
      name: of the attribute.
    """
    remedy = _REMEDIES.get(name, f"Make a leaf of it: tp.Map(lambda x: x.{name}, signature)(x).")
    if name in _FUNCTIONS:
        remedy = f"Make it a leaf: tp.Map(jnp.{_FUNCTIONS[name]})(x)."
    return NoSuchAttribute(
        message(f"a value of a program that is being traced has no `{name}`", f"got {value!r}", remedy=remedy)
    )
