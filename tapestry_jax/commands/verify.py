"""What `tapestry verify PLAN` does."""

from __future__ import annotations

import argparse
import json
import sys

from combinators.errors import PlanError
from tapestry_jax.commands.planned import chosen_plan, plan_words


def words(parser: argparse.ArgumentParser) -> None:
    """The words of `tapestry verify`."""
    plan_words(
        parser,
        "Two proofs that the plan computes its program: from the schedule, which is what is lowered, and from its\n"
        "blocks alone, which share no algebra with the first. Exit status 0 where both hold, 1 where one does not.",
        grad=False,
    )


def run(chosen: argparse.Namespace, *, is_process: bool) -> int:
    """Run `tapestry verify`.

    Raises:
      TapestryError: when the plan cannot be read.
    """
    del is_process
    plan = chosen_plan(chosen)
    refused = ""
    try:
        plan.verify()
        shards = plan.shards()
        shards.verify(plan.graph)
        told = (
            f"{plan.graph.name} on {plan.schedule.mesh}: proved, from its schedule and from {shards.count():,} blocks"
        )
    except PlanError as error:
        refused = told = str(error)
    if chosen.json:
        told = json.dumps({"verify": 1, "name": plan.graph.name, "proved": not refused, "refused": refused}, indent=1)
    sys.stdout.write(f"{told}\n")
    return int(bool(refused))
