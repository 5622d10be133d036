"""The catalogue as text: for the terminal, and as the page of the documentation."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from laws.catalogue import catalogue
from laws.law import Law

FAMILIES = {
    "monoid": "An identity `e` and a `+`. Laws of what is declared (commutative, idempotent, inverse, native, frame, "
    "parts) are checked only where it is.",
    "semiring": "Two monoids, one of which distributes over the other: `tp.laws.Semiring(add, multiply)`.",
    "homomorphism": "A function from the states of one monoid to those of another: `tp.laws.Homomorphism(h, M, N)`.",
    "action": "A monoid that acts on points: `tp.laws.Action(act, M, type of a point)`.",
    "aggregator": "`[xs]` is `lift_many(xs)`, `run` presents it. What is compared is what is presented.",
    "map": "A kernel over a box `B` of its index space, run on pieces, on blocks and on poisoned operands.",
    "reduce": "A kernel whose states are merged along the fold dimensions.",
    "scan": "Prefixes along one dimension.",
    "arrow": "A category with products: `>>`, `first`, `*`, `&`.",
    "choice": "Two cases, of which one counts: `left`, `right`, `|`.",
    "feedback": "A step `(x, state) -> (y, state)` along a sequence. There is no law of yanking: a scan with a state "
    "that waits for the next step is feedback, and not a trace.",
    "plan": "Planned is unplanned. `tp.laws.assert_equivalent` checks the first five, `tp.laws.assert_embeddings` that "
    "one program gives the same on one device, on the mesh, block by block, as a stream and on a cluster.",
}
"""What each family is about, in the order of the page."""

JUDGED = {
    "rounding": "conditioned",
    "range": "range",
    "bits": "bitwise",
    "object": "equal",
}

HEAD = """# The laws

Every law that `tp.laws` knows, as `tapestry laws --list` prints them; `tapestry laws --markdown` prints this page.

A law is a pure function that returns two sides. It is checked on arguments that are drawn as programs over the piece's
own operations, and it is *not checked*, with the reason, where it says nothing about a piece; it never passes by
default.

How the sides are compared: *conditioned*, exactly where nothing is rounded and else within
`4 * depth * u * (|J| |x| + |f(x)|)`, with `u` half the machine epsilon of the dtype and `J` the float64 Jacobian
(aggregators, gradients and other programs of many steps may also differ by what rounding at every step makes of them in
float64; beside a reference only by what rounding their arguments would, so that no formula is excused for the digits
that it loses); *range*, as these, with infinities, NaN and the ends of the dtype's range in play; *bitwise*; *equal*,
as Python objects.
"""


def listing() -> str:
    """Every law with its formula and, under it, its source, for the terminal."""
    wide = max(len(law.name) for law in catalogue)
    return "\n".join(f"{law.name:<{wide}}  {law.formula}\n{'':<{wide}}  source: {law.source}" for law in catalogue)


def page() -> str:
    """The page of the documentation, in Markdown."""
    return "\n".join([HEAD, *_sections()])


def description(law: Law) -> str:
    """The first sentence of a law's docstring: what its two sides do."""
    return (inspect.getdoc(law.function) or "").splitlines()[0]


def _sections() -> Iterator[str]:
    for family, about in FAMILIES.items():
        yield f"## {family}\n\n{about}\n"
        yield "| law | left ~ right | what it does | compared | source |"
        yield "|---|---|---|---|---|"
        for law in catalogue:
            if law.family == family:
                cells = (f"`{law.short}`", f"`{law.formula}`", description(law), JUDGED[law.judged], law.source)
                yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        yield ""
