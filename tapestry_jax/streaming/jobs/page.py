"""A run as a page: what went through every stage, when, and what memory it needed beside what was planned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from tapestry_jax.report.page.html import closed_page
from tapestry_jax.streaming.fits.budget import Budget, shown
from tapestry_jax.streaming.measured.metrics import Metrics, Stage

STYLE = """
:root { color-scheme: light dark; --page: light-dark(#fff, #14171c); --text: light-dark(#1c2128, #e4e8ee);
  --soft: light-dark(#57606c, #a3adba); --line: light-dark(#d4d9e0, #353c47); --read: light-dark(#4c9a68, #4f9b6b);
  --compute: light-dark(#1257c9, #82b1ff); --write: light-dark(#c56a10, #dd8a35); }
body { margin: 0 auto; max-width: 960px; padding: 16px; background: var(--page); color: var(--text);
  font: 14px/1.45 system-ui, sans-serif; }
h1 { margin: 0; font-size: 17px; overflow-wrap: anywhere; }
h2 { margin: 20px 0 6px; font-size: 15px; }
p { margin: 4px 0; color: var(--soft); overflow-wrap: anywhere; }
table { border-collapse: collapse; }
th, td { padding: 3px 14px 3px 0; text-align: left; border-bottom: 1px solid var(--line); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
svg { display: block; width: 100%; height: 150px; border-bottom: 1px solid var(--line); }
svg text { fill: var(--soft); font-size: 11px; }
.read { fill: var(--read); } .compute { fill: var(--compute); } .write { fill: var(--write); }
"""
_WIDE, _LEFT, _TALL = 940, 70, 36
"""Of the picture of the time: its width, where the time begins, and the height of a lane."""


def run_page(name: str, dims: Sequence[str], turns: int, metrics: Metrics, budget: Budget) -> str:
    """The page of a run.

    It holds no script and loads nothing; light or dark is as the reader has it.

    Args:
      name: of the program.
      dims: the streamed dimensions.
      turns: of all passes.
      metrics: of the run.
      budget: what was planned.

    Returns:
      HTML, in which names of users are text.
    """
    chunks = "; ".join(f"{dim}: {count} turns of {block} cells" for dim, block, count in budget.chunks)
    rate = f"{metrics.turns / metrics.seconds:,.1f} turns a second" if metrics.seconds else "no time"
    parts = [
        f"<header><h1>{_text(name)}</h1>",
        f"<p>streamed over {_text(', '.join(dims))}; {_text(chunks)}</p>",
        f"<p>{metrics.turns:,} of {turns:,} turns in {metrics.seconds:.3f} s, {rate}</p></header>",
        "<h2>Stages</h2>",
        _table(
            ("stage", "bytes", "calls", "busy", "throughput", "loop waited", "most at once"),
            [_stage(stage) for stage in metrics.stages],
        ),
        "<h2>Time</h2>",
        _lanes(metrics),
        "<h2>Memory</h2>",
        _memory(metrics, budget),
    ]
    return closed_page("stream", STYLE, "\n".join(parts))


def _stage(stage: Stage) -> tuple[str, ...]:
    rate = f"{shown(round(stage.throughput))}/s" if stage.busy else "-"
    seconds = (f"{stage.busy:.3f} s", rate, f"{stage.waiting:.3f} s")
    return (stage.name, shown(stage.bytes), f"{stage.calls:,}", *seconds, f"{stage.depth:,}")


def _memory(metrics: Metrics, budget: Budget) -> str:
    rows = [(row.name, shown(row.bytes), row.what) for row in budget.rows]
    rows.append(("planned", shown(budget.total), budget.part))
    measured = "the system does not say" if metrics.memory is None else shown(metrics.memory)
    rows.append(("measured", measured, "the process above its begin, at its most, looked at behind turns"))
    if budget.limit is not None:
        rows.append(("limit", shown(budget.limit), "as it was given"))
    return _table(("memory", "bytes", "what for"), rows, numbers=(1,))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = range(1, 9)) -> str:
    lines = [
        "".join(
            f'<{tag} class="number">{_text(cell)}</{tag}>' if place in numbers else f"<{tag}>{_text(cell)}</{tag}>"
            for place, cell in enumerate(cells)
        )
        for tag, cells in (("th", heads), *(("td", row) for row in rows))
    ]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _lanes(metrics: Metrics) -> str:
    """When each stage was busy; what is not drawn is waiting."""
    scale = (_WIDE - _LEFT) / max(metrics.seconds, 1e-9)
    parts = [f'<svg viewBox="0 0 {_WIDE} {_TALL * len(metrics.stages) + 24}" role="img" aria-label="stages over time">']
    for lane, stage in enumerate(metrics.stages):
        top = lane * _TALL
        parts.append(f'<text x="0" y="{top + 20}">{_text(stage.name)}</text>')
        for start, stop in stage.spans:
            wide = max((stop - start) * scale, 0.5)
            told = f"{start:.3f} s to {stop:.3f} s"
            parts.append(
                f'<rect class="{_text(stage.name)}" x="{_LEFT + start * scale:.2f}" y="{top + 6}" '
                f'width="{wide:.2f}" height="{_TALL - 12}"><title>{told}</title></rect>'
            )
    bottom = _TALL * len(metrics.stages) + 16
    marks = [(_LEFT + share * (_WIDE - _LEFT), share * metrics.seconds) for share in (0, 1 / 4, 1 / 2, 3 / 4)]
    parts += [f'<text x="{x:.0f}" y="{bottom}">{at:.3f} s</text>' for x, at in marks]
    return "".join([*parts, "</svg>"])


def _text(text: str) -> str:
    """A text as HTML; halves of characters, which no file could hold, are replaced."""
    return escape(text.encode(errors="replace").decode())
