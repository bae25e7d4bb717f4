"""The command line: its answers' places, its exit codes, what it does not import."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

import tilewright
from tilewright.cli import main, make_parser
from tilewright.commands.output import table
from tilewright.errors import ExitCode, HostError, LogError, UsageError

HEAVY = {"jinja2", "msgspec", "numpy", "optuna", "pynvml", "rich", "torch", "triton"}


def fake_command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(args: argparse.Namespace) -> ExitCode:
        raise error

    module = types.ModuleType("tilewright.commands.operators")
    module.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tilewright.commands.operators", module)


@pytest.mark.parametrize(("error", "code"), [(UsageError("bad knob"), 2), (HostError("disk full"), 3), (LogError("no log"), 4), (KeyboardInterrupt(), 130)])
def test_errors_become_exit_codes(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake_command(monkeypatch, error)
    assert main(["operators"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tilewright: ") and str(error) in err and "Traceback" not in err


def test_debug_shows_where_an_error_came_from(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake_command(monkeypatch, UsageError("bad knob"))
    assert main(["operators", "--debug"]) == ExitCode.USAGE
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_is_not_dressed_up_as_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_command(monkeypatch, KeyError("a template's own"))
    with pytest.raises(KeyError):
        main(["operators"])


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "COMMAND"),
        (["frob"], "frob"),
        (["tune"], "OPERATOR"),
        (["tune", "matmul", "--trials", "0"], "must be a whole number above 0"),
        (["tune", "matmul", "--time", "nan"], "must be a number of seconds above 0"),
        (["tune", "matmul", "--work", "x"], "--work"),
        (["log", "import", "x", "-o", "y", "--format", "csv"], "csv"),
        (["space", "matmul"], "--workload"),
    ],
)
def test_wrong_usage_is_refused_by_name(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == ExitCode.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "begun"),
    [
        (["tune", "matmul"], 1),
        (["tune", "matmul", "--device", "cuda:1"], 1),
        (["tune", "matmul", "--device", "interpreter"], 0),
        (["tune", "matmul", "--device", "recorded:x"], 0),
        (["tune", "matmul", "--dry-run"], 0),
        (["operators"], 0),
    ],
)
def test_children_begin_early_where_a_gpu_is_likely(argv: list[str], begun: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called: list[int] = []
    monkeypatch.setattr("tilewright.nursery.begin_early", lambda: called.append(1))
    monkeypatch.setattr("tilewright.cli._NVIDIA", tmp_path)  # there
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    fake_command(monkeypatch, UsageError("no more than this"))
    assert main(argv) == ExitCode.USAGE
    assert len(called) == begun
    called.clear()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    main(["tune", "matmul"])
    assert not called


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out == f"tilewright {tilewright.__version__}\n"


COMMANDS = ["operators", "doctor", "space m -w a=1", "check m", "tune m", "best l", "show l", "log lint l", "log stats l"]


@pytest.mark.parametrize("command", [*COMMANDS, "log import f --format recorded -o l"])
def test_every_command_takes_the_common_options(command: str) -> None:
    args = make_parser().parse_args([*command.split(), "--templates", "a", "--templates", "b", "--json", "--debug", "--seed", "7"])
    assert [str(folder) for folder in args.templates] == ["a", "b"]
    assert args.json and args.debug and args.seed == 7


def test_help_imports_nothing_heavy() -> None:
    program = "import sys, tilewright.cli\nassert tilewright.cli.main(['tune', '--help']) == 0\nprint('|'.join(sys.modules), file=sys.stderr)"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(child.stderr.strip().split("|"))


def test_help_is_quick() -> None:
    def least(command: list[str]) -> float:
        times = []
        for _ in range(7):
            begun = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            times.append(time.perf_counter() - begun)
        return min(times)

    bare = least([sys.executable, "-c", "pass"])
    # 0.06 s on an idle 2-core machine; the bar is 0.3 s.
    assert least([sys.executable, "-m", "tilewright", "--help"]) - bare < 0.3


def test_importing_the_library_is_lazy_and_complete() -> None:
    program = f"import sys, tilewright; print(sorted(set(sys.modules) & {HEAVY})); print([getattr(tilewright, n) for n in tilewright.__all__])"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported, exported = child.stdout.splitlines()
    assert imported == "[]"
    assert "function tune" in exported and "function load" in exported and "class 'tilewright.space.Space'" in exported
    with pytest.raises(AttributeError, match="it exports Space, "):
        tilewright.frob  # noqa: B018


def test_a_reader_that_went_away_ends_the_printing_quietly() -> None:
    program = "from tilewright.commands.output import emit\nfor i in range(20000): emit('x' * 80)"
    child = subprocess.run(f'{sys.executable} -c "{program}" | head -n 1', shell=True, capture_output=True, text=True, check=True)
    assert child.stdout == "x" * 80 + "\n"
    assert child.stderr == ""


def test_table_aligns_numbers_right_and_marks_what_is_missing() -> None:
    text = table(("name", "points"), [("a", 1804), ("long name", None)])
    assert text.splitlines() == ["name       points", "a           1,804", "long name       -"]


def test_doctor_examines_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    answer = json.loads(capsys.readouterr().out)
    states = {finding["name"]: finding["state"] for finding in answer["findings"]}
    assert code == (ExitCode.OK if answer["ok"] else ExitCode.FAILED)
    assert states["torch and triton"] == "ok"
    assert states["interpreter"] == "ok"
    details = {finding["name"]: finding["detail"] for finding in answer["findings"]}
    assert re.search(r"torch \d+\.\d+.*triton 3\.[6-9]", details["torch and triton"])
    assert "GiB free" in details["log folder"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["tune", "matmul", "--trial", "5"], "tilewright tune: error: unrecognized arguments: --trial 5; did you mean --trials?"),
        (["log", "lint", "l.jsonl", "--jsn=1"], "tilewright log lint: error: unrecognized arguments: --jsn=1; did you mean --json?"),
        (["best", "l.jsonl", "-cover", "M"], "did you mean --cover?"),
        (["--trials", "5", "tune", "matmul"], "--trials must stand behind the command's name; in front of it only --templates, --seed, --json, --debug may"),
        (["log", "--tmplates", "x", "stats"], "tilewright log: error: --tmplates must stand behind the command's name"),
        (["log", "--tmplates", "x", "stats"], "did you mean --templates?"),
        (["log", "--templates", "x"], "the following arguments are required: ACTION"),
        (["--templates", "x", "frobnicate"], "invalid choice: 'frobnicate'"),
        (["log", "--seed", "x", "stats", "l.jsonl"], "tilewright log stats: error: argument --seed: must be a whole number, not 'x'"),
        (["space", "matmul", "-w", "M=1", "more"], "unrecognized arguments: more; `tilewright space --help` lists what it takes"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given) == ExitCode.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "given",
    [
        ["log", "stats", "a.jsonl", "--templates", "x", "--json", "--seed", "3"],
        ["log", "--templates", "x", "--json", "stats", "a.jsonl", "--seed=3"],
        ["--json", "--seed", "3", "log", "--templates=x", "stats", "a.jsonl"],
        ["--templates", "x", "--seed=3", "--json", "log", "stats", "a.jsonl"],
    ],
)
def test_common_options_may_stand_in_front_of_a_command(given: list[str]) -> None:
    args = make_parser().parse_args(given)
    assert (args.module, args.logs, args.templates, args.json, args.seed, args.debug) == ("log_stats", [Path("a.jsonl")], [Path("x")], True, 3, False)


def test_folders_of_both_places_are_looked_into() -> None:
    args = make_parser().parse_args(["--templates", "x", "log", "--templates", "y", "stats", "a", "--templates", "z"])
    assert args.templates == [Path("x"), Path("y"), Path("z")]


def test_help_is_given_whatever_stands_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "--templates", "x", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: tilewright log [-h] ACTION")
