"""A file is written whole or not at all, and everything else about it stays."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from combinators.stored import whole
from combinators.stored.whole import write_whole
from tests.children import child


def test_a_disk_that_is_full_leaves_what_was_there(tmp_path: Path):
    place = tmp_path / "plan.json"
    place.write_text("before")

    def write() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with pytest.raises(OSError, match="File too large") as caught:
            write_whole(place, "x" * 5000)
        assert caught.value.errno == errno.EFBIG

    assert os.waitstatus_to_exitcode(os.waitpid(child(write), 0)[1]) == 0
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("plan.json", "before")]


def test_a_process_that_is_killed_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = tmp_path / "plan.json"
    place.write_text("before")
    monkeypatch.setattr(whole.os, "fsync", lambda _: os.kill(os.getpid(), signal.SIGKILL))
    killed = os.waitstatus_to_exitcode(os.waitpid(child(lambda: write_whole(place, "x" * 5000)), 0)[1])
    assert (killed, place.read_text()) == (-signal.SIGKILL, "before")


def test_a_link_stays_one_and_leads_to_what_is_written(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    target, link, dangling = tmp_path / "folder" / "plan.json", tmp_path / "link", tmp_path / "dangling"
    target.write_text("before")
    link.symlink_to("folder/plan.json")
    dangling.symlink_to("folder/new.json")
    assert write_whole(link, "after") == link
    write_whole(dangling, b"new")
    assert (link.is_symlink(), target.read_text()) == (True, "after")
    assert (dangling.is_symlink(), (tmp_path / "folder" / "new.json").read_text()) == (True, "new")
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        write_whole(loop, "x")
    assert loop.is_symlink()


def test_who_may_read_it_stays(tmp_path: Path):
    place = tmp_path / "plan.json"
    place.touch(0o600)
    write_whole(place, "after")
    assert (place.read_text(), place.stat().st_mode & 0o777) == ("after", 0o600)


@pytest.mark.parametrize("name", ["n" * 250 + ".html", "ä" * 120, os.fsdecode(b"\xff.json"), "a\nb", ".", "a/../b"])
def test_names_that_the_system_takes_are_taken(name: str, tmp_path: Path):
    (tmp_path / "a").mkdir()
    if name == ".":
        with pytest.raises(IsADirectoryError):
            write_whole(tmp_path / name, "text")
        return
    assert write_whole(tmp_path / name, "text").read_text() == "text"


def test_two_that_write_leave_the_file_of_one(tmp_path: Path):
    place, texts = tmp_path / "plan.json", [letter * 100_000 for letter in "ab"]

    def writing(text: str) -> Callable[[], object]:
        return lambda: [write_whole(place, text) for _ in range(20)]

    children = [child(writing(text)) for text in texts]
    seen = {place.read_text() for _ in range(200) if place.exists()}
    assert [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in children] == [0, 0]
    assert seen <= set(texts) and place.read_text() in texts
    assert [each.name for each in tmp_path.iterdir()] == ["plan.json"]
