"""What `tune` is given: recordings that are not the log's, files that are no logs, numbers that are none, a stdout that takes nothing."""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.cli import main
from tilewright.commands.amounts import minor_version
from tilewright.errors import ExitCode, UsageError
from tilewright.log import TuningLog
from tilewright.record import SessionStart
from tilewright.report import print_end
from tilewright.result import TuneResult, WorkloadResult
from tilewright.tuner import tune
from tilewright.workload import parse_key

WORKLOAD = "M=16,N=4096,K=14336"
FASTER, SLOWER = 50.0, 70.0


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str, float], Path]:
    """Makes recordings of one operator on one device, which differ in the time of a config."""
    monkeypatch.chdir(tmp_path)

    def make(name: str, best_us: float) -> Path:
        head = {"kind": "cublas_us", "device": "NVIDIA H200", "torch": "2.11.0+cu130", "triton": "3.6.0", "shapes": {"16x4096x14336": 31.0}}
        point = {"ok": True, "BM": 16, "BK": 64, "W": 4, "S": 2, "compile_s": 0.5, "regs": 64, "spills": 0, "shared": 40960}
        rows = [{**point, "BN": n, "us": {"16x4096x14336": [us, us, us, 3]}} for n, us in ((32, 80.0), (64, best_us))]
        raw, log = Path(f"{name}.raw"), Path(f"{name}.jsonl")
        raw.write_text("".join(json.dumps(row) + "\n" for row in (head, *rows)))
        assert main(["log", "import", "--format", "recorded", str(raw), "-o", str(log)]) == ExitCode.OK
        capsys.readouterr()
        return log

    return make


def tuned(recording: Path, *more: str) -> int:
    return main(["tune", "recorded_gemm", "-w", WORKLOAD, "--device", f"recorded:{recording}", "--json", *more])


Recorded = Callable[[str, float], Path]


