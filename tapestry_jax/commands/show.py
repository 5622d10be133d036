"""What `tapestry show PLAN -o plan.html` does."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tapestry_jax.commands.planned import check_not_read, chosen_plan, machine_words, plan_words


def words(parser: argparse.ArgumentParser) -> None:
    """The words of `tapestry show`."""
    plan_words(
        parser,
        "A plan as a page for a browser: one file, which asks no network for anything. Its path is printed.\n"
        "Exit status 0; 2 where there is no plan to draw.",
    )
    machine_words(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the page; by default beside the plan file, else in the working directory",
    )
    parser.add_argument("--memory", action="store_true", help="trace the program, and show the buffers at the peak")
    parser.add_argument("--open", action="store_true", help="show the page in a browser")


def run(chosen: argparse.Namespace, *, is_process: bool) -> int:
    """Run `tapestry show`.

    Raises:
      TapestryError: when the plan cannot be read, the machine is not known, or the page cannot be written.
    """
    del is_process
    plan = chosen_plan(chosen)
    beside = Path(chosen.plan) if chosen.graph is not None else Path("plan.json")
    path = beside.with_suffix(".html") if chosen.output is None else chosen.output
    check_not_read(path, [chosen.plan, chosen.graph], "tapestry show")
    page = plan.show(path, chosen.machine, grad=chosen.grad, memory=chosen.memory, open=chosen.open)
    sys.stdout.write(f"{json.dumps({'show': 1, 'page': str(page)}) if chosen.json else page}\n")
    return 0
