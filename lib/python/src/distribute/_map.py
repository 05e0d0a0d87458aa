"""A function of a file, run for each case as a job."""

from __future__ import annotations

import inspect
import io
import json
import os
import pickle as pickle_module
import re
import sys
import tempfile
import types
import uuid
from pickle import ADDITEMS, EMPTY_SET, FROZENSET, MARK
from typing import Any, Callable, Iterable, List, Mapping, Optional, Sequence, Union

from distribute_compute_config import _check

from . import _run
from ._batch import FREE_NAME, Batch, File, Value, _list
from ._commands import DistributeError, NotFoundError
from ._submitted import Job, Progress, Submitted


class CaseFailed(DistributeError):
    """A case has no value that can be read: ``job``, ``node``, ``case``, how it ended as ``exit``
    or ``signal``, and the ``traceback``, if the function raised something."""

    def __init__(self, job: Job, case: object, traceback: str) -> None:
        self.job = job.id
        self.node = job.node
        self.case = case
        self.exit = job.exit
        self.signal = job.signal
        self.traceback = traceback
        ended = f" by {job.signal}" if job.signal else "" if job.exit is None else f" with exit {job.exit}"
        why = traceback.rstrip() or job.reason or job.said
        if job.state == "done":
            ended, why = "", traceback.rstrip() or "its process ended before the function gave a value, as by os._exit(0)"
        said = f"{job.id} {job.state} on {job.node or 'no node'}{ended}"
        super().__init__(f"{said}:\n{why}" if "\n" in why else f"{said}: {why}" if why else said)


def map(
    function: Callable[[Any], Any],
    cases: Iterable[Any],
    *,
    name: Optional[str] = None,
    namespace: Optional[str] = None,
    files: Sequence[File] = (),
    resources: Optional[Mapping[str, Value]] = None,
    capabilities: Sequence[str] = (),
    secrets: Sequence[str] = (),
    pickle: bool = False,
    python: str = "python3",
    progress: Progress = None,
    raising: bool = True,
    head: Optional[str] = None,
) -> List[Any]:
    """The values of ``function(case)``, one job each, in the order of cases.

    The function is one of a file, at its outermost level; the file goes along,
    and ``files`` lie below ``input``. Cases and values are JSON, or with
    ``pickle=True`` whatever pickle can hold. ``secrets`` are names of variables
    that the function has with the values of this program's environment. The first case that failed is
    raised as CaseFailed; with ``raising=False`` these stand in the list. With a
    ``name``, the same call again goes on with that batch.

    >>> map(lambda x: x * x, [1, 2])
    Traceback (most recent call last):
    ValueError: the function is a lambda, which a node cannot find: write it with def, in a file, not within another
    """
    path, module = _source(function)
    all_cases = list(cases)
    if not all_cases:
        return []
    batch_name = name or f"{re.sub('[^A-Za-z0-9_]', '_', function.__name__)[:60]}-{uuid.uuid4().hex[:12]}"
    kind = "pickle" if pickle else "json"
    names = [f"{number:0{len(str(len(all_cases)))}}" for number in range(1, len(all_cases) + 1)]
    try:
        with tempfile.TemporaryDirectory(prefix="distribute-") as work:
            batch = Batch(
                batch_name, namespace,
                resources=resources, capabilities=capabilities, directory=work, secrets=_list("secrets", secrets) or None,
                files=[{"path": path, "alias": "map/" + os.path.basename(path)}, *_packages(), *(_absolute(f) for f in _list("files", files))],
            )  # fmt: skip
            for job, case in zip(names, all_cases):
                with open(os.path.join(work, job), "wb") as out:
                    out.write(_dump(case, pickle, f"case {job}"))
                batch.job(
                    job,
                    [python, "input/map/distribute/_run.py", "input/map/" + os.path.basename(path), module, function.__name__, kind],
                    files=[{"path": job, "alias": "map/case"}],
                )
            submitted = _submit(batch, head)
        submitted.wait(progress=progress)
    except KeyboardInterrupt:
        if name is None:  # nobody could go on with it
            _withdraw(f"{namespace}/{batch_name}" if namespace else batch_name, head)
        raise
    return _values(submitted, names, all_cases, pickle, module, raising)


def _withdraw(id: str, head: Optional[str]) -> None:
    """Cancels the batch, if it was submitted. Raises KeyboardInterrupt with the reason if that fails."""
    try:
        Submitted(id, head).cancel()
    except NotFoundError:
        pass
    except DistributeError as e:
        raise KeyboardInterrupt(f"{id} may still run: {e}") from None


def _submit(batch: Batch, head: Optional[str]) -> Submitted:
    try:
        return batch.submit(head)
    except DistributeError as e:
        raise type(e)(str(e).replace(FREE_NAME, "give map() another name, or none, to begin anew"), e.status) from None


