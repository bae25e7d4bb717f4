"""Names of other tools for our knobs, and `triton.Config` lists, vLLM's files and tables made with them."""

from __future__ import annotations

import ast
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from tilewright.best import best_entries, best_text
from tilewright.cli import main
from tilewright.errors import UsageError
from tilewright.interchange.chosen import Chosen, chosen_records
from tilewright.interchange.names import Names
from tilewright.interchange.rows import COLUMNS
from tilewright.interchange.triton_configs import triton_snippet
from tilewright.interchange.vllm import parse_set, vllm_files
from tilewright.log import write_log
from tilewright.record import Line, Measurement, Record, Resources, SessionEnd, SessionStart, Status, VendorRecord
from tilewright.target import NAMED_TARGETS, Target, Toolchain
from tilewright.workload import Workload

H200 = NAMED_TARGETS["sm_90"]
FAST = {"schedule": "tma", "tile_m": [4, 16], "tile_k": [2, 4, 32], "num_warps": 4, "num_stages": 3, "order": ["n", "m"], "masked": True}
SLOW = {"schedule": "tma", "tile_m": [2, 32], "tile_k": [1, 8, 32], "num_warps": 8, "num_stages": 2, "order": ["m", "n"], "masked": False}
OTHER = {"schedule": "pointers", "tile_m": [4, 16], "num_warps": 2}


def workload(m: int = 64, **dims: int) -> Workload:
    return Workload(operator="op", dims={"M": m, **dims}, dtypes={"dtype": "bfloat16"})


def record(config: dict[str, Any], us: float | None, *, trial: int = 0, of: Workload | None = None, target: Target = H200, **changes: Any) -> Record:
    measurement = None if us is None else Measurement(protocol="graph/1", median_us=us, min_us=us, max_us=us)
    status = Status.OK if us is not None else Status.COMPILE_ERROR
    toolchain = Toolchain(triton="3.6.0", driver="580.1")
    fields = {"session": "s", "trial": trial, "status": status, "measurement": measurement, "toolchain": toolchain, **changes}
    return Record(workload=of or workload(), target=target, config=config, **fields)


def log(tmp_path: Path, *records: Record | VendorRecord, name: str = "log.jsonl") -> Path:
    start = SessionStart(session="s", started_at="", tilewright="", operator="op", workloads=[], target=H200, toolchain=Toolchain())
    path = tmp_path / name
    end = SessionEnd(session="s", ended_at="", reason="budget", trials=sum(isinstance(line, Record) for line in records))
    lines: list[Line] = [start, *records, end]
    write_log(path, lines)
    return path


class Config:
    """Stands in for `triton.Config`: what a snippet may call."""

    def __init__(self, kwargs: dict[str, object], num_warps: int = 4, num_stages: int = 3, num_ctas: int = 1, maxnreg: int | None = None) -> None:
        self.all = {**kwargs, "num_warps": num_warps, "num_stages": num_stages, "num_ctas": num_ctas, "maxnreg": maxnreg}
        self.kwargs = kwargs


def run_snippet(text: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Config]]:
    triton = ModuleType("triton")
    triton.Config = Config  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", triton)
    names: dict[str, Any] = {}
    exec(compile(text, "configs.py", "exec"), names)  # our own output, for these records
    return {name: value for name, value in names.items() if isinstance(value, list)}


def test_a_snippet_has_one_list_for_each_kernel_and_lifts_the_options_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [record(FAST, 5.0), record(SLOW, 9.0, trial=1), record(FAST, 8.0, of=workload(128), trial=2), record(OTHER, 3.0, of=workload(256), trial=3)]
    text = triton_snippet(chosen_records(lines), Names.parse([]), "From a log.")
    lists = run_snippet(text, monkeypatch)
    assert set(lists) == {"OP_TMA_CONFIGS", "OP_POINTERS_CONFIGS"}
    (fast,) = lists["OP_TMA_CONFIGS"]  # the best of two workloads, once
    assert fast.kwargs == {"tile_m_0": 4, "tile_m_1": 16, "tile_k_0": 2, "tile_k_1": 4, "tile_k_2": 32, "order": ("n", "m"), "masked": True}
    assert (fast.all["num_warps"], fast.all["num_stages"]) == (4, 3)
    assert "# M=64,dtype=bfloat16: 5 us on NVIDIA H200 (published limits) (graph/1, Triton 3.6)\n    # M=128,dtype=bfloat16: 8 us" in text


