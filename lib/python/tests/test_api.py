"""The package distribute, without a head."""

from __future__ import annotations

import doctest
import enum
import importlib
import io
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest

import distribute
from distribute import _batch, _commands, _map, _run


def written(batch: distribute.Batch) -> dict:
    return json.loads(batch.text())


def test_documentation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("", "._batch", "._commands", "._map", "._run", "._submitted"):
        assert doctest.testmod(importlib.import_module("distribute" + name)).failed == 0
    assert pathlib.Path("heat.yaml").exists()


def test_command(tmp_path):
    batch = distribute.Batch(
        "heat", "ana", build=["make"], files=["src"], resources={"cpus": 2}, capabilities=["gcc"], priority=-5, retries=2,
        env={"A": "b"}, outputs=["results"],
    )
    batch.job("a", ["./heat", 64, 0.1], files=[distribute.template("c.in")], param={"n": 64}, needs=["b"], retries=0, priority=3, env={"N": 64}, outputs=["*.csv"])
    assert written(batch) == {
        "meta": {"batch_name": "heat", "namespace": "ana", "capabilities": ["gcc"]},
        "resources": {"cpus": 2}, "priority": -5, "retries": 2, "env": {"A": "b"}, "outputs": ["results"],
        "command": {
            "initialize": {"build": ["make"], "required_files": ["src"]},
            "jobs": [{
                "name": "a", "run": ["./heat", "64", "0.1"], "required_files": [{"path": "c.in", "fill": True}],
                "param": {"n": 64}, "needs": ["b"], "env": {"N": 64}, "outputs": ["*.csv"], "retries": 0, "priority": 3,
            }],
        },
    }  # fmt: skip
    batch.write(tmp_path / "a.yaml")
    batch.write(tmp_path / "a.yaml")
    assert [p.name for p in tmp_path.iterdir()] == ["a.yaml"]
    assert (tmp_path / "a.yaml").read_text() == batch.text()


def test_namespace(monkeypatch):
    monkeypatch.setenv("LOGNAME", "ben")
    assert distribute.Batch("a").namespace == "ben"


def test_kinds():
    batch = distribute.Batch("a", "b", kind="python", build="make.py", sweep={"n": range(2)})
    batch.job(file="run.py")
    assert written(batch)["python"] == {"initialize": {"build_file": "make.py"}, "jobs": [{"file": "run.py"}]}
    assert written(batch)["sweep"] == {"n": [0, 1]}
    batch = distribute.Batch("a", "b", sweep={"n": [1, 2]})
    batch.job(None, ["cat", "case"], files=[distribute.template("case.in")])
    assert written(batch)["command"]["jobs"] == [{"run": ["cat", "case"], "required_files": [{"path": "case.in", "fill": True}]}]
    batch = distribute.Batch(
        "a", "b", kind="apptainer", image=pathlib.Path("a.sif"), mounts=["/out"], run=["solve", 4], contain=False, sweep={"n": Array([1, 2.5])}
    )
    batch.job("x", slurm={"partition": "long", "requeue": False})
    assert written(batch)["apptainer"]["initialize"] == {"sif": "a.sif", "required_mounts": ["/out"], "run": ["solve", "4"], "contain": False}
    assert written(batch)["apptainer"]["jobs"] == [{"name": "x", "slurm": {"partition": "long", "requeue": False}}]
    assert written(batch)["sweep"] == {"n": [1, 2.5]}


def test_numpy():
    np = pytest.importorskip("numpy")
    batch = distribute.Batch("a", "b", sweep={"nu": np.array([0.1, 0.25]), "n": np.arange(2), "on": np.array([True]), "s": np.array(["x"])})
    batch.job("{n}", ["solve", np.float64(0.5), np.int64(3), "{nu}"], param={"k": np.float32(1.5), "m": np.int32(2)})
    assert written(batch)["sweep"] == {"nu": [0.1, 0.25], "n": [0, 1], "on": [True], "s": ["x"]}
    assert written(batch)["command"]["jobs"][0]["run"] == ["solve", "0.5", "3", "{nu}"]
    assert written(batch)["command"]["jobs"][0]["param"] == {"k": 1.5, "m": 2}
    with pytest.raises(TypeError, match="a word of run must be a str or a number, not list"):
        batch.job("y{n}", ["solve", np.arange(2)])


