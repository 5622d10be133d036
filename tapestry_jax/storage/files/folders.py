"""What lies in a folder and below."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from tapestry_jax.storage.errors import of_system
from tapestry_jax.storage.files.ranges import told


def files_below(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The files of a folder and of those in it, in no order, each with its name from there on.

    Folders that links lead to are looked into as well, once: what is read by such a name lies there.

    Raises:
      StorageError: where a folder goes away meanwhile.
    """
    linked, todo = {_number(folder)}, [(str(folder), "")]
    while todo:
        path, prefix = todo.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    name = f"{prefix}{entry.name}"
                    if not entry.is_dir():
                        yield name, entry
                        continue
                    if entry.is_symlink():
                        if (number := _number(Path(entry.path))) in linked:
                            continue
                        linked.add(number)
                    todo.append((entry.path, f"{name}/"))
        except OSError as error:
            raise of_system(error, "look into a folder", path) from error


def of_folder(path: Path) -> str:
    """What `of_file` says of every file in a folder and below, as one checksum.

    Raises:
      StorageError: where a file goes away meanwhile.
    """
    digest = hashlib.sha256()
    for name, entry in sorted(files_below(path), key=lambda each: each[0].split("/")):
        try:
            about = entry.stat()
        except OSError as error:
            raise of_system(error, "look at a file", entry.path) from error
        digest.update(f"{name} {told(about)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _number(folder: Path) -> tuple[int, int]:
    try:
        about = folder.stat()
    except OSError as error:
        raise of_system(error, "look into a folder", str(folder)) from error
    return about.st_dev, about.st_ino