def test_top_gives_the_next_fastest_too_and_leaves_out_what_was_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {**SLOW, "num_warps": 2}
    lines = [record(SLOW, 9.0), record(FAST, 5.0, trial=1), record(wrong, 1.0, trial=2), record(wrong, None, trial=3, status=Status.WRONG_RESULT)]
    (configs,) = run_snippet(triton_snippet(chosen_records(lines, top=5), Names.parse([]), ""), monkeypatch).values()
    assert [config.all["num_warps"] for config in configs] == [4, 8]


def test_parts_of_splits_get_the_names_given(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names.parse(["tile_m=BLOCK_M", "tile_k.1=SPLIT_K", "tile_k.2=BLOCK_K", "masked=", "schedule=KIND"])
    (configs,) = run_snippet(triton_snippet(chosen_records([record(FAST, 5.0)]), names, ""), monkeypatch).values()
    assert configs[0].kwargs == {"KIND": "tma", "BLOCK_M": 16, "SPLIT_K": 4, "BLOCK_K": 32, "order": ("n", "m")}


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (["tile_m"], "is not KNOB=NAME"),
        (["tile_m=BLOCK-M"], "is not KNOB=NAME"),
        (["tile_m=__import__('os')"], "is not KNOB=NAME"),
        (["="], "is not KNOB=NAME"),
        (["tile_m=lambda"], "a word of Python's own"),
        (["tile_m=A", "tile_k=A"], "A stands for something already"),
        (["tile_n=A"], "there is no 'tile_n' here"),
        (["tile_m.2=A"], "has no part 2; its parts are 0 to 1"),
        (["tile_m=masked"], "masked would stand for two things"),
        (["tile_m.0=num_warps", "num_warps="], None),
        (["order=num_warps", "num_warps="], "num_warps=.*must be an integer"),
    ],
)
def test_names_that_do_not_fit_say_why(rules: list[str], said: str | None) -> None:
    if said is None:
        assert "num_warps=4" in triton_snippet(chosen_records([record(FAST, 5.0)]), Names.parse(rules), "")
        return
    with pytest.raises(UsageError, match=said):
        triton_snippet(chosen_records([record(FAST, 5.0)]), Names.parse(rules), "")


def test_text_from_a_log_reaches_a_snippet_as_data_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    attack = "x'}); raise SystemExit('run')  #\n\"\"\"\nraise SystemExit('run')"
    config: dict[str, Any] = {"schedule": attack, attack: attack, "{{ 7*7 }}": "../../etc/passwd", "num_warps": 4}
    target = msgspec.convert({**H200.to_json(), "name": attack}, Target)
    text = triton_snippet(chosen_records([record(config, 5.0, target=target)]), Names.parse([]), attack)
    tree = ast.parse(text)
    assert [type(node) for node in tree.body] == [ast.Expr, ast.Import, ast.Assign]
    (configs,) = run_snippet(text, monkeypatch).values()
    assert configs[0].kwargs == {attack: attack, "{{ 7*7 }}": "../../etc/passwd"}


def moe(m: int, config: dict[str, Any] | None = None, *, target: Target = H200, dtype: str = "bfloat16", **dims: int) -> Chosen:
    shape = Workload(operator="moe", dims={"M": m, "E": 8, "N": 7168, **dims}, dtypes={"dtype": dtype})
    made = config or {"tile_m": [4, 16], "tile_n": [8, 64], "tile_k": [8, 128], "group_m": 8, "num_warps": 4, "num_stages": 3}
    return Chosen(workload=shape, target=target, config=made, median_us=1.0, protocol="graph/1")


