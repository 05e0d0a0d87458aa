"""A batch, and its file."""

from __future__ import annotations

import errno
import getpass
import json
import math
import os
import re
import sys
import tempfile
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Union

from distribute_compute_config import _check

from . import _commands, _run

if TYPE_CHECKING:
    from ._submitted import Submitted

Path = Union[str, "os.PathLike[str]"]
Value = Union[str, int, float, bool]
File = Union[str, "os.PathLike[str]", Mapping[str, object]]
FREE_NAME = "free_name=True gives it the next free name"

# What dsubmit advises, and how that is said in Python.
_ADVICE = [
    (re.compile(r"^dsubmit: the next free name: .*$", re.M), "dsubmit: " + FREE_NAME),
    (re.compile(r"^dsubmit: or another name: .*\n?", re.M), ""),
    (re.compile(r"\(dsubmit -Q queues"), "(queue=True queues"),
]

Sweep = Union[str, Sequence[str], Mapping[str, Union[str, Sequence[Value]]]]


def template(path: Path, alias: Optional[str] = None) -> Dict[str, object]:
    """A file ``NAME.in`` of which each job gets its own as ``input/NAME``, with
    its ``{places}`` filled from the job's parameters.

    >>> template("case.toml.in")
    {'path': 'case.toml.in', 'fill': True}
    """
    entry: Dict[str, object] = {"path": os.fspath(path)}
    if alias is not None:
        entry["alias"] = _check.alias(alias)
    elif not os.fspath(path).endswith(".in"):
        raise ValueError(f"the template {_check.quote(os.fspath(path))} does not end in .in: rename it, or give an alias")
    entry["fill"] = True
    return entry


