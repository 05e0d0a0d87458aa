"""What a job of map() runs, by itself: FILE MODULE FUNCTION json|pickle."""

from __future__ import annotations

import enum
import importlib.util
import json
import os
import pickle
import reprlib
import sys
import tempfile
import traceback
from typing import Any, BinaryIO, List, Optional

MAIN = "__distribute_main__"  # of a script, whose guard for __main__ does not hold
IMPORTS = "__distribute_imports__"  # there while a node imports the file, which must submit nothing then

VALUE, TRACEBACK = "distribute.value", "distribute.traceback"  # what goes home, beside the function's own files


class _Unpickler(pickle.Unpickler):
    """Finds what a script calls its __main__ on the node, and the node's at home."""

    here = "__main__"

    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(self.here if module in (MAIN, "__main__") else module, name)


def load(source: BinaryIO, pickled: bool, module: str, node: bool = False) -> Any:
    """The case, or the value."""
    if not pickled:
        return json.load(source)
    unpickler = _Unpickler(source)
    unpickler.here = MAIN if node and module == MAIN else "__main__"
    return unpickler.load()


def save(here: str, name: str, data: bytes, mode: str = "wb") -> None:
    """Writes what goes home, wherever the function went meanwhile."""
    with open(os.path.join(here, name), mode) as out:
        out.write(data)


def dump(value: Any, pickled: bool, what: str) -> bytes:
    """The case or the value as a file has it. What that cannot hold is a TypeError."""
    try:
        data = pickle.dumps(value, protocol=4) if pickled else json.dumps(value).encode("ascii")
    except (pickle.PicklingError, AttributeError, TypeError, ValueError, RecursionError) as e:
        raise TypeError(f"{what} cannot be pickled: {e}" if pickled else f"{what} is not JSON: {e}: give pickle=True to map()") from None
    changed = None if pickled else _changed(value)
    if changed:
        raise TypeError(f"{what} would not be the same as JSON: {changed}: give pickle=True to map()")
    return data


def _changed(value: object) -> Optional[str]:
    """What JSON does not give back as it is; None if there is nothing. Floats and texts come back as
    equal ones, as those of numpy."""
    rest = [value]  # no recursion: JSON may be nested deeper than calls of Python
    while rest:
        item = rest.pop()
        if type(item) is dict:
            for key in item:
                if not isinstance(key, str) or isinstance(key, enum.Enum):
                    return f"the key {reprlib.repr(key)} is not a str"
            rest.extend(item.values())
        elif type(item) is list:
            rest.extend(item)
        elif not (item is None or type(item) in (bool, int) or isinstance(item, (float, str)) and not isinstance(item, enum.Enum)):
            return f"{reprlib.repr(item)} is of type {type(item).__name__}"
    return None


_SHIM = """\
import importlib.util
import sys

spec = importlib.util.spec_from_file_location({name!a}, {path!a})
sys.modules[{name!a}] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""


def importable(path: str) -> None:
    """Lets processes that a function of the script starts import the script by its name."""
    where = tempfile.mkdtemp(dir=os.environ.get("TMPDIR"))
    with open(os.path.join(where, MAIN + ".py"), "w", encoding="ascii") as out:
        out.write(_SHIM.format(name=MAIN, path=path))
    sys.path.append(where)


def main(args: List[str]) -> int:
    path, module, name, kind = args
    path, here = os.path.abspath(path), os.getcwd()
    first = os.environ.get("DISTRIBUTE_RANK", "0") == "0"  # of its ranks, which share the directory
    try:
        beside = os.path.dirname(path)
        sys.path[:1] = [beside, os.path.dirname(beside)]  # instead of this file's own
        if module == MAIN:
            importable(path)
        spec = importlib.util.spec_from_file_location(module, path)
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[module] = sys.modules[IMPORTS] = loaded
        spec.loader.exec_module(loaded)
        del sys.modules[IMPORTS]
        with open(os.path.join(here, "input/map/case"), "rb") as source:
            case = load(source, kind == "pickle", module, node=True)
        value = getattr(loaded, name)(case)
        if first:
            save(here, VALUE, dump(value, kind == "pickle", f"what {name}() gave"))
        status = 0
    except BaseException as e:
        tb = e.__traceback__.tb_next if e.__traceback__ is not None else None
        text = "".join(traceback.format_exception(type(e), e, tb)).replace(here + os.sep, "")
        try:
            save(here, TRACEBACK, text.encode("utf-8", "backslashreplace"), "xb")
        except FileExistsError:  # of a rank that failed before
            pass
        try:
            sys.stderr.write(text)
        except (AttributeError, OSError, ValueError):  # the function closed it
            pass
        status = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # python itself would exit with 120
            sys.stdout = sys.stderr = None
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
