"""Being a user whom the system refuses things: the superuser, as whom tests may run, is refused nothing."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def as_nobody() -> Generator[Path]:
    """Be somebody without rights, in a folder of theirs, which is removed."""
    folder = Path(tempfile.mkdtemp(prefix="tapestry-nobody-"))
    is_root = os.geteuid() == 0
    if is_root:
        nobody = pwd.getpwnam("nobody").pw_uid
        os.chown(folder, nobody, -1)
        # The rights of the superuser come back afterwards.
        os.setresuid(nobody, nobody, 0)
    try:
        yield folder
    finally:
        if is_root:
            os.setresuid(0, 0, 0)
        for each in (folder, *folder.rglob("*")):
            if not each.is_symlink():
                each.chmod(0o700)
        shutil.rmtree(folder)


def read_only(folder: Path) -> None:
    """Have nothing be written into a folder."""
    folder.chmod(0o555)