class Batch:
    """A batch of one kind: ``command`` (a job is a list of words), ``python`` (a
    job is a file, run by python3) or ``apptainer``.

    ``build`` is the command, or the Python file, that is run once a node;
    ``image`` the .sif file, ``run`` what its jobs run that do not say so, and
    ``contain`` whether they see nothing of the machine. ``options`` are other
    keys of the top level of dbatch(5), as ``priority=-5`` or ``retries=2``.
    Relative paths count from ``directory``, or from that of the file that
    :meth:`write` writes.
    """

    def __init__(
        self,
        name: str,
        namespace: Optional[str] = None,
        *,
        kind: str = "command",
        build: Union[None, Path, Sequence[object]] = None,
        image: Optional[Path] = None,
        files: Sequence[File] = (),
        mounts: Sequence[str] = (),
        run: Optional[Sequence[object]] = None,
        contain: Optional[bool] = None,
        resources: Optional[Mapping[str, Value]] = None,
        capabilities: Sequence[str] = (),
        sweep: Optional[Sweep] = None,
        matrix: Optional[str] = None,
        directory: Path = ".",
        **options: object,
    ) -> None:
        if kind not in ("command", "python", "apptainer"):
            raise ValueError(f"kind {kind!r} is not known: write command, python or apptainer")
        self.kind = kind
        self.directory = os.fspath(directory) or "."
        self.name = _check.name("the name of the batch", name)
        self.namespace = _check.name("namespace", getpass.getuser() if namespace is None else namespace)
        meta: Dict[str, object] = {"batch_name": self.name, "namespace": self.namespace}
        if matrix is not None:
            meta["matrix"] = _check.matrix(matrix)
        if capabilities:
            meta["capabilities"] = _plain("capabilities", _list("capabilities", capabilities))
        self._top: Dict[str, object] = {"meta": meta}
        for key, value in [("resources", resources), ("sweep", sweep), *options.items()]:
            if value is not None:
                self._top[key] = _plain(key, value)
        self._initialize = self._beginning(build, image, files, mounts)
        for key, value in [("run", None if run is None else _words("run", run)), ("contain", contain)]:
            if value is not None and kind != "apptainer":
                raise ValueError(f"{key} is for a batch with kind='apptainer'")
            if value is not None:
                self._initialize[key] = value
        self._jobs: List[Dict[str, object]] = []
        self._names: Dict[str, bool] = {}

    def _beginning(
        self, build: Union[None, Path, Sequence[object]], image: Optional[Path], files: Sequence[File], mounts: Sequence[str]
    ) -> Dict[str, object]:
        start: Dict[str, object] = {}
        if (image is not None) != (self.kind == "apptainer"):
            raise ValueError("an apptainer batch has an image, and no other has: give kind='apptainer' with image=")
        if mounts and self.kind != "apptainer":
            raise ValueError("mounts are for a batch with kind='apptainer'")
        if self.kind == "apptainer":
            if build is not None:
                raise ValueError("an apptainer batch has no build: it is in the image")
            start["sif"] = _plain("image", image)
            if mounts:
                start["required_mounts"] = _plain("mounts", _list("mounts", mounts))
        elif self.kind == "python":
            if build is None or not isinstance(build, (str, os.PathLike)):
                raise ValueError("a python batch has a file that makes ready: give build=, an empty file will do")
            start["build_file"] = _plain("build", build)
        elif build is not None:
            start["build"] = _words("build", build)
        if files:
            start["required_files"] = _plain("files", _list("files", files))
        return start

    def job(
        self,
        name: Optional[str] = None,
        run: Optional[Sequence[object]] = None,
        *,
        file: Optional[Path] = None,
        files: Sequence[File] = (),
        resources: Optional[Mapping[str, Value]] = None,
        param: Optional[Mapping[str, Value]] = None,
        needs: Sequence[str] = (),
        capabilities: Sequence[str] = (),
        retries: Optional[int] = None,
        priority: Optional[int] = None,
        env: Optional[Mapping[str, Value]] = None,
        outputs: Sequence[str] = (),
        slurm: Optional[Mapping[str, Value]] = None,
    ) -> None:
        """Adds a job. In a batch with a sweep an entry with places, as ``{n}``,
        is a job for each case, and may go without a name.

        >>> batch = Batch("a", "b")
        >>> batch.job("re 100", ["true"])
        Traceback (most recent call last):
        ValueError: the name of a job: bad name "re 100": ' ' is not allowed (letters, digits and . _ - + = @ % are)
        """
        entry: Dict[str, object] = {}
        if name is not None:
            places = "sweep" in self._top and "{" in name
            entry["name"] = _check.text("the name of a job", name) if places else _check.name("the name of a job", name)
            if name in self._names:
                raise ValueError(f"two jobs are named {_check.quote(name)}: the names of the jobs of a batch differ")
        elif "sweep" not in self._top:
            raise ValueError("the job has no name: only the jobs of a sweep are named by themselves")
        if (file is not None) != (self.kind == "python") or (run is None and self.kind == "command"):
            raise ValueError(f"a job of kind {self.kind} has " + ("a file: give file=" if self.kind == "python" else "run="))
        if file is not None:
            if run is not None:
                raise ValueError("a job of kind python has a file, and no run")
            entry["file"] = _plain("file", file)
        elif run is not None:
            entry["run"] = _words("run", run)
        for key, value in [
            ("required_files", _list("files", files)), ("resources", resources), ("param", param),
            ("needs", _list("needs", needs)), ("capabilities", _list("capabilities", capabilities)),
            ("env", env), ("outputs", _list("outputs", outputs)), ("slurm", slurm),
        ]:  # fmt: skip
            if value:
                entry[key] = _plain(key, value)
        if retries is not None:
            entry["retries"] = _plain("retries", retries)
        if priority is not None:
            entry["priority"] = _plain("priority", priority)
        if name is not None:
            self._names[name] = True
        self._jobs.append(entry)

    def text(self) -> str:
        """The batch as dbatch(5) has it, a line a job; it is JSON, too."""
        if not self._jobs:
            raise ValueError(f"the batch {_check.quote(self.name)} has no job: add one with job()")
        lines = [f"{_json(key)}: {_json(value)}," for key, value in self._top.items()]
        lines.append(f'"{self.kind}": {{')
        if self._initialize:
            lines.append(f'"initialize": {_json(self._initialize)},')
        lines += ['"jobs": [', ",\n".join(_json(j) for j in self._jobs), "]}"]
        return "{\n" + "\n".join(lines) + "\n}\n"

    def write(self, path: Path) -> None:
        """Writes the file. One that is there is replaced as a whole, or not at all."""
        target = os.path.realpath(os.fspath(path))
        if not target.endswith((".yaml", ".yml")):
            raise ValueError(f"{_check.quote(os.fspath(path))} does not end in .yaml or .yml, as a batch file does")
        beside = self._beside(os.path.dirname(target))
        try:
            mask = os.umask(0o777)
            os.umask(mask)
            os.chmod(beside, 0o666 & ~mask)
            os.replace(beside, target)
        except BaseException:
            os.unlink(beside)
            raise

    def _beside(self, directory: str) -> str:
        """The file under a name of its own in the directory."""
        data = self.text().encode("utf-8")
        if not os.path.isdir(directory or "."):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        fd, path = tempfile.mkstemp(prefix=".distribute-", suffix=".yaml", dir=directory)
        try:
            with os.fdopen(fd, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
        except BaseException:
            os.unlink(path)
            raise
        return path

    def submit(
        self, head: Optional[str] = None, wait: bool = False, *, free_name: bool = False, queue: bool = False
    ) -> "Submitted":
        """Gives the batch to the head, on whose disk it is safe then. The same
        batch again is no mistake, another of that name is; with ``free_name``
        it becomes NAME.2 then. ``queue`` takes what no node could run yet."""
        from ._submitted import Submitted

        if _run.IMPORTS in sys.modules:
            raise _commands.UsageError(
                "this file is imported on a node, where it must submit nothing: write above what submits\n"
                '    if __name__ == "__main__":', 64,
            )  # fmt: skip
        path = self._beside(self.directory)
        try:
            args = ["dsubmit", "-q"] + ["-u"] * free_name + ["-Q"] * queue + ["./" + os.path.basename(path)]
            out = _commands.call(args, head, directory=self.directory)
        except _commands.DistributeError as e:
            said = str(e).replace("./" + os.path.basename(path), self.name).replace(os.path.basename(path), self.name)
            for advice, words in _ADVICE:
                said = advice.sub(words, said)
            raise type(e)(said.rstrip(), e.status) from None
        finally:
            os.unlink(path)
        submitted = Submitted(out.strip(), head)
        if wait:
            submitted.wait()
        return submitted


def _list(what: str, value: object) -> List[object]:
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise TypeError(f"{what} must be a list, not {type(value).__name__}: {value!r}")
    return list(value)


def _words(what: str, value: object) -> List[str]:
    """A command: no shell reads it, so a text is not one."""
    words = []
    for word in _list(what, value):
        if hasattr(word, "tolist"):  # a number of NumPy
            word = word.tolist()
        if isinstance(word, bool) or not isinstance(word, (str, int, float, os.PathLike)):
            raise TypeError(f"a word of {what} must be a str or a number, not {type(word).__name__}: {word!r}")
        if isinstance(word, os.PathLike):
            word = os.fspath(word)
        elif not isinstance(word, str):  # a member of an enumeration is its number
            word = int.__repr__(word) if isinstance(word, int) else float.__repr__(word)
        words.append(_check.text(f"a word of {what}", word))
    if not words:
        raise ValueError(f"{what} is empty: write a program and its arguments")
    return words


def _plain(what: str, value: object) -> object:
    """The value, of what a file can hold."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{what}: {value} is no number that a batch file can hold")
        return value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return _check.text(what, value)
    if isinstance(value, Mapping):
        return {_check.text(f"a key of {what}", k): _plain(f"{what}: {k}", v) for k, v in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_plain(what, v) for v in value]
    if hasattr(value, "tolist"):  # a number or an array of NumPy
        return _plain(what, value.tolist())
    raise TypeError(f"{what} holds a {type(value).__name__}, which a batch file cannot: {value!r}")


def _json(value: object) -> str:
    """JSON that YAML reads the same.

    >>> print(_json({"a": ["\\u2028", 0.1, True]}))
    {"a": ["\\u2028", 0.1, true]}
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(k)}: {_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_json(v) for v in value) + "]"
    if isinstance(value, str):
        return "".join(c if c.isprintable() or c > "\uffff" else json.dumps(c)[1:-1] for c in json.dumps(value, ensure_ascii=False))
    return json.dumps(value)
