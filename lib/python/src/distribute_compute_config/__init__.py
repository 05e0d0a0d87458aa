"""Writes batch files of distribute for containers, with the functions that the
program of the same name in Rust had.

Begin with the last function, :func:`write_config_to_file`, and work back to the
parts that it needs:

>>> import distribute_compute_config as distribute
>>> meta = distribute.metadata("demo", "amp_sweep", ["apptainer"])
>>> sif = distribute.file("./oscillator.sif", relative=True)
>>> ic = distribute.file("./ic.h5", relative=True, alias="initial_condition.h5")
>>> initialize = distribute.initialize(sif, [ic], [])
>>> jobs = []
>>> for amp in ["0.10", "0.20"]:
...     config = distribute.file(f"./amp_{amp}.json", relative=True, alias="config.json")
...     jobs.append(distribute.job(f"amp_{amp}", [config]))
>>> description = distribute.description(initialize, jobs)
>>> config = distribute.apptainer_config(meta, description)
>>> distribute.write_config_to_file(config, "distribute-jobs.yaml")

What a file cannot hold is a ValueError, or a TypeError, where it is said.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from typing import List, Optional, Sequence, Union

from . import _check

__all__ = [
    "ApptainerConfig", "Description", "File", "Initialize", "Job", "Meta", "Slurm",
    "apptainer_config", "description", "file", "initialize", "job", "metadata", "slurm", "write_config_to_file",
]  # fmt: skip

Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Meta:
    """Names of a batch, and what its nodes must have: of :func:`metadata`."""

    namespace: str
    batch_name: str
    capabilities: Sequence[str]
    matrix: Optional[str] = None


@dataclass(frozen=True)
class File:
    """A file that goes along: of :func:`file`."""

    path: str
    alias: Optional[str] = None

    @property
    def name(self) -> str:
        """The name under which it lies in ``/input``."""
        return self.alias if self.alias is not None else os.path.basename(self.path.rstrip("/"))


@dataclass(frozen=True)
class Slurm:
    """Options of sbatch: of :func:`slurm`."""

    job_name: Optional[str] = None
    output: Optional[str] = None
    nodes: Optional[int] = None
    ntasks: Optional[int] = None
    cpus_per_task: Optional[int] = None
    mem_per_cpu: Optional[str] = None
    hint: Optional[str] = None
    time: Optional[str] = None
    partition: Optional[str] = None
    account: Optional[str] = None
    mail_user: Optional[str] = None
    mail_type: Optional[str] = None


@dataclass(frozen=True)
class Initialize:
    """The container and what all jobs have: of :func:`initialize`."""

    sif: File
    required_files: Sequence[File]
    required_mounts: Sequence[str]


@dataclass(frozen=True)
class Job:
    """One run: of :func:`job`."""

    name: str
    required_files: Sequence[File]
    slurm: Optional[Slurm] = None


@dataclass(frozen=True)
class Description:
    """The container and its runs: of :func:`description`."""

    initialize: Initialize
    jobs: Sequence[Job]


@dataclass(frozen=True)
class ApptainerConfig:
    """A whole batch: of :func:`apptainer_config`."""

    meta: Meta
    description: Description
    slurm: Optional[Slurm] = None


def _list(what: str, value: object, kind: type) -> List[object]:
    """The value as a list of things of that kind."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise TypeError(f"{what} must be a list, not {type(value).__name__}: {value!r}")
    items = list(value)
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"{what} must be a list of {kind.__name__}, and one is {type(item).__name__}: {item!r}")
    return items


