"""The typed errors of the library: each says what failed, where, what was expected and got, and one remedy."""

from __future__ import annotations


class TapestryError(Exception):
    """Base of every error that this library raises on purpose."""


class SignatureError(TapestryError):
    """A signature that cannot be read, or operands that do not fit it."""


class CompositionError(TapestryError):
    """Two arrows, or two values, whose types do not meet."""


class GraphError(TapestryError):
    """A program that cannot be traced, or a graph that cannot be built, read or stored."""


class KernelError(GraphError):
    """A kernel that cannot be used: it holds arrays, mixes cells it should not, or has no public name."""


class PlanError(TapestryError):
    """A plan that its graph or its mesh cannot hold."""


class MeshError(PlanError):
    """A mesh that cannot be made or does not have the axis."""


class FormatError(TapestryError):
    """A stored graph or plan that is truncated, edited or of another version."""


def first_line(error: BaseException) -> str:
    """What others raised, such as a user's kernel, on one line: its type and the first line of its text."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def spelt(value: object, most: int = 80) -> str:
    """A value of a user as an error shows it: its `repr`, short, whatever its class does to tell it."""
    try:
        return repr(value)[:most]
    except Exception as error:  # noqa: BLE001 - too deep, too many digits, or a `__repr__` that fails
        if type(value) is int:
            return f"an integer of {value.bit_length()} bits"
        return f"one that cannot be shown ({type(error).__name__})"


def message(headline: str, *details: str, remedy: str | None = None) -> str:
    """Join a headline, indented detail lines and one remedy into the house format of an error.

    Args:
      headline: what failed and where; one line.
      details: what was expected and what came; each is indented by two spaces.
      remedy: one imperative sentence.

    Returns:
      The text of the error.
    """
    lines = [headline]
    for detail in details:
        lines.extend("  " + line for line in detail.splitlines())
    if remedy is not None:
        lines.append("  " + remedy)
    return "\n".join(lines)
