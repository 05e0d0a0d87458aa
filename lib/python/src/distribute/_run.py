"""What a job of map() runs, by itself: FILE MODULE FUNCTION json|pickle."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import sys
import traceback
from typing import Any, BinaryIO, List

MAIN = "__distribute_main__"  # of a script, whose guard for __main__ does not hold


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


def main(args: List[str]) -> int:
    path, module, name, kind = args
    try:
        beside = os.path.dirname(os.path.abspath(path))
        sys.path[:1] = [beside, os.path.dirname(beside)]  # instead of this file's own
        spec = importlib.util.spec_from_file_location(module, path)
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[module] = loaded
        spec.loader.exec_module(loaded)
        with open("input/map/case", "rb") as source:
            case = load(source, kind == "pickle", module, node=True)
        value = getattr(loaded, name)(case)
        data = pickle.dumps(value, protocol=4) if kind == "pickle" else json.dumps(value).encode("ascii")
    except BaseException as e:
        tb = e.__traceback__.tb_next if e.__traceback__ is not None else None
        text = "".join(traceback.format_exception(type(e), e, tb))
        sys.stderr.write(text)
        with open("traceback", "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
        return 1
    with open("value", "wb") as result:
        result.write(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
