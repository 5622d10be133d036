"""Blocks in files: what is read is what was written, or it is told; what the dead left is found."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.fabric.blocks import files
from tapestry_jax.fabric.blocks.session import LOCK, Session, dead_sessions, open_folder
from tests.forked import run

X = tp.TensorType({"row": 4, "col": 3}, np.int32)


def block_files(folder: Path) -> list[Path]:
    return sorted((folder / "blocks").glob("*/[0-9]*"))


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    match how:
        case "flipped":
            path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        case "short":
            path.write_bytes(data[:-1])
        case "long":
            path.write_bytes(data + b"\0")
        case "empty":
            path.write_bytes(b"")
        case "gone":
            path.unlink()
        case "link":
            copy = path.with_name("copy")
            copy.write_bytes(data)
            path.unlink()
            path.symlink_to(copy)
        case "pipe":
            path.unlink()
            os.mkfifo(path)
        case _:
            path.unlink()
            path.mkdir()


@pytest.mark.parametrize("how", ["flipped", "short", "long", "empty", "gone", "link", "folder", "pipe"])
def test_damaged_blocks_are_told_with_tensor_and_box(tmp_path: Path, how: str):
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.allocate("x", X, chunks=(2, 3))
        fabric.write("x", np.arange(12, dtype=np.int32).reshape(4, 3))
        damage(block_files(tmp_path / "f")[1], how)
        assert fabric.check("x") == (((2, 4), (0, 3)),)
        assert fabric.read("x", {"row": slice(0, 2)}).tolist() == [[0, 1, 2], [3, 4, 5]]
        for ask in (
            lambda: fabric.read("x"),
            lambda: fabric.array("x"),
            lambda: fabric.export("x", tmp_path / "x.npy"),
            lambda: fabric.copy("x", {"row": slice(2, 4)}, "x", {"row": slice(0, 2)}),
            lambda: fabric.apply(lambda x: x + 1, "x", out="y"),
        ):
            with pytest.raises(
                tp.FabricError, match=r"'x': its block row=2:4, col=0:3 is lost\n  .*\n  Compute it aga"
            ):
                ask()
        assert fabric.list() == ("x",) and not (tmp_path / "x.npy").exists()


def test_links_to_folders_are_not_followed(tmp_path: Path):
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.load("x", np.arange(4, dtype=np.int32))
    [block] = block_files(tmp_path / "f")
    moved = tmp_path / "elsewhere"
    block.parent.rename(moved)
    block.parent.symlink_to(moved)
    with tp.Fabric(tmp_path / "f") as fabric:
        with pytest.raises(tp.FabricError, match="its block 0=0:4 is lost"):
            fabric.read("x")
        fabric.delete("x")
    assert (moved / block.name).exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["load", "copy", "write", "apply", "sink", "stream"])
def test_full_disk_leaves_all_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int):
    with tp.Fabric(tmp_path / "f") as fabric:
        fabric.allocate("x", X, chunks=(1, 3))
        fabric.write("x", np.ones((4, 3), np.int32))
        before = block_files(tmp_path / "f"), fabric.describe("x")
        count, write = [0], files._write

        def full(folder: int, name: str, data: Any) -> None:
            count[0] += 1
            if count[0] > 1:
                raise OSError(number, os.strerror(number))
            write(folder, name, data)

        monkeypatch.setattr(files, "_write", full)
        calls = {
            "load": lambda: fabric.load("y", _Rows(fabric)),
            "copy": lambda: fabric.copy("x", {"row": slice(0, 2)}, "x", {"row": slice(2, 4)}),
            "write": lambda: fabric.write("x", np.zeros((4, 3), np.int32)),
            "apply": lambda: fabric.apply(lambda x: (x + 1, x - 1), "x", out=("a", "b")),
            "sink": lambda: _sink(fabric),
            "stream": lambda: fabric.apply(lambda x: x + 1, "x", out="z", over={"row": tp.chunks(size=1)}),
        }
        with pytest.raises(
            tp.FabricError, match=f"cannot be written\n  the system says: {os.strerror(number)}\n  Free"
        ):
            calls[call]()
        monkeypatch.undo()
        assert fabric.list() == ("x",)
        assert (block_files(tmp_path / "f"), fabric.describe("x")) == before
        assert fabric.read("x").tolist() == np.ones((4, 3)).tolist()
    assert block_files(tmp_path / "f") == before[0]


class _Rows:
    """Something stored in pieces of a row; its blocks are those that the fabric chooses."""

    def __init__(self, fabric: tp.Fabric) -> None:
        self._source = fabric.open("x")
        self.shape, self.dtype, self.names, self.chunks = (2, 2**20, 3), np.dtype(np.int32), None, (1, 2**20, 3)
        self.where, self.beside = "rows", self._source.beside

    def read(self, box: Any, into: Any) -> Any:
        into[...] = 1
        return self._source.read(((0, 0), (0, 0)), np.empty((0, 0), np.int32))

    def fingerprint(self) -> str:
        return ""

    def close(self) -> None:
        self._source.close()


def _sink(fabric: tp.Fabric) -> None:
    sink = fabric.create("z").make((4, 3), np.int32, chunks=(1, 3))
    try:
        sink.write(((0, 4), (0, 3)), np.ones((4, 3), np.int32)).result()
    finally:
        sink.close()


def test_real_disk_that_is_full_leaves_all_as_it_was(tmp_path: Path):
    code = """
import resource, sys, numpy as np, tapestry_jax as tp
with tp.Fabric(sys.argv[1]) as fabric:
    fabric.load("x", np.arange(8, dtype=np.int32))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, limit[1]))
    try:
        fabric.load("y", np.zeros(2**20, np.float32))
    except tp.FabricError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    print(fabric.list(), fabric.read("x").tolist())
"""
    done = run(code, tmp_path / "f")
    assert done.stdout.splitlines() == [
        "'y': its block 0=0:1048576 cannot be written",
        "  the system says: File too large",
        "  Free some room on its disk, then do it again; the fabric is as it was before.",
        "('x',) [0, 1, 2, 3, 4, 5, 6, 7]",
    ], done.stderr
    assert len(block_files(tmp_path / "f")) == 1


def test_sessions_that_live_are_not_swept(tmp_path: Path):
    (tmp_path / "blocks").mkdir()
    root = open_folder(str(tmp_path / "blocks"))
    living, ended = Session(root), Session(root)
    (tmp_path / "blocks" / living.name / "1").write_bytes(b"x")
    (tmp_path / "blocks" / ended.name / "1").write_bytes(b"x")
    ended.close()
    dead = tmp_path / "blocks" / ("0" * 16)
    dead.mkdir()
    (dead / LOCK).touch()
    (dead / "3").write_bytes(b"x")
    with dead_sessions(root) as found:
        assert found == [("0" * 16, ["0" * 16 + "/3"])]
        with dead_sessions(root) as again:  # somebody sweeps already
            assert again == []
    living.close()
    os.close(root)


def test_two_fabrics_share_a_folder_and_clean_up_after_each_other(tmp_path: Path):
    with tp.Fabric(tmp_path / "f") as one, tp.Fabric(tmp_path / "f") as two:
        one.load("x", np.arange(4, dtype=np.int32))
        source = two.open("x")
        one.load("x", np.zeros(4, np.int32), overwrite=True)
        into = np.empty(4, np.int32)
        source.read(((0, 4),), into).result()
        assert into.tolist() == [0, 1, 2, 3] and two.read("x").tolist() == [0] * 4
        assert len(block_files(tmp_path / "f")) == 2
        source.close()
        assert len(block_files(tmp_path / "f")) == 1