def _one(what: str, value: object, kind: type, maker: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{what} must be what {maker}() gives, not {type(value).__name__}: {value!r}")


def metadata(namespace: str, batch_name: str, capabilities: Sequence[str], matrix_username: Optional[str] = None) -> Meta:
    """The names of a batch and what its nodes must have.

    >>> metadata("demo", "amp sweep", ["apptainer"])
    Traceback (most recent call last):
    ValueError: batch_name: bad name "amp sweep": ' ' is not allowed (letters, digits and . _ - + = @ % are)
    """
    return Meta(
        _check.name("namespace", namespace),
        _check.name("batch_name", batch_name),
        tuple(_check.text("a capability", c) for c in _list("capabilities", capabilities, str)),
        None if matrix_username is None else _check.matrix(matrix_username),
    )


def file(path: Path, relative: bool = False, alias: Optional[str] = None) -> File:
    """A file that jobs find in ``/input`` under its own name, or its alias.

    The path of a file that is there is made absolute. With ``relative=True`` it
    is kept as it is, need not be there yet, and counts from the directory of the
    batch file.

    >>> file("cases/a.json", relative=True, alias="config.json")
    File(path='cases/a.json', alias='config.json')
    >>> file("cases/none.json")
    Traceback (most recent call last):
    ValueError: "cases/none.json" does not exist: create it first, or give relative=True
    """
    p = _check.text("a path", os.fspath(path))
    if p == "" or "\n" in p:
        raise ValueError(f"a path is empty, or has a line break: {_check.quote(p)}")
    if not relative:
        try:
            p = _check.text("a path", _realpath(p))
        except OSError as e:
            if isinstance(e, FileNotFoundError):
                raise ValueError(f"{_check.quote(p)} does not exist: create it first, or give relative=True") from None
            raise ValueError(f"{_check.quote(p)} cannot be read: {e.strerror}") from None
    return File(p, None if alias is None else _check.alias(alias))


def _realpath(path: str) -> str:
    os.stat(path)
    return os.path.realpath(path)


def initialize(sif: Union[File, Path], required_files: Sequence[File], required_mounts: Sequence[str]) -> Initialize:
    """The image, the files that all jobs have, and the directories of the
    container that they write to, which begin empty.

    >>> initialize(file("a.sif", relative=True), [], ["/solver/output"]).required_mounts
    ('/solver/output',)
    """
    if not isinstance(sif, File):
        sif = file(sif, relative=True)
    files = _list("required_files", required_files, File)
    mounts = [_check.text("a mount", m) for m in _list("required_mounts", required_mounts, str)]
    for m in mounts:
        if not m.startswith("/"):
            raise ValueError(f"the mount {_check.quote(m)} is not an absolute path: write it as in the container")
    return Initialize(sif, tuple(files), tuple(mounts))  # type: ignore[arg-type]


def job(name: str, required_files: Sequence[File], slurm: Optional[Slurm] = None) -> Job:
    """One run, with the files that it has besides those of all.

    >>> job("a", [file("a.json", relative=True)]).name
    'a'
    """
    files = _list("required_files", required_files, File)
    if slurm is not None:
        _one("slurm", slurm, Slurm, "slurm")
    return Job(_check.name("the name of a job", name), tuple(files), slurm)  # type: ignore[arg-type]


def description(initialize: Initialize, jobs: Sequence[Job]) -> Description:
    """The image and its runs. No two have the same name, and no two different
    files of a run lie at one place.

    >>> everywhere = initialize(file("a.sif", relative=True), [], [])
    >>> description(everywhere, [job("a", []), job("a", [])])
    Traceback (most recent call last):
    ValueError: two jobs are named "a": the names of the jobs of a batch differ
    """
    _one("initialize", initialize, Initialize, "initialize")
    all_jobs = _list("jobs", jobs, Job)
    common = _places("initialize", {}, initialize.required_files)
    seen = set()
    for j in all_jobs:
        assert isinstance(j, Job)
        if j.name in seen:
            raise ValueError(f"two jobs are named {_check.quote(j.name)}: the names of the jobs of a batch differ")
        seen.add(j.name)
        _places(f"job {_check.quote(j.name)}", common, j.required_files)
    return Description(initialize, tuple(all_jobs))  # type: ignore[arg-type]


def _places(where: str, outer: "dict[str, str]", files: Sequence[File]) -> "dict[str, str]":
    """Where files lie in /input; those of outer lie there too."""
    at = dict(outer)
    for f in files:
        if any(c in f.path for c in "*?["):
            continue  # a glob, whose files dsubmit knows
        old = at.setdefault(f.name, f.path)
        if old != f.path:
            raise ValueError(
                f"{where}: {_check.quote(f.path)} would lie at {_check.quote('input/' + f.name)}, "
                f"where {_check.quote(old)} lies: give one of them another alias"
            )
    return at


def slurm(
    job_name: Optional[str] = None,
    output: Optional[str] = None,
    nodes: Optional[int] = None,
    ntasks: Optional[int] = None,
    cpus_per_task: Optional[int] = None,
    mem_per_cpu: Optional[str] = None,
    hint: Optional[str] = None,
    time: Optional[str] = None,
    partition: Optional[str] = None,
    account: Optional[str] = None,
    mail_user: Optional[str] = None,
    mail_type: Optional[str] = None,
) -> Slurm:
    """Options of sbatch, for a job or for the batch.

    >>> slurm(ntasks=float("nan"))
    Traceback (most recent call last):
    TypeError: ntasks must be an int, not float: nan
    """
    numbers = {"nodes": nodes, "ntasks": ntasks, "cpus_per_task": cpus_per_task}
    for key, number in numbers.items():
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{key} must be an int, not {type(number).__name__}: {number!r}")
        if number < 1:
            raise ValueError(f"{key} must be at least 1, not {number}")
    texts = {
        "job_name": job_name, "output": output, "mem_per_cpu": mem_per_cpu, "hint": hint, "time": time,
        "partition": partition, "account": account, "mail_user": mail_user, "mail_type": mail_type,
    }  # fmt: skip
    for key, value in texts.items():
        if value is not None and "\n" in _check.text(key, value):
            raise ValueError(f"{key} has a line break: {_check.quote(value)}")
    return Slurm(
        job_name, output, nodes, ntasks, cpus_per_task, mem_per_cpu, hint, time, partition, account, mail_user, mail_type
    )


def apptainer_config(meta: Meta, description: Description, slurm: Optional[Slurm] = None) -> ApptainerConfig:
    """A whole batch, to be written by :func:`write_config_to_file`."""
    _one("meta", meta, Meta, "metadata")
    _one("description", description, Description, "description")
    if slurm is not None:
        _one("slurm", slurm, Slurm, "slurm")
    return ApptainerConfig(meta, description, slurm)


def write_config_to_file(config: ApptainerConfig, path: Path) -> None:
    """Writes the batch as a file for dsubmit, d2slurm and dpull.

    A file of that name is replaced as a whole, or not at all.
    """
    _one("config", config, ApptainerConfig, "apptainer_config")
    data = _yaml(config).encode("utf-8")
    target = os.path.realpath(os.fspath(path))
    try:
        special = os.path.abspath(os.fspath(path)).startswith(("/dev/", "/proc/"))
        if special or (os.path.exists(path) and not os.path.isfile(path)):
            with open(path, "wb") as out:  # a pipe, a terminal, or what stdout is
                out.write(data)
            return
        fd, beside = tempfile.mkstemp(prefix=".distribute-", dir=os.path.dirname(target))
        try:
            with os.fdopen(fd, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            mask = os.umask(0o777)
            os.umask(mask)
            os.chmod(beside, 0o666 & ~mask)
            os.replace(beside, target)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as e:
        raise ValueError(f"{_check.quote(str(path))} cannot be written: {e.strerror}") from e


_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./+=@%-]*")
_NUMBERISH = re.compile(r"[.][0-9.]*|[.](inf|nan)", re.IGNORECASE)
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def _scalar(value: Union[None, int, str]) -> str:
    """A YAML scalar that reads as that value.

    >>> print(_scalar("0.10"), _scalar("a: b"), _scalar("no"), _scalar(None), _scalar("it's"))
    '0.10' 'a: b' 'no' null 'it''s'
    """
    if value is None:
        return "null"
    if isinstance(value, int):
        return int.__repr__(value)
    value = str.__str__(value)  # of a member of an enumeration, which has its name where it is formatted
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS and not _NUMBERISH.fullmatch(value):
        return value
    if "\n" in value or "\t" in value or not value.isprintable():
        return '"' + "".join(c if c.isprintable() and c not in '"\\' else _escape(c) for c in value) + '"'
    return "'" + value.replace("'", "''") + "'"


def _escape(c: str) -> str:
    return "\\" + c if c in '"\\' else "\\U%08x" % ord(c)


def _file(f: File, first: str, rest: str) -> List[str]:
    return [f"{first}path: {_scalar(f.path)}", f"{rest}alias: {_scalar(f.alias)}"]


def _items(key: str, indent: str, items: Sequence[List[str]]) -> List[str]:
    return [f"{indent}{key}: []"] if not items else [f"{indent}{key}:"] + [line for item in items for line in item]


def _slurm(options: Optional[Slurm], indent: str) -> List[str]:
    if options is None:
        return [f"{indent}slurm: null"]
    return [f"{indent}slurm:"] + [f"{indent}  {key}: {_scalar(value)}" for key, value in vars(options).items()]


def _yaml(config: ApptainerConfig) -> str:
    meta, init = config.meta, config.description.initialize
    lines = ["meta:", f"  batch_name: {_scalar(meta.batch_name)}", f"  namespace: {_scalar(meta.namespace)}"]
    lines.append(f"  matrix: {_scalar(meta.matrix)}")
    lines += _items("capabilities", "  ", [[f"  - {_scalar(c)}"] for c in meta.capabilities])
    lines += ["apptainer:", "  initialize:", "    sif:"] + _file(init.sif, " " * 6, " " * 6)
    lines += _items("required_files", "    ", [_file(f, "    - ", " " * 6) for f in init.required_files])
    lines += _items("required_mounts", "    ", [[f"    - {_scalar(m)}"] for m in init.required_mounts])
    jobs = []
    for j in config.description.jobs:
        item = [f"  - name: {_scalar(j.name)}"]
        item += _items("required_files", "    ", [_file(f, "    - ", " " * 6) for f in j.required_files])
        jobs.append(item + _slurm(j.slurm, "    "))
    lines += _items("jobs", "  ", jobs)
    lines += _slurm(config.slurm, "")
    return "\n".join(lines) + "\n"
