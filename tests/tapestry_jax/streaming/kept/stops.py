"""Ending what runs where its state is written."""

from __future__ import annotations


class Stop(BaseException):
    """What ends a job here, in the place of SIGKILL."""