TO_VLLM = ["tile_m=BLOCK_SIZE_M", "tile_n=BLOCK_SIZE_N", "tile_k=BLOCK_SIZE_K", "group_m=GROUP_SIZE_M"]


def files(chosen: Sequence[Chosen], names: Sequence[str] = TO_VLLM, given: Sequence[str] = ()) -> dict[str, Any]:
    return {name: json.loads(text) for name, text in vllm_files(chosen, Names.parse(names), parse_set(given)).items()}


def test_vllm_files_are_named_and_filled_as_vllm_looks_them_up() -> None:
    a100 = msgspec.convert({**H200.to_json(), "name": "NVIDIA A100-SXM4-80GB"}, Target)
    made = files([moe(64), moe(1), moe(4096, target=a100)])
    config = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 8, "num_warps": 4, "num_stages": 3}
    assert made == {
        "E=8,N=7168,device_name=NVIDIA_H200.json": {"1": config, "64": config},
        "E=8,N=7168,device_name=NVIDIA_A100-SXM4-80GB.json": {"4096": config},
    }
    assert list(made["E=8,N=7168,device_name=NVIDIA_H200.json"]) == ["1", "64"]
    nvl = msgspec.convert({**H200.to_json(), "name": "NVIDIA H200 NVL"}, Target)
    assert [*files([moe(1, target=nvl)])] == ["E=8,N=7168,device_name=NVIDIA_H200.json"]  # as vLLM itself folds them


def test_what_vllm_needs_and_an_operator_lacks_can_be_said() -> None:
    shape = Workload(operator="matmul", dims={"rows": 16, "N": 512, "K": 64}, dtypes={"dtype": "float8_e4m3fn"})
    config = {"tile_m": [1, 16], "tile_n": [8, 64], "tile_k": [1, 64], "num_warps": 4, "num_stages": 3, "split_k": 1}
    one = Chosen(workload=shape, target=H200, config=config, median_us=1.0, protocol="graph/1")
    names = [*TO_VLLM[:3], "split_k=SPLIT_K", "rows=M"]
    made = files([one], names, ["E=8", "GROUP_SIZE_M=1", "dtype=fp8_w8a8", "block_shape=[128, 128]"])
    ((name, entries),) = made.items()
    assert name == "E=8,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    assert entries["16"]["GROUP_SIZE_M"] == 1
    assert entries["16"]["SPLIT_K"] == 1
    assert [*files([moe(1, dtype="float32")])] == ["E=8,N=7168,device_name=NVIDIA_H200,dtype=float32.json"]


