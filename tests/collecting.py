"""What each worker would do again before its first test, and need not.

pytest looks for doctests in every file, hypothesis reads all our numbers out of our sources, and in a fresh clone every
worker rewrites the `assert`s of all tests.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.thoroughly import thoroughly

ROOT = Path(__file__).parents[1]


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, Any, Any]:
    """Leave out files in which no doctest can be: pytest imports each, and asks each of its objects.

    The others are imported as Python does it. pytest would set the module as its package's attribute, in the place of
    what the package has: `infer` of `tapestry_jax.inference` is a function, not the module of that name.
    """
    collectors = yield
    if all(type(collector) is pytest.Module for collector in collectors):
        return collectors
    if b">>>" in file_path.read_bytes():
        _import(file_path)
        return collectors
    return [collector for collector in collectors if type(collector) is pytest.Module]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let every other worker import tests from the last to the first, so that each one's bytecode serves the other."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    if session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS or int(worker) % 2 == 0:
        return
    for path in sorted((ROOT / "tests").rglob("test_*.py"), reverse=True):
        _import(path)


def _import(path: Path) -> None:
    """Import a file of ours; what is wrong with it is told where pytest imports it."""
    if path.is_relative_to(ROOT) and path.name != "__init__.py":
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def draw_without_our_numbers() -> None:
    """From here on in this process hypothesis draws no numbers and texts that stand in our sources.

    It parses them all first, and again asks of each number whether it is allowed, for every range drawn from. `make
    thorough` leaves them in. There is no public name for it: where the one that is looked for is not there, it stays.
    """
    providers: Any = importlib.import_module("hypothesis.internal.conjecture.providers")
    none = getattr(providers, "_local_constants", None)
    if none is not None and hasattr(providers, "_get_local_constants") and not thoroughly():
        providers._get_local_constants = lambda: none
