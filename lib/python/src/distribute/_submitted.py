"""A batch that a head has."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _commands

if TYPE_CHECKING:
    import pandas  # type: ignore[import,unused-ignore]

Progress = Union[None, bool, Callable[[int, int], None]]
OVER = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Job:
    """A job as ``dquery -j`` tells of it; ``record`` has all the rest."""

    id: str
    state: str
    node: Optional[str] = None
    attempt: int = 0
    exit: Optional[int] = None
    signal: str = ""
    runtime: float = 0.0
    reason: str = ""
    said: str = ""
    param: Mapping[str, str] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.id.rsplit("/", 1)[-1]

    @property
    def over(self) -> bool:
        return self.state in OVER


def _job(line: str) -> Job:
    record = json.loads(line)
    known = {key: record[key] for key in Job.__dataclass_fields__ if key in record and key not in ("param", "record")}
    # As they were written: 1.10 is not 1.1.
    param = json.loads(line, parse_float=str, parse_int=str).get("param", {})
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in param.items()}
    return Job(**known, param=texts, record=record)


class Submitted:
    """A batch by its id, ``namespace/batch``; of :meth:`Batch.submit` and
    :func:`open`. Each method asks the head anew."""

    def __init__(self, id: str, head: Optional[str] = None) -> None:
        self.id = id
        self.head = head

    def __repr__(self) -> str:
        return f"distribute.open({self.id!r})" if self.head is None else f"distribute.open({self.id!r}, {self.head!r})"

    def jobs(self, *filters: str) -> List[Job]:
        """Its jobs, of those that fit filters of dquery(1) as ``state=failed``."""
        out = _commands.call(["dquery", "-q", "-j", self.id, *filters], self.head, (0, 1))
        return [_job(line) for line in out.splitlines()]

    def status(self) -> Dict[str, int]:
        """How many of its jobs are in which state."""
        return dict(Counter(j.state for j in self.jobs()))

    def wait(self, timeout: Union[None, float, str] = None, progress: Progress = None) -> bool:
        """Waits until all jobs are over, and tells whether all are done.

        ``progress`` is called with how many are over, and of how many; with
        True a line on standard error says it. After ``timeout``, seconds or a
        text as ``1h30m``, NotOverError is raised. Jobs that somebody tries again
        meanwhile are waited for, too.
        """
        began = time.monotonic()
        while True:
            limit: List[str] = []
            if isinstance(timeout, str):
                limit = ["-T", timeout]
            elif timeout is not None and timeout != math.inf:
                if not timeout >= 0:
                    raise ValueError(f"timeout {timeout} is no time to wait: give seconds, from 0")
                left = max(timeout - (time.monotonic() - began), 0.001)
                limit = ["-T", f"{left:f}".rstrip("0").rstrip(".") + "s"]
            status, said = self._wait(limit, progress)
            if status == 0:
                return True
            jobs = self.jobs()
            running = sum(not j.over for j in jobs)
            if not running:  # also if the time was too short for an answer
                return {j.state for j in jobs} == {"done"}
            if said:  # it says that the time is over; of jobs that failed it says nothing
                raise _commands.NotOverError(f"{self.id}: not over yet: {running} job" + "s" * (running != 1))

    def _wait(self, limit: List[str], progress: Progress) -> Tuple[int, str]:
        """The status of dwait, 0 or 1, and its words."""
        args = ["dwait", "-q", *limit]
        show: Optional[Callable[[int, int], None]] = (_line if progress is True else progress) or None
        total = len(self.jobs()) if show else 0
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogateescape") as said:
            process = _commands.start([*args, self.id], self.head, stderr=said)
            try:
                over = 0
                assert process.stdout is not None
                with process.stdout:
                    for _ in process.stdout:
                        over += 1
                        if show:
                            show(over, total)
                status = process.wait()
            except BaseException:
                process.terminate()
                process.wait()
                raise
            said.seek(0)
            err = said.read()
        if status not in (0, 1):
            raise _commands.error(status, err, "dwait")
        return status, err

    def pull(
        self, directory: Union[str, "os.PathLike[str]"] = ".", include: Sequence[str] = (), exclude: Sequence[str] = ()
    ) -> List[str]:
        """Brings home what jobs left, and gives the directories of those whose
        files are there then. ``include`` and ``exclude`` are the expressions of
        ``dpull -i`` and ``-x``."""
        at = os.fspath(directory)
        args = ["dpull", "-q", "-o", at]
        for letter, expressions in (("-i", include), ("-x", exclude)):
            for expression in [expressions] if isinstance(expressions, str) else expressions:
                args += [letter, expression]
        out = _commands.call([*args, self.id], self.head)
        return [os.path.join(at, line) for line in out.splitlines()]

    def cancel(self) -> List[str]:
        """Gives up what is not over, and gives the ids of these jobs."""
        return _commands.call(["dcancel", "-q", self.id], self.head, (0, 1)).splitlines()

    def table(self) -> List[Dict[str, Any]]:
        """A dict a job, with its parameters as ``param.NAME``."""
        rows = []
        for j in self.jobs():
            row = {key: value for key, value in j.record.items() if key != "param"}
            row.update({f"param.{key}": value for key, value in j.record.get("param", {}).items()})
            rows.append(row)
        return rows

    def frame(self) -> "pandas.DataFrame":
        """The table as a DataFrame of pandas, numbers and times as such."""
        try:
            import pandas  # noqa: F811
        except ImportError:
            raise ImportError("frame() needs pandas, which is not installed: pip install pandas, or use table()") from None
        frame = pandas.DataFrame(self.table())
        for column in frame.columns:
            if column in ("submitted", "started", "ended", "ends"):
                frame[column] = pandas.to_datetime(frame[column], utc=True, format="ISO8601")
            elif column.startswith("param."):
                try:
                    frame[column] = pandas.to_numeric(frame[column])
                except (ValueError, TypeError):
                    pass
        return frame


def open(id: str, head: Optional[str] = None) -> Submitted:
    """A batch that was submitted before, by its id or one's own batch's name."""
    out = _commands.call(["dquery", "-q", "-j", "-c", "id", id], head, (0, 1)).splitlines()
    if not out:
        raise _commands.NotFoundError(f"{id}: it has no jobs", 66)
    batches = {json.loads(line)["id"].rsplit("/", 1)[0] for line in out}
    if len(batches) != 1 or "=" in id.split("/", 1)[0] or id.endswith((".yaml", ".yml")):
        raise _commands.UsageError(f"{id}: these are jobs of {len(batches)} batches: write namespace/batch", 64)
    return Submitted(batches.pop(), head)


def _line(over: int, total: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{over}/{total} jobs are over" + "\n" * (over == total))
    else:
        sys.stderr.write(f"{over}/{total} jobs are over\n")
    sys.stderr.flush()
