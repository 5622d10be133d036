"""Every script of the examples names what is there: those that run for seconds run in thorough tests alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.example_modules import EXAMPLES
from tests.house.named_in_documents import misnamed

SCRIPTS = sorted(path for path in EXAMPLES.rglob("*.py") if path.name != "__init__.py")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_examples_name_what_is_there_and_calls_fit(script: Path) -> None:
    assert misnamed(script.read_text(encoding="utf-8")) == []
