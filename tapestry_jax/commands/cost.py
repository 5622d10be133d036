"""What `tapestry cost PLAN --machine NAME` does."""

from __future__ import annotations

import argparse
import sys

from tapestry_jax.commands.planned import chosen_plan, machine_words, plan_words


def words(parser: argparse.ArgumentParser) -> None:
    """The words of `tapestry cost`."""
    plan_words(
        parser,
        "The seconds of one run on a machine, by operation and by collective, as priced from the schedule.\n"
        "Exit status 0; 2 where there is no plan to price.",
    )
    machine_words(parser)
    parser.add_argument("--timeline", action="store_true", help="the same seconds in time: a chart of lanes")


def run(chosen: argparse.Namespace, *, is_process: bool) -> int:
    """Run `tapestry cost`.

    Raises:
      TapestryError: when the plan cannot be read, or the machine is not known.
    """
    del is_process
    plan = chosen_plan(chosen)
    found = (plan.timeline if chosen.timeline else plan.cost)(chosen.machine, chosen.grad)
    sys.stdout.write(f"{found.to_json() if chosen.json else found}\n")
    return 0
