"""Tables of PostgreSQL that workers read: over connections of their own, and without a password in any task."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry_jax as tp
from tapestry_jax.storage import query, save, stored
from tapestry_jax.storage.places import has_secret
from tapestry_jax.streaming.cluster import driver
from tapestry_jax.streaming.cluster.local import local_client
from tapestry_jax.streaming.errors import StreamError
from tests.tapestry_jax.storage.tables.server import PASSWORD, address, programs, server
from tests.workers import forked_workers

FOLDER = programs()
needs_server = pytest.mark.skipif(FOLDER is None, reason="no PostgreSQL is installed: apt-get install postgresql")
ROWS = np.random.default_rng(0).integers(-99, 99, (600, 3)).astype(np.int32)
total = tp.fold(tp.aggregators.Sum() & tp.aggregators.Last(), "row c -> c")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    pytest.importorskip("adbc_driver_postgresql", reason="needs adbc-driver-postgresql")
    assert FOLDER is not None
    with server(FOLDER) as found:
        save(address(found), {"x": stored(ROWS)})
        yield found


def _add_row(place: str) -> None:
    from adbc_driver_postgresql import dbapi  # an extra

    with dbapi.connect(place, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
        cursor.execute("INSERT INTO x VALUES (1, 2, 3)")


def job(source: Any, folder: Path, client: Any) -> Any:
    return tp.stream(total, {"row": tp.chunks(size=100)}, source, checkpoint=folder, engine=client)


@needs_server
def test_workers_read_tables_and_queries_and_tasks_hold_no_password(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = f"postgresql://tapestry@127.0.0.1:{port}/postgres"
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    handed = list[Any]()
    given = driver.in_any_order

    def seen(client: Any, each: Any, todo: Any) -> Any:
        handed.append(each)
        return given(client, each, todo)

    monkeypatch.setattr(driver, "in_any_order", seen)
    with forked_workers(), local_client(1) as client:
        client.run(os.environ.update, {"PGPASSWORD": PASSWORD})
        sources = tp.open(bare, "x"), query(bare, "SELECT * FROM x WHERE c0 > 0 ORDER BY c1, c0, c2")
        chosen = ROWS[ROWS[:, 0] > 0]
        ordered = chosen[np.lexsort((chosen[:, 2], chosen[:, 0], chosen[:, 1]))]
        for name, source, rows in zip("ab", sources, (ROWS, ordered), strict=True):
            sums, last = job(source, tmp_path / name, client).run()
            np.testing.assert_array_equal(sums, rows.sum(0))
            np.testing.assert_array_equal(last["value"], rows[-1])
            source.close()
        assert len(handed) == 2 and PASSWORD not in repr([vars(each) for each in handed])
        assert all(how.path == bare for each in handed for how, _ in each.sources.values())
        # Rows that came meanwhile are in nobody's half of the result.
        old = tp.open(bare, "x")
        _add_row(address(port))
        with pytest.raises(StreamError, match="a source was written since it was opened: postgresql"):
            job(old, tmp_path / "c", client).run()
        old.close()


@needs_server
def test_an_address_with_a_password_is_refused(port: int, tmp_path: Path) -> None:
    with pytest.raises(tp.PlanError) as caught:
        job(tp.open(address(port), "x"), tmp_path / "run", "dask")
    said = str(caught.value)
    assert "a stream on workers needs addresses without secrets" in said and "PGPASSWORD" in said
    assert PASSWORD not in said and "s3cret" not in said


@pytest.mark.parametrize(
    ("place", "is_secret"),
    [
        ("/data/a:b@c.npy", False),
        ("postgresql://user@host:5432/name", False),
        ("postgresql://user@host/name?sslmode=require&connect_timeout=3", False),
        ("postgresql://user:secret@host/name", True),
        ("postgresql://user:se@cr/et@host/name", True),
        ("postgresql://host/name?password=secret", True),
        ("postgres://host/name?passfile=/x&sslpassword=s", True),
        ("s3://bucket/x.npy", False),
        ("ftp://user:secret@host/x.npy", True),
        ("https://host/x.npy?token=abc", True),
        ("https://host:8080/x.npy", False),
    ],
)
def test_secrets_in_addresses_are_seen(place: str, is_secret: bool) -> None:
    assert has_secret(place) is is_secret
