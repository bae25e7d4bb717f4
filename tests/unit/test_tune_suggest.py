"""`tune --suggest`: another tool's configs are measured first, after the author's default."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.cli import main
from tilewright.log import TuningLog
from tilewright.record import Record
from tilewright.session import MAX_ATTEMPTS

RECORDED = Path(__file__).parents[2] / "benchmarks" / "data" / "recorded_gemm_h200.jsonl.gz"
CONFIGS = """
import triton
raise SystemExit("a file of suggestions was run")
configs = [triton.Config({"BM": 128, "BN": n, "BK": 64}, num_warps=8, num_stages=4) for n in (256, 128)] + [triton.Config({"BM": 512, "BN": 512})]
"""


def test_suggestions_are_measured_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, log = tmp_path / "configs.py", tmp_path / "log.jsonl"
    file.write_text(CONFIGS)
    command = ["tune", "recorded_gemm", "-w", "M=4096,N=4096,K=4096", "--device", f"recorded:{RECORDED}", "--trials", "3", "--log", str(log)]
    command += ["--suggest", str(file), "--map", "W=num_warps", "--map", "S=num_stages"]
    assert main([*command, "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "BM=128 BN=256 BK=64 W=8 S=4" in said.out
    assert "2 first candidates of 3 configs" in said.err
    assert "refused 1:\n  line 4: not in the recording" in said.err
    assert main(command) == 0
    configs = [line.config for line in TuningLog(log).read().lines if isinstance(line, Record)]
    # The default of a recording without one is the middle of its space.
    assert [(config["BM"], config["BN"], config["W"]) for config in configs] == [(64, 64, 8), (128, 256, 8), (128, 128, 8)]
    assert main([*command[:-6], "--map", "W=num_warps"]) == 2
    assert "give the file with --suggest" in capsys.readouterr().err


def measured(log: Path) -> list[tuple[object, ...]]:
    return [(line.config["BM"], line.config["BN"], line.config["W"]) for line in TuningLog(log).read().lines if isinstance(line, Record)]


def test_a_finished_search_tries_what_the_log_does_not_have_and_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, log = tmp_path / "configs.py", tmp_path / "log.jsonl"
    command = ["tune", "recorded_gemm", "-w", "M=4096,N=4096,K=4096", "--device", f"recorded:{RECORDED}", "--search", "descent", "--log", str(log)]
    assert main([*command, "--trials", "3", "--early-stop", "2"]) == 0
    searched = measured(log)
    names = ["--suggest", str(file), "--map", "W=num_warps", "--map", "S=num_stages"]
    file.write_text(CONFIGS)
    capsys.readouterr()
    # Neither trials that are spent nor a patience that is over keep them from being tried.
    assert main([*command, *names, "--trials", "3", "--early-stop", "2"]) == 0
    assert "its search was finished; trying the 2 of 2 suggested config(s) that the log does not have" in capsys.readouterr().err
    assert measured(log) == [*searched, (128, 256, 8), (128, 128, 8)]
    assert main([*command, *names]) == 0
    assert "the log has all 2 suggested config(s); --force measures them again" in capsys.readouterr().err
    assert len(measured(log)) == len(searched) + 2, "trials that are left are for --resume"
    file.write_text(CONFIGS.replace("(256, 128)", "(256, 64)"))
    assert main([*command, *names, "--trials", "2"]) == 0
    assert "trying the 1 of 2" in capsys.readouterr().err
    assert measured(log)[len(searched) + 2 :] == [(128, 64, 8)]
    assert main([*command, "--trials", "2"]) == 0
    assert "suggested" not in capsys.readouterr().err


def test_a_suggestion_that_killed_sessions_is_left_alone_and_costs_no_other(tmp_path: Path) -> None:
    file, log = tmp_path / "configs.py", tmp_path / "log.jsonl"
    file.write_text(CONFIGS)
    command = [
        "tune",
        "recorded_gemm",
        "-w",
        "M=4096,N=4096,K=4096",
        "--device",
        f"recorded:{RECORDED}",
        "--search",
        "descent",
        "--log",
        str(log),
        "--trials",
        "3",
    ]
    assert main(command) == 0
    finished, searched = log.read_text().splitlines(), len(measured(log))
    names = ["--suggest", str(file), "--map", "W=num_warps", "--map", "S=num_stages"]
    assert main([*command, *names]) == 0
    begun = log.read_text().splitlines()[len(finished) :]
    session = next(line for line in begun if json.loads(line)["kind"] == "session")
    start = next(line for line in begun if json.loads(line)["kind"] == "start")
    own = json.loads(session)["session"]
    died = [line.replace(own, f"{place:016x}") for place in range(MAX_ATTEMPTS) for line in (session, start)]
    log.write_text("\n".join([*finished, *died]) + "\n")
    assert main([*command, *names]) == 0
    records = [line for line in TuningLog(log).read().lines if isinstance(line, Record)][searched:]
    assert [(record.config["BN"], str(record.status)) for record in records] == [(256, "crash"), (128, "ok")]


def test_each_of_many_workloads_tries_its_suggestions_and_nothing_else(tmp_path: Path) -> None:
    file, log = tmp_path / "configs.py", tmp_path / "log.jsonl"
    file.write_text(CONFIGS)
    shapes = ("4096,N=4096,K=4096", "16,N=4096,K=14336", "512,N=512,K=8192", "2048,N=2048,K=2048", "8192,N=8192,K=8192", "1024,N=14336,K=4096")
    command = ["tune", "recorded_gemm", *(word for shape in shapes for word in ("-w", f"M={shape}")), "--device", f"recorded:{RECORDED}", "--log", str(log)]
    command += ["--search", "descent", "--trials", "60"]
    assert main(command) == 0
    searched = len(measured(log))
    assert main([*command, "--suggest", str(file), "--map", "W=num_warps", "--map", "S=num_stages"]) == 0
    records = [line for line in TuningLog(log).read().lines if isinstance(line, Record)]
    tried = {(record.workload.key, record.config["BN"]) for record in records if (record.config["BM"], record.config["W"], record.config["S"]) == (128, 8, 4)}
    assert {number for _, number in tried} >= {128, 256} and len({pair for pair in tried if pair[1] in (128, 256)}) == 2 * len(shapes)
    assert {(record.config["BM"], record.config["BN"]) for record in records[searched:]} <= {(128, 256), (128, 128)}


def test_default_only_tries_no_suggestion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, log = tmp_path / "configs.py", tmp_path / "log.jsonl"
    file.write_text(CONFIGS)
    command = ["tune", "recorded_gemm", "-w", "M=4096,N=4096,K=4096", "--device", f"recorded:{RECORDED}", "--log", str(log), "--default-only"]
    names = ["--suggest", str(file), "--map", "W=num_warps", "--map", "S=num_stages"]
    assert main([*command, *names]) == 0 and main([*command, *names]) == 0
    assert measured(log) == [(64, 64, 8)]
