"""The commands, their exit statuses as exceptions."""

from __future__ import annotations

import subprocess
from typing import IO, Dict, List, Optional, Sequence, Type, Union


class DistributeError(Exception):
    """A command has failed: its words, and its exit status as ``status``."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class UsageError(DistributeError):
    """A command was used wrongly, or it is not installed."""


class RefusedError(DistributeError):
    """The batch is wrong, or was refused."""


class NotFoundError(DistributeError):
    """There is no such batch or job."""


class UnreachableError(DistributeError):
    """The head cannot be reached."""


class DamagedError(DistributeError):
    """A file cannot be read or written, or an answer broke off."""


class NoRoomError(DistributeError):
    """The head has no room now; try again later."""


class DeniedError(DistributeError):
    """It is another user's."""


class NotOverError(DistributeError, TimeoutError):
    """Jobs are not over yet, after the time that was given."""


_BY_STATUS: Dict[int, Type[DistributeError]] = {
    64: UsageError, 65: RefusedError, 66: NotFoundError, 69: UnreachableError,
    74: DamagedError, 75: NoRoomError, 77: DeniedError,
}  # fmt: skip


def start(
    args: Sequence[str], head: Optional[str], directory: Optional[str] = None, stderr: Union[int, IO[str]] = subprocess.PIPE
) -> "subprocess.Popen[str]":
    """The command, begun, with its output as UTF-8 text."""
    words: List[str] = [args[0]] + ([] if head is None else ["-H", head]) + list(args[1:])
    try:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
            cwd=directory, encoding="utf-8", errors="surrogateescape",
        )  # fmt: skip
    except FileNotFoundError:
        if directory is not None:
            try:
                subprocess.run([args[0], "-V"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
                raise UsageError(f"{directory}: there is no such directory", 64) from None
            except FileNotFoundError:
                pass
        raise UsageError(f"{args[0]}: not found: put the commands of distribute into PATH", 64) from None


def error(status: int, stderr: str, command: str) -> DistributeError:
    """What a command that ended with that status has said."""
    said = stderr.strip() or f"{command}: " + (f"killed by signal {-status}" if status < 0 else f"exit {status}")
    return _BY_STATUS.get(status, DistributeError)(said, status)


def call(args: Sequence[str], head: Optional[str], fine: Sequence[int] = (0,), directory: Optional[str] = None) -> str:
    """What the command prints. A status that is not fine is raised."""
    process = start(args, head, directory)
    try:
        out, err = process.communicate()
    except BaseException:  # as Ctrl-C: the command ends, too
        process.terminate()
        process.wait()
        raise
    if process.returncode not in fine:
        raise error(process.returncode, err, args[0])
    return out