class Solver(str, enum.Enum):
    CG = "cg"


class Level(int, enum.Enum):
    FINE = 3


class Step(float, enum.Enum):
    SMALL = 0.25


def test_enumerations():
    batch = distribute.Batch("a", "b", sweep={"s": [Solver.CG]})
    batch.job("{s}", ["solve", Solver.CG, Level.FINE, Step.SMALL], param={"n": Level.FINE}, env={"S": Solver.CG}, files=[Solver.CG])
    job = {"name": "{s}", "run": ["solve", "cg", "3", "0.25"], "required_files": ["cg"], "param": {"n": 3}, "env": {"S": "cg"}}
    assert written(batch)["sweep"] == {"s": ["cg"]} and written(batch)["command"]["jobs"] == [job]


class Array:
    """As NumPy's."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def tolist(self):
        return self.values


@pytest.mark.parametrize(
    "make, told",
    [
        (lambda: distribute.Batch("a b", "c"), "the name of the batch: bad name"),
        (lambda: distribute.Batch("a", "b", kind="shell"), "is not known"),
        (lambda: distribute.Batch("a", "b", kind="python"), "give build="),
        (lambda: distribute.Batch("a", "b", image="a.sif"), "kind='apptainer'"),
        (lambda: distribute.Batch("a", "b", run=["x"]), "run is for a batch with kind='apptainer'"),
        (lambda: distribute.Batch("a", "b", contain=True), "contain is for a batch with kind='apptainer'"),
        (lambda: distribute.Batch("a", "b").text(), "has no job"),
        (lambda: distribute.Batch("a", "b").job("x"), "has run="),
        (lambda: distribute.Batch("a", "b").job(None, ["true"]), "has no name"),
        (lambda: distribute.Batch("a", "b").job("x", "echo 1"), "run must be a list, not str"),
        (lambda: distribute.Batch("a", "b").job("x", []), "run is empty"),
        (lambda: distribute.Batch("a", "b").job("x", ["a", None]), "must be a str or a number"),
        (lambda: distribute.Batch("a", "b").job("x", ["\udcff"]), "not UTF-8"),
        (lambda: distribute.Batch("a", "b").job("x", ["a"], param={"n": float("nan")}), "param: n: nan is no number"),
        (lambda: distribute.Batch("a", "b", resources={"cpus": {1}}), "holds a set"),
        (lambda: distribute.template("case.toml"), "does not end in .in"),
    ],
)
def test_mistakes(make, told):
    with pytest.raises((ValueError, TypeError), match=told):
        make()


def test_same_name():
    batch = distribute.Batch("a", "b")
    batch.job("x", ["true"])
    with pytest.raises(ValueError, match='two jobs are named "x"'):
        batch.job("x", ["true"])


def test_commands(tmp_path, monkeypatch):
    tool = tmp_path / "dquery"
    tool.write_text("#!/bin/sh\necho dquery: no such batch >&2\nexit 66\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(distribute.NotFoundError, match="^dquery: no such batch$") as told:
        distribute.open("a/b")
    assert told.value.status == 66
    with pytest.raises(distribute.UsageError, match="put the commands of distribute into PATH"):
        distribute.Submitted("a/b").cancel()
    with pytest.raises(distribute.UsageError, match="no such directory"):
        _commands.call(["dquery"], None, directory=str(tmp_path / "none"))
    line = {"id": "a/b/c", "state": "done", "node": "ws1", "runtime": 1.5, "param": {"n": "64"}, "cpus": 2}
    tool.write_text(f"#!/bin/sh\necho '{json.dumps(line)}'\n")
    (job,) = distribute.open("a/b").jobs()
    assert (job.name, job.over, job.runtime, job.record["cpus"]) == ("c", True, 1.5, 2)
    assert distribute.open("b").table() == [
        {"id": "a/b/c", "state": "done", "node": "ws1", "runtime": 1.5, "cpus": 2, "param.n": "64"}
    ]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="needs pandas"):
        distribute.open("b").frame()


def test_param(tmp_path, monkeypatch):
    tool = tmp_path / "dquery"
    tool.write_text("""#!/bin/sh\necho '{"id":"a/b/c","state":"done","param":{"x":1.10,"n":100000000000000000001,"t":"a b","on":true}}'\n""")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (job,) = distribute.Submitted("a/b").jobs()
    assert job.param == {"x": "1.10", "n": "100000000000000000001", "t": "a b", "on": "true"}
    assert distribute.Submitted("a/b").table()[0]["param.x"] == 1.1