def _source(function: Callable[[Any], Any]) -> "tuple[str, str]":
    """The file of the function, and the name that its module gets on a node."""
    better = "write it with def, in a file, not within another"
    if not isinstance(function, types.FunctionType):
        raise ValueError(f"{function!r} is no function written in Python: {better}")
    if function.__name__ == "<lambda>":
        raise ValueError(f"the function is a lambda, which a node cannot find: {better}")
    if function.__qualname__ != function.__name__:
        raise ValueError(f"{function.__qualname__} is within another, where a node cannot find it: {better}")
    module = sys.modules.get(function.__module__)
    path = getattr(module, "__file__", None)
    if module is None or path is None or not os.path.isfile(path):
        raise ValueError(f"{function.__name__} was typed into a session and is in no file: write it into one and import that")
    there = getattr(module, function.__name__, None)
    if there is None or inspect.isgeneratorfunction(function):
        raise ValueError(f"{function.__name__} is no plain function of {path}: {better}")
    if there is not function and getattr(there, "__code__", None) != function.__code__:  # equal code: it was reloaded
        raise ValueError(
            f"{_check.quote(function.__name__)} in {path} is another function, which a node would run: "
            "give each function a name of its own, decorate it with @, and import a file again that has changed"
        )
    if "." in function.__module__ or hasattr(module, "__path__"):
        raise ValueError(f"{function.__name__} is of {function.__module__}, within a package: write it into a file of its own")
    if not path.endswith(".py"):
        raise ValueError(f"{_check.quote(path)} does not end in .py: name it so, since a node imports it")
    return os.path.realpath(path), _run.MAIN if function.__module__ == "__main__" else function.__module__


def _packages() -> List[File]:
    """What a file that imports this package needs on a node that has it not."""
    found: List[File] = []
    for package in (os.path.dirname(_run.__file__), os.path.dirname(_check.__file__)):
        for entry in sorted(os.listdir(package)):
            if entry.endswith(".py"):
                alias = f"map/{os.path.basename(package)}/{entry}"
                found.append({"path": os.path.abspath(os.path.join(package, entry)), "alias": alias})
    return found


def _absolute(f: Any) -> Any:
    if isinstance(f, Mapping):
        return {**f, "path": os.path.abspath(os.fspath(f["path"]))}
    return os.path.abspath(os.fspath(f))


def _dump(case: object, pickle: bool, what: str) -> bytes:
    data = _run.dump(case, pickle, what)
    if pickle and (EMPTY_SET in data or FROZENSET in data):
        data = _stable(case)
    return data


_Pickler: Any = getattr(pickle_module, "_Pickler")  # the one in Python, whose parts can be replaced


class _Stable(_Pickler):  # type: ignore[misc]
    """Pickles sets in an order of their own, which does not differ from one process
    to the next: the same call of map() is the same batch."""

    dispatch = dict(_Pickler.dispatch)

    def save_set(self, obj: Any) -> None:
        self.write(EMPTY_SET)
        self.memoize(obj)
        self.write(MARK)
        for item in _sorted(obj):
            self.save(item)
        self.write(ADDITEMS)

    def save_frozenset(self, obj: Any) -> None:
        self.save_reduce(frozenset, (_sorted(obj),), obj=obj)

    dispatch[set] = save_set
    dispatch[frozenset] = save_frozenset


def _stable(value: Any) -> bytes:
    out = io.BytesIO()
    _Stable(out, protocol=4).dump(value)
    return out.getvalue()


def _sorted(items: Any) -> List[Any]:
    try:
        return sorted(items, key=_stable)
    except RecursionError:  # one of them refers to the set
        return list(items)


def _values(
    submitted: Submitted, names: Sequence[str], cases: Sequence[Any], pickle: bool, module: str, raising: bool
) -> List[Any]:
    jobs = {j.name: j for j in submitted.jobs()}
    values: List[Any] = []
    with tempfile.TemporaryDirectory(prefix="distribute-") as home:
        try:
            submitted.pull(home, include=[f"^({_run.VALUE}|{_run.TRACEBACK})$"])
        except DistributeError as e:
            if e.status != 1:  # no job left one of these
                raise
        below = os.path.join(home, *submitted.id.split("/"))
        for name, case in zip(names, cases):
            job = jobs[name]
            said = ""
            try:
                if job.state == "done":
                    with open(os.path.join(below, name, _run.VALUE), "rb") as value:
                        try:
                            values.append(_run.load(value, pickle, module))
                            continue
                        except Exception as e:  # as of a class that is not here
                            said = f"its value cannot be read here: {type(e).__name__}: {e}"
                else:
                    with open(os.path.join(below, f"{name}~{job.attempt}", _run.TRACEBACK), encoding="utf-8") as text:
                        said = text.read()
            except FileNotFoundError:
                pass
            failed: Union[Any, CaseFailed] = CaseFailed(job, case, said)
            if raising:
                raise failed
            values.append(failed)
    return values
