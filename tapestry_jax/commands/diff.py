"""What `tapestry diff PLAN OTHER` does."""

from __future__ import annotations

import argparse
import sys

from tapestry_jax.commands.planned import chosen_plan, machine_words, plan_words, read_plan


def words(parser: argparse.ArgumentParser) -> None:
    """The words of `tapestry diff`."""
    plan_words(
        parser,
        "What two plans of one program say otherwise: what was asked for, where dimensions go, how arguments and\n"
        "results lie, what is sent; on a machine also what they cost. Exit status 0 where they are the same, 1 where\n"
        "they differ.",
    )
    parser.add_argument("other", metavar="OTHER", help="another plan of the same graph, named likewise")
    machine_words(parser)


def run(chosen: argparse.Namespace, *, is_process: bool) -> int:
    """Run `tapestry diff`.

    Raises:
      TapestryError: when a plan cannot be read, they are of different programs, or the machine is not known.
    """
    del is_process
    plan, other = chosen_plan(chosen), read_plan(chosen.other, chosen, "tapestry diff")
    found = plan.diff(other, chosen.machine, chosen.grad)
    sys.stdout.write(f"{found.to_json() if chosen.json else found}\n")
    return int(bool(found))