@pytest.mark.parametrize(
    ("chosen", "names", "given", "said"),
    [
        (
            [Chosen(workload=workload(), target=H200, config=FAST, median_us=1.0, protocol="p")],
            [],
            [],
            r"no dim E; say which stands for it: --map DIM=E, or --set E=",
        ),
        ([moe(1)], TO_VLLM[:3], [], r"has no GROUP_SIZE_M; its knobs are .*--map KNOB=GROUP_SIZE_M"),
        ([moe(1, {**moe(1).config, "split_k": 4})], TO_VLLM, [], r"has split_k, which vLLM's kernel does not; .*leave the knob out \(--map KNOB=\)"),
        ([moe(1, K=1), moe(1, K=2)], TO_VLLM, [], r"would both be M=1 of .*choose one with -w"),
        ([moe(1, dtype="int8")], TO_VLLM, [], r"say which: --set dtype="),
        ([moe(1)], TO_VLLM, ["F=1"], r"is not NAME=VALUE with a name of: E, N"),
        ([moe(1)], TO_VLLM, ["E=../x"], r"E must be an integer"),
        ([moe(1)], TO_VLLM, ["dtype=../../x"], r"vLLM has fp8_w8a8"),
        ([moe(1)], TO_VLLM, ["block_shape=/etc"], r"of the form \[128,128\]"),
        ([moe(1, {**moe(1).config, "num_warps": "4"})], TO_VLLM, [], r"num_warps='4' must be an integer"),
        ([moe(1, target=msgspec.convert({**H200.to_json(), "name": "../../etc/x"}, Target))], TO_VLLM, [], r"cannot be part of a file's name"),
    ],
)
def test_an_operator_that_does_not_fit_vllm_is_told_what_is_missing(chosen: list[Chosen], names: list[str], given: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        files(chosen, names, given)


def test_a_table_has_a_row_for_each_record_and_the_same_columns_for_every_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vendor = VendorRecord(session="s", name="torch.mm", workload=workload(), target=H200, status=Status.OK, measurement=record(FAST, 4.0).measurement)
    needs = Resources(shared_memory_bytes=4096, registers=40, num_warps=4)
    failed = record(OTHER, None, trial=1, of=workload(128), message='a "quoted", two-line\nmessage')
    path = log(tmp_path, vendor, record(FAST, 5.0, resources=needs, default=True), failed)
    assert main(["log", "export", str(path), "--format", "csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines(keepends=True)))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["kind"], row["vendor"], row["status"], row["median_us"]) for row in rows] == [
        ("vendor", "torch.mm", "ok", "4.0"),
        ("trial", "", "ok", "5.0"),
        ("trial", "", "compile_error", ""),
    ]
    assert rows[2]["message"] == 'a "quoted", two-line\nmessage'
    assert json.loads(rows[1]["config"]) == FAST
    assert (rows[1]["registers"], rows[1]["spill_bytes"], rows[1]["default"], rows[1]["schedule"]) == ("40", "", "true", "tma")
    assert main(["log", "export", str(path), "--format", "csv", "--wide", "-w", "M=128"]) == 0
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines(keepends=True))
    assert tuple(row) == (*COLUMNS, "param.M", "param.dtype", "knob.num_warps", "knob.schedule", "knob.tile_m")
    assert (row["param.M"], row["knob.tile_m"]) == ("128", "4x16")


def test_the_command_writes_where_told_and_overwrites_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path, record(FAST, 5.0), record(SLOW, 9.0, of=workload(128), trial=1))
    best = tmp_path / "best.jsonl"
    best.write_text(best_text(best_entries([record(FAST, 5.0)])))
    out = tmp_path / "made" / "configs.py"
    export = ["log", "export", str(path), "--format", "triton", "-o", str(out)]
    assert main(export) == 0
    first = out.read_text()
    assert main(export) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main(["log", "export", str(best), "--format", "triton", "-o", str(out), "--overwrite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"format": "triton", "files": [str(out)]}
    assert out.read_text() != first
    assert out.read_text().count("triton.Config(") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "csv", "--map", "a=b"], "--map has no meaning for --format csv"),
        (["--format", "triton", "--set", "E=8"], "--set has no meaning for --format triton"),
        (["--format", "triton", "--wide"], "--wide has no meaning"),
        (["--format", "t4", "--top", "3"], "--top has no meaning"),
        (["--format", "triton", "-w", "M=65"], "nothing of M=65 is here; there are: op:M=128,dtype=bfloat16 on NVIDIA H200"),
        (["--format", "triton", "--target", "sm_80"], "nothing of sm_80 is here"),
        (["--format", "t4"], "name a folder with -o"),
        (["--format", "triton", "--json"], "--json has no meaning"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(tmp_path: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path, record(FAST, 5.0), record(SLOW, 9.0, of=workload(128), trial=1))
    assert main(["log", "export", str(path), *options]) == 2
    assert said in capsys.readouterr().err


def test_a_best_file_has_no_records_to_tabulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = tmp_path / "best.jsonl"
    best.write_text(best_text(best_entries([record(FAST, 5.0)])))
    for options, said in ((["csv"], "give the logs"), (["t4"], "give the logs"), (["triton", "--top", "2"], "is a best file")):
        assert main(["log", "export", str(best), "--format", *options]) == 2
        assert said in capsys.readouterr().err
