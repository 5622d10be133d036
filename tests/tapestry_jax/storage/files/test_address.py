"""Files at an address: a server of this machine, with and without ranges, that goes away or changes what it serves."""

from __future__ import annotations

import http.server
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from safetensors.numpy import save_file

import tapestry_jax as tp
from tapestry_jax.storage.files.address import Address
from tests.tapestry_jax.storage.round_trips import boxes, numbers, read


class Plain(http.server.SimpleHTTPRequestHandler):
    """The standard library's, which knows no ranges."""

    def log_message(self, format: str, *args: Any) -> None: ...


class Ranged(Plain):
    """One that does, and redirects what lies under `/elsewhere?`."""

    def do_GET(self) -> None:
        if self.path.startswith("/elsewhere?"):
            self.send_response(302)
            self.send_header("Location", self.path.partition("?")[2])
            self.end_headers()
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if asked is None or not path.is_file():
            super().do_GET()
            return
        content, start = path.read_bytes(), int(asked[1])
        part = content[start : int(asked[2]) + 1]
        self.send_response(206 if part else 416)
        told = f"{start}-{start + len(part) - 1}" if part else "*"
        self.send_header("Content-Range", f"bytes {told}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.end_headers()
        self.wfile.write(part)


@pytest.fixture(params=[Ranged])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    handler = lambda *args: request.param(*args, directory=str(tmp_path))  # noqa: E731
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_files_are_read_by_ranges(tmp_path: Path, address: str):
    x = numbers((9, 5))
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x)
    save_file({"x": x}, tmp_path / "x.safetensors")
    pq.write_table(pa.table({"x": x[:, 0]}), tmp_path / "x.parquet")
    for name in ("x.npy", "x.npz", "x.safetensors"):
        source = tp.open(f"{address}/{name}")
        for box in boxes(x.shape):
            np.testing.assert_array_equal(read(source, box), x[tuple(slice(*pair) for pair in box)])
        source.close()
    np.testing.assert_array_equal(read(tp.open(f"{address}/x.parquet")), x[:, 0])


@pytest.mark.parametrize("address", [Ranged, Plain], indirect=True)
@pytest.mark.parametrize("version", [2, 3])
def test_zarr_is_read_chunk_by_chunk(tmp_path: Path, address: str, version: Any):
    x = numbers((9, 5))
    zarr.create_array(tmp_path / "x.zarr", shape=x.shape, dtype=x.dtype, chunks=(4, 5), zarr_format=version)[:] = x
    source = tp.open(f"{address}/x.zarr")
    np.testing.assert_array_equal(read(source, ((2, 9), (1, 3))), x[2:9, 1:3])
    assert source.fingerprint().endswith(":address")
    source.close()


def test_an_address_that_begins_with_file_is_a_path(tmp_path: Path):
    np.save(tmp_path / "a b.npy", np.arange(3))
    assert read(tp.open(f"file://{tmp_path}/a%20b.npy")).tolist() == [0, 1, 2]


@pytest.mark.parametrize("address", [Plain], indirect=True)
def test_a_server_without_ranges_is_told(tmp_path: Path, address: str):
    np.save(tmp_path / "x.npy", np.arange(3))
    with pytest.raises(tp.FormatError, match=r"is not served by ranges\n  asked .*\n  got status 200\n"):
        tp.open(f"{address}/x.npy")


def test_what_is_not_there_is_told(address: str):
    with pytest.raises(tp.StorageError, match=r"x.npy` does not answer\n  the server says 404"):
        tp.open(f"{address}/x.npy")
    with pytest.raises(tp.StorageError, match="no Zarr array lies at"):
        tp.open(f"{address}/x.zarr")


def test_what_changes_while_it_is_open_is_told(tmp_path: Path, address: str):
    np.save(tmp_path / "x.npy", np.arange(3))
    source = tp.open(f"{address}/x.npy")
    before = source.fingerprint()
    np.save(tmp_path / "x.npy", np.arange(3) + 1)
    os.utime(tmp_path / "x.npy", ns=(1, 1))
    assert source.fingerprint() != before
    with pytest.raises(tp.FormatError, match="has changed since it was opened"):
        read(source)
    (tmp_path / "x.npy").write_bytes(b"short")
    with pytest.raises(tp.FormatError, match=r"is truncated|has changed"):
        read(source)


def test_an_empty_file_is_truncated(tmp_path: Path, address: str):
    (tmp_path / "x.npy").write_bytes(b"")
    assert Address(f"{address}/x.npy", "x").size == 0
    with pytest.raises(tp.FormatError, match="is truncated"):
        tp.open(f"{address}/x.npy")


@pytest.mark.parametrize("name", ["x.npy", "x.zarr"])
def test_a_server_that_does_not_answer_is_told(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tapestry_jax.storage.files.address._PAUSES", (0.01, None))
    with pytest.raises(tp.StorageError, match=r"does not answer|cannot read metadata"):
        tp.open(f"http://127.0.0.1:1/{name}")


def test_a_redirect_leads_to_no_file_of_this_machine(tmp_path: Path, address: str):
    np.save(tmp_path / "x.npy", np.arange(3))
    assert read(tp.open(f"{address}/elsewhere?{address}/x.npy", format="npy")).tolist() == [0, 1, 2]
    for target in (f"file://{tmp_path}/x.npy", "ftp://127.0.0.1/x.npy"):
        with pytest.raises(tp.StorageError, match="does not answer"):
            tp.open(f"{address}/elsewhere?{target}", format="npy")
