"""A server of PostgreSQL for tests, with a folder, a port and a password of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

PASSWORD = "s3cret/p@ss:w%rd?"
_FAST = ("fsync=off", "full_page_writes=off", "shared_buffers=8MB", "max_connections=20", "autovacuum=off")


def programs() -> Path | None:
    """The folder of PostgreSQL's programs; None where it is not installed."""
    found = shutil.which("postgres")
    known = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))[::-1]
    return next((folder for folder in known if (folder / "initdb").exists()), None)


@contextmanager
def server(folder: Path) -> Generator[int]:
    """Run one; its port on 127.0.0.1. The user is `tapestry`."""
    user = _user()
    with tempfile.TemporaryDirectory(prefix="tapestry-postgres-") as name:
        top, secret = Path(name), Path(name) / "secret"
        secret.write_text(PASSWORD)
        for each in (top, secret) if user else ():
            shutil.chown(each, user["user"])
        words = ["-D", f"{top}/data", "-U", "tapestry", "-A", "scram-sha-256", f"--pwfile={secret}", "-N"]
        subprocess.run(
            [folder / "initdb", *words, "--no-locale", "-E", "UTF8"],
            check=True,
            stdout=subprocess.PIPE,
            cwd="/",
            **user,
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = [word for each in (*_FAST, "listen_addresses=127.0.0.1") for word in ("-c", each)]
        with (top / "log").open("w") as log:
            process = subprocess.Popen(
                [folder / "postgres", "-D", f"{top}/data", "-p", f"{port}", "-k", f"{top}", *settings],
                stdout=log,
                stderr=log,
                cwd="/",
                **user,
            )
        try:
            _wait(process, port, top / "log")
            yield port
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def address(port: int, database: str = "postgres", password: str = PASSWORD) -> str:
    """Of a database of the server."""
    return f"postgresql://tapestry:{quote(password, safe='')}@127.0.0.1:{port}/{database}"


def _user() -> dict[str, Any]:
    """Whom it runs as: it refuses root."""
    if os.getuid():
        return {}
    names = {each.pw_name for each in pwd.getpwall()}
    return {"user": "postgres" if "postgres" in names else "nobody"}


def _wait(process: subprocess.Popen[Any], port: int, log: Path) -> None:
    limit = time.monotonic() + 60
    while "ready to accept connections" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < limit, log.read_text()
        time.sleep(0.05)
