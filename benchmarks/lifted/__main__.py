"""Lift the models of others and compare: `python -m benchmarks.lifted [NAME ...] [--again] [--write]`.

What is measured is kept; a run goes on where the last one ended. `--write` writes docs/lifted-models.md from all that
is kept.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import warnings

import jax

from benchmarks.lifted import kept, page
from benchmarks.lifted.measure import measure
from benchmarks.lifted.measured import LIMIT
from benchmarks.lifted.registry import ENTRIES


def main(arguments: list[str] | None = None) -> int:
    """Measure what is asked, or all that is not kept yet; returns 1 where a model gave other values."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lifted", description=__doc__)
    parser.add_argument("names", nargs="*", help="of models or packages, whole or in part; none is all")
    parser.add_argument("--again", action="store_true", help="measure what is kept, too")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of each search")
    parser.add_argument("--write", action="store_true", help="write the page")
    chosen = parser.parse_args(arguments)
    jax.config.update("jax_num_cpu_devices", 8)
    # Packages warn of each other's versions; that says nothing of what is measured here.
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    known, wrong = kept.read(), 0
    for entry in ENTRIES:
        asked = not chosen.names or any(name in text for name in chosen.names for text in kept.key(entry))
        if not asked or (kept.key(entry) in known and not chosen.again):
            continue
        before = time.process_time()
        answer = measure(entry, chosen.limit)
        kept.keep(answer)
        wrong += not page.holds(answer)
        shown = {name: value for name, value in answer.items() if name not in ("package", "name")}
        spent = f"{time.process_time() - before:.0f} s"
        print(f"{entry.package}: {entry.name}, {spent}: {json.dumps(shown)}", file=sys.stderr, flush=True)
    if chosen.write:
        page.FILE.write_text(page.page(kept.read()), encoding="utf-8")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
