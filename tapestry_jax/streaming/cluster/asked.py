"""`engine=` of `tp.stream`, read; and what of a job cannot run on workers."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from combinators.errors import PlanError, message, spelt
from tapestry_jax.storage.creating import Creation
from tapestry_jax.storage.formats import FORMATS
from tapestry_jax.storage.opening import Opened, opened
from tapestry_jax.storage.places import has_secret
from tapestry_jax.storage.protocols import Stored
from tapestry_jax.streaming.cluster.local import distributed, local_client
from tapestry_jax.streaming.cluster.totals import why_not
from tapestry_jax.streaming.parts import Split


def read_engine(engine: Any) -> Any:
    """None, `"dask"` or a client.

    Raises:
      PlanError: for anything else, and where `distributed` is not installed.
    """
    if engine is None:
        return None
    package = distributed()
    is_text, is_client = isinstance(engine, str), isinstance(engine, package.Client)
    if (is_text and engine == "dask") or (is_client and not engine.asynchronous):
        return engine
    remedy = "Pass one: engine=distributed.Client(...)."
    details = ('expected a client of dask.distributed that is not asynchronous, or "dask"', f"got {spelt(engine)}")
    raise PlanError(message("engine= of tp.stream says who turns the chunks", *details, remedy=remedy))


@contextmanager
def client_of(engine: Any) -> Generator[Any]:
    """The client: the one that was given, or one of a cluster that ends with the job."""
    if engine != "dask":
        yield engine
        return
    with local_client() as client:
        yield client


def check_engine(split: Split, mesh: Any, sources: Sequence[Stored], sinks: Mapping[int, Any], checkpoint: Any) -> None:
    """Refuse what cannot run on workers, before anything runs.

    Raises:
      PlanError: with the reason.
    """
    if checkpoint is None:
        what, why = "a folder that the driver and the workers have", "tasks commit there what they have computed"
        raise _refused(what, why, 'Name one: checkpoint="run/".')
    if mesh.devices.size != 1:
        why = f"this one has {mesh.devices.size}"
        raise _refused("a mesh of one device: that of a worker", why, "Leave mesh= out: the cluster has the workers.")
    for number, part in enumerate(split.passes):
        if part.region.scans and (why := why_not(part)) is not None:
            why = f"pass {number + 1} scans `{part.dim}`, and {why}"
            raise _refused(
                "scans whose totals can be found range by range", why, "Leave engine= out: one process turns it."
            )
    for number in split.stored:
        if (how := opened(sources[number])) is None:
            why = f"{sources[number].where} is no file that they could open"
            raise _refused("sources that workers open themselves", why, "Store it, and pass what tp.open gives.")
        if has_secret(how.path):
            why = f"the address of {sources[number].where} holds a password or a key, which tasks would carry"
            remedy = (
                "Leave it out of the address, and give it to the driver and the workers: in ~/.pgpass or PGPASSWORD."
            )
            raise _refused("addresses without secrets", why, remedy)
    read = {piece.value for part in split.passes for piece in part.pieces}
    for number, sink in sinks.items():
        if split.outputs[number] in read and not isinstance(sink, Creation):
            why = f"a later pass reads what goes to {spelt(sink)}"
            raise _refused("sinks that workers open themselves", why, "Pass what tp.create gives.")


def place_of_sink(sink: Creation) -> Opened:
    """How what a sink has made is opened."""
    name = next(name for name, row in FORMATS.items() if row is sink.format)
    return Opened(str(sink.path.absolute()), None, name)


def _refused(what: str, why: str, remedy: str) -> PlanError:
    return PlanError(message("a stream on workers needs " + what, why, remedy=remedy))
