"""Batches of distribute from Python: written, submitted, waited for, pulled.

>>> import distribute
>>> batch = distribute.Batch("heat", "ana", resources={"cpus": 1, "time": "1h"})
>>> batch.job("n=64", ["./heat", "--n", 64], param={"n": 64})
>>> batch.job("n=128", ["./heat", "--n", 128], param={"n": 128})
>>> batch.write("heat.yaml")

``batch.submit()`` gives it to the head, and :func:`open` finds one that is there.
:func:`map` runs a function of a file for each case. distribute-python(7) tells
the rest.
"""

from __future__ import annotations

from ._batch import Batch, template
from ._commands import (
    DamagedError,
    DeniedError,
    DistributeError,
    NoRoomError,
    NotFoundError,
    NotOverError,
    RefusedError,
    UnreachableError,
    UsageError,
)
from ._map import CaseFailed, map
from ._submitted import Job, Submitted, open

__all__ = [
    "Batch", "CaseFailed", "DamagedError", "DeniedError", "DistributeError", "Job", "NoRoomError", "NotFoundError",
    "NotOverError", "RefusedError", "Submitted", "UnreachableError", "UsageError", "map", "open", "template",
]  # fmt: skip