def test_tried_again(tmp_path, monkeypatch):
    """A job failed, and somebody had it tried again before wait() looked."""
    for name, lines in [
        ("dwait", 'test -e again || { touch again; exit 1; }\necho "$@" >>words\n'),
        ("dquery", """test -e words && state=done || state=running; echo '{"id":"a/b/c","state":"'$state'"}'\n"""),
    ]:
        (tmp_path / name).write_text("#!/bin/sh\n" + lines)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    for timeout in None, 1000:
        assert distribute.Submitted("a/b").wait(timeout) is True
        for name in "again", "words":
            (tmp_path / name).unlink()
    (tmp_path / "dwait").write_text("#!/bin/sh\necho 'dwait: not over after -T 1s: a/b/c' >&2; exit 1\n")
    with pytest.raises(distribute.NotOverError, match="^a/b: not over yet: 1 job$"):
        distribute.Submitted("a/b").wait("1s")
    for state, done in ("done", True), ("failed", False), (None, False):  # it was over before dwait had an answer, or is none
        said = f"echo '{json.dumps({'id': 'a/b/c', 'state': state})}'" if state else "exit 1"
        (tmp_path / "dquery").write_text(f"#!/bin/sh\n{said}\n")
        assert distribute.Submitted("a/b").wait(0) is done


