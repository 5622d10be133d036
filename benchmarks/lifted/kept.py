"""What was measured, in a file beside the registry, so that the page can be written again without the packages."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.lifted.entry import Entry

Answer = dict[str, Any]
FILE = Path(__file__).with_name("answers.json")
Key = tuple[str, str]


def key(entry: Entry) -> Key:
    """What tells a model from the others."""
    return entry.package, entry.name


def read() -> dict[Key, Answer]:
    """What is kept of each model."""
    if not FILE.exists():
        return {}
    return {(each["package"], each["name"]): each for each in json.loads(FILE.read_text(encoding="utf-8"))}


def keep(answer: Answer) -> None:
    """Keep what a model gave, in the place of what it gave before, with the versions that it was measured with."""
    found = read()
    versions = {name: metadata.version(name) for name in ("jax", answer["package"])}
    found[answer["package"], answer["name"]] = answer | {"versions": versions}
    listed = [found[each] for each in sorted(found)]
    FILE.write_text("[\n" + ",\n".join(json.dumps(each) for each in listed) + "\n]\n", encoding="utf-8")
