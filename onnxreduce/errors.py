"""Errors that a person can mend, each with the exit status that the command line gives it."""

from __future__ import annotations


class ReduceError(Exception):
    """Something the user can put right. The message is one line: what, where, what to do."""

    exit_status = 2


class UsageError(ReduceError):
    """Bad options, or a model, inputs, oracle or output directory that cannot be used."""


class Unwritable(UsageError):
    """A file cannot be written, as on a full disk. What was reached before is still there."""


class NotInteresting(ReduceError):
    """The oracle does not find the original interesting."""

    exit_status = 1


class OutOfTime(ReduceError):
    """The time was up before anything was known."""

    exit_status = 3


class Flaky(ReduceError):
    """The oracle contradicts itself on the original beyond what the tries allow for."""

    exit_status = 4
