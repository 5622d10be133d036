"""What workers leave out before their first test is what nobody misses: tests/collecting.py."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import collecting
from tests.thoroughly import thoroughly

DOCTEST = '"""Told.\n\n>>> 1 + 1\n2\n"""\n'
TEST = '"""Nothing to run."""\n\n\ndef test_it():\n    pass\n'


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [("test_it.py", TEST, 1), ("test_it.py", DOCTEST + TEST, 2), ("it.py", DOCTEST, 1), ("it.py", TEST, 0)],
)
def test_files_are_asked_for_doctests_where_one_can_be(
    name: str, text: str, expected: int, request: pytest.FixtureRequest, tmp_path: Path
):
    (tmp_path / name).write_text(text)
    found = request.config.hook.pytest_collect_file(file_path=tmp_path / name, parent=request.session)
    assert len(found) == expected
    assert any(type(collector) is pytest.Module for collector in found) == (name == "test_it.py")


@pytest.mark.parametrize("worker", ["gw0", "gw1", None])
def test_every_other_worker_imports_from_the_last_test_on(
    worker: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    for name in ("a/test_one.py", "a/helper.py", "b/test_two.py", "test_three.py"):
        (tmp_path / "tests" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "tests" / name).touch()
    imported: list[str] = []

    def broken(name: str) -> Any:
        imported.append(name)
        raise ImportError(name)

    monkeypatch.setattr(collecting, "ROOT", tmp_path)
    monkeypatch.setattr(importlib, "import_module", broken)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    if worker is not None:
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    whole, some = pytest.Config.ArgsSource.TESTPATHS, pytest.Config.ArgsSource.ARGS
    for source in (some, whole):
        session: Any = SimpleNamespace(config=SimpleNamespace(args_source=source))
        collecting.pytest_collection(session)
    assert imported == (["tests.test_three", "tests.b.test_two", "tests.a.test_one"] if worker == "gw1" else [])


@pytest.mark.skipif(thoroughly(), reason="then they are drawn")
def test_numbers_of_our_sources_are_not_read():
    providers: Any = importlib.import_module("hypothesis.internal.conjecture.providers")
    assert len(providers._get_local_constants()) == 0


def test_a_module_with_doctests_does_not_hide_what_its_package_calls_by_its_name(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    package = tmp_path / "of_one_name"
    package.mkdir()
    (package / "__init__.py").write_text("from of_one_name.found import found as found\n")
    (package / "found.py").write_text(f"{DOCTEST}\n\ndef found():\n    pass\n")
    monkeypatch.setattr(collecting, "ROOT", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for collector in request.config.hook.pytest_collect_file(file_path=package / "found.py", parent=request.session):
        assert len(list(collector.collect())) == 1
    assert callable(importlib.import_module("of_one_name").found)
