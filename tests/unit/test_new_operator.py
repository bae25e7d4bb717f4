"""`tilewright new`: what it writes is found, compiles and is right; nothing that is there is touched."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tilewright.cli import main
from tilewright.errors import ExitCode
from tilewright.library import find_operator
from tilewright.log import TuningLog
from tilewright.record import Record, Status


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_TEMPLATES", raising=False)
    monkeypatch.chdir(tmp_path)


def test_what_it_writes_works_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "rope", "--into", "own ops"]) == ExitCode.OK
    said = capsys.readouterr().out
    assert "tilewright tune  rope --templates 'own ops'" in said
    (steps,) = [line.split("'own ops'")[1].split() for line in said.splitlines() if line.startswith("  tilewright check rope")]
    assert all(line in said.splitlines() for line in ("own ops/rope/spec.py", "own ops/rope/reference.py", "own ops/rope/rows.py.jinja"))
    operator = find_operator("rope", [Path("own ops")])
    assert (operator.spec.name, list(operator.templates)) == ("rope", ["rows"])
    assert main(["check", "rope", "--templates", "own ops", "-w", "rows=5,cols=1000,dtype=bfloat16"]) == ExitCode.OK
    capsys.readouterr()
    assert main(["check", "rope", "--templates", "own ops", *steps, "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["checks"][0]["run"].keys() == {"right"} and {"--each", "--run"} <= set(steps)
    tuned = ["tune", "rope", "--templates", "own ops", "--workloads", "smoke", "--device", "interpreter", "--trials", "4", "--log", "l.jsonl"]
    assert main(tuned) == ExitCode.OK
    records = [line for line in TuningLog(Path("l.jsonl")).read().lines if isinstance(line, Record)]
    assert {record.workload.dims["cols"] for record in records} == {256, 1000}
    assert Status.OK in {record.status for record in records} <= {Status.OK, Status.CUT}


def test_its_name_stands_wherever_it_belongs() -> None:
    assert main(["new", "rope"]) == ExitCode.OK
    texts = {name: (Path("rope") / name).read_text() for name in ("spec.py", "reference.py", "rows.py.jinja")}
    assert not any("$" in text for text in texts.values())
    assert {name: text.count("rope") for name, text in texts.items()} == {"spec.py": 3, "reference.py": 1, "rows.py.jinja": 2}


@pytest.mark.parametrize(
    ("name", "said"),
    [("matmul", "operator matmul is there already, in .*templates/matmul"), ("3d", "no name for an operator"), ("a-b", "no name"), ("taken", "taken is there")],
)
def test_it_refuses_what_would_not_be_found(name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes").write_text("mine")
    assert main(["new", name]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert re.search(said, error), error
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["notes"]


def test_a_folder_that_cannot_be_written_is_the_machines_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["new", "rope", "--into", "file/ops"]) == ExitCode.HOST
    assert "cannot write" in capsys.readouterr().err


def test_json_names_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "rope", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"operator": "rope", "files": ["rope/spec.py", "rope/reference.py", "rope/rows.py.jinja"]}
