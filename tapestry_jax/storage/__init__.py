"""Tensors that lie somewhere else: in files, folders, tables and at addresses, read and written box by box.

Read `protocols` (what is read from, `Stored`, and written to, `Sink`), then `opening` (`tp.open`), `creating`
(`tp.create`), `saving` and the table in `formats`. `places` reads paths and addresses, `boxes` and `dtypes` hold
arguments against tensors, `several` says which of a place's tensors is meant, `errors` what is refused. `in_memory` is
an array as something stored. The formats stand in `files` (cells at fixed places in a file), `chunked` (Zarr) and
`tables`; `unfinished` is what is still being written.
"""

from __future__ import annotations

from tapestry_jax.storage.creating import Creation as Creation
from tapestry_jax.storage.creating import create as create
from tapestry_jax.storage.errors import StorageError as StorageError
from tapestry_jax.storage.files.joined import joined as joined
from tapestry_jax.storage.files.joined import numbers as numbers
from tapestry_jax.storage.in_memory import stored as stored
from tapestry_jax.storage.opening import open as open
from tapestry_jax.storage.opening import query as query
from tapestry_jax.storage.protocols import Beside as Beside
from tapestry_jax.storage.protocols import Box as Box
from tapestry_jax.storage.protocols import Creates as Creates
from tapestry_jax.storage.protocols import Names as Names
from tapestry_jax.storage.protocols import Sink as Sink
from tapestry_jax.storage.protocols import Stored as Stored
from tapestry_jax.storage.saving import save as save
