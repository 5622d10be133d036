"""A graph as a small table of HTML, for notebooks: text alone, without styles or scripts that others would meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from combinators.graphs.show import outputs_text, rows

if TYPE_CHECKING:
    from combinators.graphs.graph import Graph

MOST = 200
"""So many rows are shown."""


def graph_table(graph: Graph) -> str:
    """The table of `graph.show()`.

    Args:
      graph: any graph.

    Returns:
      HTML; names of users stand in it as text.
    """
    body = [("\u2003" * line.depth + line.path, line.what, line.types) for line in rows(graph)]
    return table(outputs_text(graph), ("operation", "what", "type"), body)


def table(caption: str, heads: Sequence[str], body: Sequence[Sequence[str]], right: Iterable[int] = ()) -> str:
    """A table of texts; of a long one its beginning, and how many rows are left out.

    Args:
      caption: above it.
      heads: of the columns.
      body: rows, as long as `heads`.
      right: columns that are aligned at their right.
    """
    sides = ["right" if place in {*right} else "left" for place in range(len(heads))]
    lines = [_line("td", cells, sides) for cells in body[:MOST]]
    if len(body) > MOST:
        lines.append(f'<tr><td colspan="{len(heads)}">and {len(body) - MOST:,} more rows</td></tr>')
    top = f'<caption style="text-align: left">{_text(caption)}</caption><thead>{_line("th", heads, sides)}</thead>'
    return f"<table>{top}<tbody>{''.join(lines)}</tbody></table>"


def _line(tag: str, cells: Sequence[str], sides: Sequence[str]) -> str:
    told = (f'<{tag} style="text-align: {side}">{_text(cell)}</{tag}>' for cell, side in zip(cells, sides, strict=True))
    return f"<tr>{''.join(told)}</tr>"


def _text(text: str) -> str:
    # Notebooks read `$` as the begin of a formula.
    return escape(text).replace("$", "&#36;")
