"""A page is written whole or not at all, and what cannot be written is told."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from combinators import PlanError
from tapestry_jax.report.page import write
from tapestry_jax.report.page.write import write_page


def test_a_page_is_written_where_it_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    written = write_page("plan.html", "één")
    assert (written, written.read_text(encoding="utf-8")) == (tmp_path / "plan.html", "één")
    # As any file that this process makes.
    (tmp_path / "other").touch()
    assert written.stat().st_mode == (tmp_path / "other").stat().st_mode
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other", "plan.html"]


def test_without_a_path_it_is_a_new_file_each_time():
    first, second = write_page(None, "1"), write_page(None, "2")
    try:
        assert (first.suffix, first.read_text(), second.read_text()) == (".html", "1", "2")
    finally:
        first.unlink()
        second.unlink()


def test_what_was_there_stays_where_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "plan.html"
    page.write_text("before")

    def full(self: Path, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write.Path, "replace", full)
    with pytest.raises(PlanError, match="No space left"):
        write_page(page, "after")
    assert [each.name for each in tmp_path.iterdir()] == ["plan.html"]
    assert page.read_text() == "before"


def test_a_pipe_or_a_device_is_written_into_and_stays_one(tmp_path: Path):
    pipe = tmp_path / "plan.html"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    assert write_page(pipe, "één") == pipe
    reader.join(10)
    assert read == ["één"]
    assert pipe.is_fifo() and [each.name for each in tmp_path.iterdir()] == ["plan.html"]


@pytest.mark.parametrize(
    ("path", "told"),
    [("missing/plan.html", "FileNotFoundError"), (".", "IsADirectoryError"), (3, "TypeError"), ("a\0b", "ValueError")],
)
def test_paths_that_cannot_be_written_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: object, told: str
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlanError) as caught:
        write_page(path, "text")  # pyright: ignore[reportArgumentType]
    lines = str(caught.value).splitlines()
    assert lines[0] == f"plan.show: the page cannot be written to {path!r}"
    assert lines[1].startswith(f"  {told}: ")
    assert ".plan.html." not in lines[1]  # the file beside it, which nobody asked for
    assert lines[2] == "  Name a file in a folder that exists and may be written to, such as plan.show('plan.html')."
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_that_may_not_be_written_to_is_told(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(PlanError, match="PermissionError"):
        write_page(tmp_path / "plan.html", "text")