def test_advice(tmp_path, monkeypatch):
    tool = tmp_path / "dsubmit"
    tool.write_text("#!/bin/sh\necho 'dsubmit: no node could ever run \"a\": too large (dsubmit -Q queues it all the same)' >&2\nexit 65\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    batch = distribute.Batch("b", "ana", directory=tmp_path)
    batch.job("a", ["true"])
    with pytest.raises(distribute.RefusedError, match=r'^dsubmit: no node .* "a": too large \(queue=True queues it all the same\)$'):
        batch.submit()


@pytest.mark.parametrize(
    "status, raised",
    [
        (1, distribute.DistributeError), (64, distribute.UsageError), (65, distribute.RefusedError), (66, distribute.NotFoundError),
        (69, distribute.UnreachableError), (74, distribute.DamagedError), (75, distribute.NoRoomError), (77, distribute.DeniedError),
    ],
)  # fmt: skip
def test_submit(tmp_path, monkeypatch, status, raised):
    tool = tmp_path / "dsubmit"
    tool.write_text(f"#!/bin/sh\necho \"$@\" >'{tmp_path}/words'\necho dsubmit: no >&2\nexit {status}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    batch = distribute.Batch("b", "ana", directory=os.path.dirname("script.py"))
    batch.job("a", ["true"])
    with pytest.raises(distribute.DistributeError, match="^dsubmit: no$") as told:
        batch.submit(head="lab", free_name=True, queue=True)
    assert type(told.value) is raised and told.value.status == status
    assert (tmp_path / "words").read_text().startswith("-H lab -q -u -Q ./")


def test_frame(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.setattr(distribute.Submitted, "table", lambda _: [{"id": "a/b/c", "param.n": "64", "started": "2026-01-01T00:00:00Z"}])
    frame = distribute.Submitted("a/b").frame()
    assert frame["param.n"].sum() == 64
    assert frame["started"][0] == pandas.Timestamp("2026-01-01", tz="UTC")


def outermost(x):
    return x


def test_function(monkeypatch):
    assert _map._source(outermost) == (str(pathlib.Path(__file__).resolve()), "test_api")
    for function, told in [
        (len, "no function written in Python"),
        (lambda x: x, "lambda"),
        (json.dumps, "a package"),
    ]:
        with pytest.raises(ValueError, match=told):
            distribute.map(function, [1])

    def inner(x):
        return x

    with pytest.raises(ValueError, match="is within another"):
        distribute.map(inner, [1])
    session = types.ModuleType("session")
    exec("def f(x): return x", session.__dict__)
    monkeypatch.setitem(sys.modules, "session", session)
    with pytest.raises(ValueError, match="typed into a session"):
        distribute.map(session.f, [1])


def test_function_of_the_name(tmp_path, monkeypatch):
    """A node finds the function by its name, which has to be this function."""
    (tmp_path / "twice.py").write_text(
        "import functools\n"
        "def solve(x): return x\n"
        "first = solve\n"
        "def solve(x): return -x\n"
        "logged = functools.wraps(solve)(lambda x: [solve(x)])\n"
        "@functools.wraps(solve)\n"
        "def solve(x): return 2 * x\n"
    )  # fmt: skip
    monkeypatch.syspath_prepend(tmp_path)
    twice = importlib.import_module("twice")
    monkeypatch.setitem(sys.modules, "twice", twice)
    for function in twice.first, twice.logged:
        with pytest.raises(ValueError, match=r'"solve" in .*twice\.py is another function'):
            distribute.map(function, [1])
    assert _map._source(twice.solve)[1] == "twice"
    reloaded = types.FunctionType(twice.solve.__code__, twice.__dict__, "solve")  # as of IPython's autoreload
    reloaded.__module__ = "twice"
    assert _map._source(reloaded)[1] == "twice"


def größe(x):
    return x


def test_function_of_other_letters(monkeypatch):
    """The batch without a name has that of the function, with letters that a batch can have."""

    def submit(batch, head):
        raise RuntimeError(batch.name)

    monkeypatch.setattr(_map, "_submit", submit)
    with pytest.raises(RuntimeError, match="^gr__e-[0-9a-f]{12}$"):
        distribute.map(größe, [1])


@pytest.mark.parametrize("files", ["a.csv", {"path": "a.csv"}])
def test_files_of_map(files):
    with pytest.raises(TypeError, match="^files must be a list, not "):
        distribute.map(outermost, [1], files=files)


@pytest.mark.parametrize("case", [(1, 2), {1: 2}, {1}, [(1,)], b"a"])
def test_not_json(case):
    with pytest.raises(TypeError, match="pickle=True"):
        _map._dump(case, False, "case 1")
    assert _run.load(io.BytesIO(_map._dump(case, True, "case 1")), True, "m") == case


def test_sets():
    """The same case is the same file in each process."""
    code = "import sys; from distribute import _map; sys.stdout.buffer.write(_map._dump(" \
        "[{'alpha', 'beta', 'gamma'}, frozenset({('x', 1), ('y', frozenset('abc'))}), {'s': set()}], True, 'case 1'))"  # fmt: skip
    told = set()
    for seed in "1", "2", "3":
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        told.add(subprocess.run([sys.executable, "-c", code], env=env, check=True, stdout=subprocess.PIPE).stdout)
    (data,) = told
    case = _run.load(io.BytesIO(data), True, "m")
    assert case == [{"alpha", "beta", "gamma"}, frozenset({("x", 1), ("y", frozenset("abc"))}), {"s": set()}]


def test_json():
    for case in [None, 1, 0.1, "ä\n", [1, {"a": [True]}]]:
        assert json.loads(_map._dump(case, False, "case 1")) == case
    assert _batch._json("\u2028\x85ä😀") == '"\\u2028\\u0085ä😀"'
    assert _batch._json("\U000e0067") == '"\U000e0067"'
