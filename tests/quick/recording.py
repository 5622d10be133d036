"""A plugin of pytest that writes down what each test takes, and which of our lines it runs: `-p tests.quick.recording`.

`TAPESTRY_RECORDS` is the folder. Lines are coverage.py's, with a test for a context; it counts neither what runs while
tests are collected nor what runs in processes that tests start.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

OURS = ("combinators", "laws", "tapestry_jax")
BETWEEN = "between tests"
_SAVED = 300
"""After so many tests lines go to the file, so that memory does not grow."""


class Recorder:
    """Of one process of tests: a line of JSON a test, and a file of coverage.py."""

    def __init__(self, folder: Path, worker: str) -> None:
        from coverage import Coverage  # what it comes with is not installed for the other tests

        self._seconds = (folder / f"seconds-{worker}.jsonl").open("a", encoding="utf-8")
        self._coverage: Any = Coverage(data_file=str(folder / f"lines-{worker}"), source=OURS, config_file=False)
        # Of a process whose tests run none of our lines it would warn, and warnings are errors.
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self._tests = 0
        self._coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Run a test in a context of its own."""
        self._coverage.switch_context(item.nodeid)
        own, others = time.process_time(), _seconds_of_children()
        ran = yield
        row = item.nodeid, round(time.process_time() - own, 4), round(_seconds_of_children() - others, 4)
        self._coverage.switch_context(BETWEEN)
        self._seconds.write(json.dumps(row) + "\n")
        self._tests += 1
        if self._tests % _SAVED == 0:
            self._coverage.save()
        return ran

    def pytest_sessionfinish(self) -> None:
        """Close both files."""
        self._seconds.close()
        self._coverage.stop()
        self._coverage.save()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin, in each process that runs tests."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker or not session.config.getoption("numprocesses", None):
        if "TAPESTRY_RECORDS" not in os.environ:
            raise pytest.UsageError("TAPESTRY_RECORDS names no folder for what tests take and run")
        folder = Path(os.environ["TAPESTRY_RECORDS"])
        folder.mkdir(parents=True, exist_ok=True)
        session.config.pluginmanager.register(Recorder(folder.resolve(), worker or "alone"))


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
