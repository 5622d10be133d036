"""What storage refuses: one error for what is stored wrongly, one for a place that cannot be used at all."""

from __future__ import annotations

import errno
import os

from combinators.errors import FormatError, first_line, message

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}


class StorageError(FormatError):
    """A place that cannot be used: not there, there already, not reachable, full, or closed."""


class WrittenError(StorageError):
    """What was opened lies there no more, or not as it was opened: a fingerprint of its place is that of another."""

    def __init__(self, where: str, *details: str, remedy: str = "Open it again.") -> None:
        super().__init__(message(f"`{where}` was written since it was opened", *details, remedy=remedy))


def missing_package(what: str, package: str, extra: str) -> StorageError:
    """The error of a format whose package is not installed; `package` may not be of the version that is needed."""
    remedy = f"Install it: pip install 'tapestry-jax[{extra}]'."
    return StorageError(message(f"{what} needs the package {package}, which is not installed", remedy=remedy))


def check_process(process: int, where: str) -> None:
    """That a tensor is used by the process that opened it: a fork has neither its threads nor what they do.

    Args:
      process: that opened it.
      where: the place.

    Raises:
      StorageError: after a fork, where it would be waited for without end.
    """
    if os.getpid() != process:
        remedy = "Open it in the process that uses it."
        raise StorageError(message(f"`{where}` was opened before this process was forked", remedy=remedy))


def of_system(error: OSError, what: str, where: str) -> StorageError:
    """What the system said of a place, in our words.

    Args:
      error: from a system call.
      what: what was tried, as `cannot ...` goes on.
      where: the place.
    """
    said = error.strerror or first_line(error)
    if isinstance(error, FileNotFoundError):
        return StorageError(message(f"cannot {what}: `{where}` is not there", remedy="Look at the path."))
    if error.errno in _FULL:
        remedy = "Make room, or choose another place; what was flushed before is intact."
        return StorageError(message(f"cannot {what}: no room for `{where}`", f"the system says: {said}", remedy=remedy))
    return StorageError(message(f"cannot {what}: `{where}`", f"the system says: {said}", remedy="See to the path."))


def is_full(error: OSError) -> bool:
    """Whether there is no room, or no more may be used."""
    return error.errno in _FULL


def is_allowed(error: OSError) -> bool:
    """Whether it is not for lack of a permission that the system refuses."""
    return error.errno not in _NOT_ALLOWED


def mended(error: OSError) -> str:
    """What to do about a folder that could not be written to, as the beginning of a remedy."""
    if is_full(error):
        return "Make room"
    return "See to the folder" if is_allowed(error) else "Let this process write there"
