"""The functions of the older package: names, arguments and files."""

from __future__ import annotations

import ast
import doctest
import enum
import inspect
import os
import pathlib
import subprocess
import sys

import pytest

import distribute_compute_config as d

WRITTEN = """\
meta:
  batch_name: amp_sweep
  namespace: demo
  matrix: null
  capabilities:
  - apptainer
apptainer:
  initialize:
    sif:
      path: ./oscillator.sif
      alias: null
    required_files:
    - path: ./ic.h5
      alias: initial_condition.h5
    required_mounts: []
  jobs:
  - name: amp_0.10
    required_files:
    - path: ./amp_0.10.json
      alias: config.json
    slurm: null
  - name: amp_0.20
    required_files:
    - path: ./amp_0.20.json
      alias: config.json
    slurm:
      job_name: null
      output: null
      nodes: null
      ntasks: 2
      cpus_per_task: null
      mem_per_cpu: null
      hint: null
      time: null
      partition: null
      account: null
      mail_user: null
      mail_type: null
slurm: null
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config(name: str = "a") -> d.ApptainerConfig:
    init = d.initialize(d.file("x.sif", relative=True), [], [])
    return d.apptainer_config(d.metadata("n", "b", []), d.description(init, [d.job(name, [])]))


def test_file_is_as_it_was() -> None:
    def amp(a: str) -> d.File:
        return d.file(f"./amp_{a}.json", True, "config.json")

    init = d.initialize(d.file("./oscillator.sif", True), [d.file("./ic.h5", True, "initial_condition.h5")], [])
    jobs = [d.job("amp_0.10", [amp("0.10")]), d.job("amp_0.20", [amp("0.20")], d.slurm(ntasks=2))]
    d.write_config_to_file(d.apptainer_config(d.metadata("demo", "amp_sweep", ["apptainer"]), d.description(init, jobs)), "j.yaml")
    assert pathlib.Path("j.yaml").read_text() == WRITTEN


def test_signatures() -> None:
    want = {
        "metadata": "namespace batch_name capabilities matrix_username",
        "file": "path relative alias",
        "initialize": "sif required_files required_mounts",
        "job": "name required_files slurm",
        "description": "initialize jobs",
        "apptainer_config": "meta description slurm",
        "slurm": "job_name output nodes ntasks cpus_per_task mem_per_cpu hint time partition account mail_user mail_type",
        "write_config_to_file": "config path",
    }
    for name, arguments in want.items():
        assert " ".join(inspect.signature(getattr(d, name)).parameters) == arguments


def test_path_of_a_file_that_is_there_is_absolute() -> None:
    pathlib.Path("a.json").touch()
    assert d.file("a.json").path == os.path.realpath("a.json")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: d.metadata("", "b", []), "namespace: bad name: it is empty"),
        (lambda: d.metadata("n", "-b", []), "must not start with '-'"),
        (lambda: d.metadata("n", "x" * 101, []), "it has 101 bytes, at most 100 are allowed"),
        (lambda: d.metadata("n", "b.yaml", []), "must not end in .yaml or .yml"),
        (lambda: d.metadata("n", "b", "gpu"), "capabilities must be a list, not str"),
        (lambda: d.metadata("n", "b", [1]), "capabilities must be a list of str, and one is int: 1"),  # type: ignore[list-item]
        (lambda: d.metadata("n", "b", [], "maria"), "is no Matrix user"),
        (lambda: d.job("a\udcff", []), r'the name of a job is not UTF-8 text: "a\\udcff"'),
        (lambda: d.job(float("nan"), []), "must be a str, not float: nan"),  # type: ignore[arg-type]
        (lambda: d.job("a", ["x.json"]), "must be a list of File, and one is str"),  # type: ignore[list-item]
        (lambda: d.file("a", True, "/etc/x"), "leaves the job's directory"),
        (lambda: d.file("a", True, ""), "is empty: write the name"),
        (lambda: d.file("a\x1b", True), r"holds the control character U\+001B"),
        (lambda: d.file("", True), "a path is empty"),
        (lambda: d.slurm(ntasks=0), "ntasks must be at least 1"),
        (lambda: d.slurm(time="1\n#SBATCH"), "time has a line break"),
        (lambda: d.initialize("x.sif", [], ["out"]), "is not an absolute path"),
        (lambda: d.write_config_to_file(config(), "none/j.yaml"), "cannot be written: No such file or directory"),
    ],
)
def test_mistakes_are_told(call: object, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()  # type: ignore[operator]


def test_files_at_one_place() -> None:
    init = d.initialize("x.sif", [d.file("a/c.json", True)], [])
    d.description(init, [d.job("same", [d.file("a/c.json", True)])])
    with pytest.raises(ValueError, match='"b/c.json" would lie at "input/c.json", where "a/c.json" lies'):
        d.description(init, [d.job("j", [d.file("b/c.json", True)])])


def test_a_member_of_an_enumeration_is_its_value(tmp_path: pathlib.Path) -> None:
    kind = enum.Enum("kind", {"FINE": "fine", "MAIL": "END"}, type=str)
    number = enum.Enum("number", {"TWO": 2}, type=int)
    options = d.slurm(mail_type=kind.MAIL, nodes=number.TWO)
    jobs = [d.job(kind.FINE, [d.file(kind.FINE, relative=True, alias=kind.MAIL)], options)]
    config = d.apptainer_config(d.metadata(kind.FINE, "b", [kind.FINE]), d.description(d.initialize(kind.FINE, [], []), jobs))
    d.write_config_to_file(config, tmp_path / "a.yaml")
    text = (tmp_path / "a.yaml").read_text()
    assert text.count("fine") == 5 and text.count("END") == 2 and "nodes: 2" in text and "kind" not in text and "number" not in text


def test_nothing_is_left_of_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    pathlib.Path("j.yaml").write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ValueError, match="No space left on device"):
        d.write_config_to_file(config(), "j.yaml")
    assert os.listdir(".") == ["j.yaml"] and pathlib.Path("j.yaml").read_text() == "old"


@pytest.mark.parametrize("sink", ["file", "pipe"])
def test_writes_to_what_stdout_is(sink: str) -> None:
    program = (
        "import distribute_compute_config as d\n"
        "init = d.initialize('x.sif', [], [])\n"
        "config = d.apptainer_config(d.metadata('n', 'b', []), d.description(init, [d.job('a', [])]))\n"
        "d.write_config_to_file(config, '/dev/stdout')\n"
    )
    environ = dict(os.environ, PYTHONPATH=str(pathlib.Path(d.__file__).parents[1]))
    command = [sys.executable, "-c", program]
    if sink == "pipe":
        text = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True).stdout.decode()
    else:
        with open("out.yaml", "wb") as out:
            subprocess.run(command, env=environ, stdout=out, check=True)
        text = pathlib.Path("out.yaml").read_text()
    assert text.startswith("meta:\n") and text.endswith("slurm: null\n")


def test_examples() -> None:
    for module in (d, d._check):
        result = doctest.testmod(module)
        assert result.attempted and not result.failed
    readme = doctest.testfile(str(pathlib.Path(__file__).parents[1] / "README.md"), module_relative=False)
    assert readme.attempted and not readme.failed
    assert pathlib.Path("distribute-jobs.yaml").exists()


def test_is_for_python_3_9() -> None:
    for path in pathlib.Path(d.__file__).parents[1].glob("distribute*/*.py"):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