def test_another_recording_has_another_log(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = recorded("first", FASTER), recorded("second", SLOWER)
    logs = []
    for recording, us, tier in ((first, FASTER, "search"), (second, SLOWER, "search"), (first, FASTER, "log")):
        assert tuned(recording) == ExitCode.OK
        answer = json.loads(capsys.readouterr().out)
        assert (answer["results"][0]["best_us"], answer["results"][0]["tier"]) == (us, tier)
        logs.append(answer["log"])
    assert logs[0] == logs[2] != logs[1]


@pytest.mark.parametrize("more", [(), ("--force",), ("--resume",)])
def test_two_recordings_do_not_share_a_log(more: tuple[str, ...], recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = recorded("first", FASTER), recorded("second", SLOWER)
    assert tuned(first, "--log", "both.jsonl") == tuned(first, "--log", "both.jsonl", *more) == ExitCode.OK
    before = Path("both.jsonl").read_bytes()
    capsys.readouterr()
    assert tuned(second, "--log", "both.jsonl", *more) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "recorded:first.jsonl" in said and "recorded:second.jsonl" in said and "--log FILE" in said
    assert Path("both.jsonl").read_bytes() == before
    assert main(["verify", "both.jsonl", "--device", f"recorded:{second}", "--update"]) == ExitCode.USAGE
    assert "is another recording" in capsys.readouterr().err and Path("both.jsonl").read_bytes() == before
    assert main(["verify", "both.jsonl", "--device", f"recorded:{first}", "--update"]) != ExitCode.USAGE
    starts = [line for line in TuningLog("both.jsonl").read().lines if isinstance(line, SessionStart)]
    assert {len(str(start.options["recording"])) for start in starts} == {64}


def test_a_best_file_is_not_appended_to(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    recording = recorded("first", FASTER)
    assert tuned(recording, "--log", "log.jsonl") == ExitCode.OK
    assert main(["best", "log.jsonl", "-o", "best.jsonl"]) == ExitCode.OK
    before = Path("best.jsonl").read_bytes()
    capsys.readouterr()
    assert tuned(recording, "--log", "best.jsonl") == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "best.jsonl is a best file, not a tuning log" in said and "--log FILE" in said
    assert main(["verify", "best.jsonl", "--device", f"recorded:{recording}", "--update", "--log", "best.jsonl"]) == ExitCode.USAGE
    assert Path("best.jsonl").read_bytes() == before


FOREIGN = [
    ("cfg.py", b"import triton\n\nCONFIGS = []\n", "Python source"),
    ("cfg.txt", b"from os import path\nprint(path)\n", "Python source"),
    ("k.py.jinja", b"{% set a = 1 %}\n", "a template"),
    ("table.csv", b"a,b\n1,2\n", "a table"),
    ("conf.json", b'{\n  "a": 1\n}\n', "JSON of another kind"),
    ("rows.jsonl", b'{"kind":"row","schema":1}\n', "JSON of another kind"),
    ("notes", "µs, in words".encode(), "a text of another kind"),
    ("data.bin", b"\xff\xfe\0\0", "binary data"),
]


@pytest.mark.parametrize(("name", "data", "seems"), FOREIGN, ids=[name for name, *_ in FOREIGN])
def test_a_file_without_a_line_of_a_log_is_not_appended_to(name: str, data: bytes, seems: str, recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    recording = recorded("first", FASTER)
    Path(name).write_bytes(data)
    assert tuned(recording, "--log", name) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert f"{name} has no line of a tuning log and seems to be {seems}" in said and "--log FILE" in said
    assert tuned(recording, "--log", "log.jsonl") == ExitCode.OK
    assert main(["verify", "log.jsonl", "--device", f"recorded:{recording}", "--update", "--log", name]) == ExitCode.USAGE
    assert Path(name).read_bytes() == data


@pytest.mark.parametrize("data", [b"", b"\n \n", b'{"kind":"session","sch', b'{"k', b'torn\n{"kind":"session","sch'])
def test_a_file_that_may_become_a_log_or_is_one_is_appended_to(data: bytes, recorded: Recorded) -> None:
    recording = recorded("first", FASTER)
    Path("log.jsonl").write_bytes(data)
    assert tuned(recording, "--log", "log.jsonl") == ExitCode.OK
    assert Path("log.jsonl").read_bytes().startswith(data) and TuningLog("log.jsonl").read().lines


@pytest.mark.parametrize("more", [["--map", "a=b"], ["--resume", "--force"], ["--log", "notes.py"]])
def test_a_dry_run_refuses_what_a_run_does(more: list[str], recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    recording = recorded("first", FASTER)
    Path("notes.py").write_text("import os\n")
    said = []
    for dry in ([], ["--dry-run"]):
        assert tuned(recording, *more, *dry) == ExitCode.USAGE
        said.append(capsys.readouterr().err.splitlines()[-1])
    assert said[0] == said[1] and "error" in said[0]


def test_options_that_would_do_nothing_are_refused(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    recording = recorded("first", FASTER)
    assert tuned(recording, "--log", "log.jsonl") == ExitCode.OK
    assert main(["verify", "log.jsonl", "--device", f"recorded:{recording}", "--log", "other.jsonl"]) == ExitCode.USAGE
    assert "add --update" in capsys.readouterr().err
    for more in (["--target", "banana"], ["-w", "M=17"], ["--target", "banana", "-o", "table.csv"]):
        assert main(["log", "export", "log.jsonl", "--format", "csv", *more]) == ExitCode.USAGE
        out, err = capsys.readouterr()
        assert out == "" and "there are: recorded_gemm:K=14336,M=16,N=4096,dtype=float16 on NVIDIA H200 (sm_90)" in err
    assert not Path("table.csv").exists()
    for version in ("banana", "3", "3.x", "", "v3.9"):
        assert main(["emit", "log.jsonl", "-o", "out", "--triton", version]) == ExitCode.USAGE
        assert f"--triton: must be MAJOR.MINOR, as 3.9, not {version!r}" in capsys.readouterr().err
    assert [minor_version(text) for text in ("3.9", "3.9.1", "3.10.0+git1a")] == ["3.9", "3.9", "3.10"]


def test_damage_is_said_where_the_log_answers(recorded: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    recording = recorded("first", FASTER)
    assert tuned(recording, "--log", "log.jsonl") == ExitCode.OK
    assert "damaged" not in capsys.readouterr().err
    with Path("log.jsonl").open("a") as file:
        file.write("torn\n{\n")
    assert tuned(recording, "--log", "log.jsonl") == ExitCode.OK
    out, err = capsys.readouterr()
    assert json.loads(out)["results"][0]["tier"] == "log"
    assert err.count("log.jsonl: skipped 2 damaged line(s); `tilewright log lint log.jsonl` says which") == 1


@pytest.mark.parametrize(("reason", "why"), [("budget", "the budget was spent"), ("interrupted", "interrupted")])
def test_what_was_not_measured_is_not_called_wrong(reason: str, why: str) -> None:
    answer = WorkloadResult(workload=parse_key("matmul:M=64"), tier="search", best=None, reason=reason)
    result = TuneResult(results=(answer,), log="log.jsonl", protocol="graph/2", device="a device", reason=reason, wall_s=1.0)
    out = io.StringIO()
    print_end(result, out)
    assert f"not measured: {why} before its first trial" in out.getvalue()
    assert "none is correct" not in out.getvalue()
    assert result.exit_code == (ExitCode.INTERRUPTED if reason == "interrupted" else ExitCode.FAILED)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--trials", "abc"], "--trials: must be a whole number above 0, not 'abc'"),
        (["--trials", "1.5"], "--trials: must be a whole number above 0, not '1.5'"),
        (["--jobs", "0"], "--jobs: must be a whole number above 0, not '0'"),
        (["--time", "inf"], "--time: must be a number of seconds above 0, not 'inf'"),
        (["--time", "soon"], "--time: must be a number of seconds above 0, not 'soon'"),
        (["--seed", "x"], "--seed: must be a whole number, not 'x'"),
    ],
)
def test_numbers_of_the_command_line_are_refused_in_words(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "matmul", *argv]) == ExitCode.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"time_s": float("nan")}, "time_s must be a number of seconds above 0, such as time_s=60, not nan"),
        ({"time_s": float("inf")}, "time_s must be a number of seconds above 0"),
        ({"time_s": "60"}, "time_s must be a number of seconds above 0"),
        ({"trials": "x"}, "trials must be a whole number above 0, such as trials=8, not 'x'"),
        ({"trials": True}, "trials must be a whole number above 0"),
        ({"early_stop": 2.5}, "early_stop must be a whole number above 0"),
        ({"jobs": -1}, "jobs must be a whole number above 0"),
        ({"seed": 1.5}, "seed must be a whole number, such as seed=0, not 1.5"),
        ({"workloads": 7}, "workloads must be parameters such as"),
        ({"workloads": [7]}, "workloads must be parameters such as"),
    ],
)
def test_arguments_of_the_library_are_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        tune("matmul", device="interpreter", **options)


@pytest.mark.parametrize("one", [WORKLOAD, {"M": 16, "N": 4096, "K": 14336}, parse_key(f"recorded_gemm:{WORKLOAD}")])
def test_one_workload_needs_no_list(one: Any, recorded: Recorded) -> None:
    result = tune("recorded_gemm", one, device=f"recorded:{recorded('first', FASTER)}")
    assert [answer.best_us for answer in result.results] == [FASTER]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("argv", [["operators"], ["operators", "--json"], ["--help"]])
def test_a_full_standard_output_is_said_in_one_line(argv: list[str]) -> None:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        child = subprocess.run([sys.executable, "-m", "tilewright", *argv], stdout=full, stderr=subprocess.PIPE, text=True, env=buffered)
    assert child.returncode == ExitCode.HOST
    assert child.stderr.startswith("tilewright: error: cannot write to standard output: No space left on device;")
    assert child.stderr.count("\n") == 1


@pytest.mark.parametrize("place", ["tilewright.cli.make_parser", "tilewright.cli._begin_children"])
def test_ctrl_c_while_the_command_line_is_read(place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupted)
    assert main(["operators"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "tilewright: interrupted\n"


def test_ctrl_c_while_the_command_line_is_imported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "tilewright.cli":
                raise KeyboardInterrupt

    console = importlib.import_module("tilewright.__main__")
    monkeypatch.delitem(sys.modules, "tilewright.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert console.main() == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "tilewright: interrupted\n"
