"""An emitted package: the same bytes for the same file, nothing of Tilewright in it, and its own test passes without Tilewright."""

from __future__ import annotations

import ast
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tilewright.best import BestFile, best_entries, best_text
from tilewright.canonical import sha256_text
from tilewright.cli import main
from tilewright.emit import Mode, emit_package
from tilewright.errors import ExitCode, UsageError
from tilewright.library import Operator, find_operators
from tilewright.log import write_log
from tilewright.record import Measurement, Racer, RaceRecord, Record, Status, VendorRecord
from tilewright.target import Target, Toolchain, named_target
from tilewright.template import Source

TARGET = named_target("sm_90")
TRITON = version("triton")  # a package refuses to run with another minor than it was tuned with
MINOR = ".".join(TRITON.split(".")[:2])
# Any of these on the path would hide that a package needs it.
FORBIDDEN = ("tilewright", "jinja2", "optuna", "msgspec", "rich")
SITE = f"""
import importlib.abc, sys

class Forbid(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {FORBIDDEN!r}:
            raise ImportError(f"an emitted package must not import {{name}}")

sys.meta_path.insert(0, Forbid())
"""


@pytest.fixture(scope="module")
def operators() -> dict[str, Operator]:
    return find_operators()


def record(operators: dict[str, Operator], name: str, parameters: str, us: float = 10.0, target: Target = TARGET, **changes: Any) -> Record:
    operator = operators[name]
    workload = operator.spec.workload(parameters)
    config = changes.pop("config", None) or operator.space(workload, target).default()
    source: Source = operator.instantiate(workload, target, config)
    fields: dict[str, Any] = {
        "session": "s",
        "trial": 0,
        "workload": workload,
        "target": target,
        "config": config,
        "status": Status.OK,
        "template": source.template_hash,
        "source": source.hash,
        "toolchain": Toolchain(triton=TRITON, driver="580.95.05"),
        "measurement": Measurement(protocol="graph/1", median_us=us, min_us=us, max_us=us),
    }
    return Record(**{**fields, **changes})


def small(operators: dict[str, Operator]) -> list[Record]:
    return [
        record(operators, "matmul", "M=64,N=64,K=64,dtype=float16"),
        record(operators, "matmul", "M=17,N=48,K=96,dtype=float16,b_layout=col"),
        record(operators, "rms_norm", "rows=16,cols=256"),
        record(operators, "softmax", "rows=5,cols=1000,dtype=float32"),
    ]


def emit(records: Sequence[Record], operators: dict[str, Operator], folder: Path, **options: Any) -> Path:
    return emit_package(BestFile(entries=best_entries(records)), operators, folder, name="kernels", **options).folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_package_passes_its_own_test_without_tilewright(operators: dict[str, Operator], tmp_path: Path) -> None:
    emit(small(operators), operators, tmp_path / "out", mode=Mode.STRICT)
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TILEWRIGHT", "TRITON"))}
    environment |= {"TRITON_INTERPRET": "1", "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "unittest", "-v", "kernels.test_kernels"]
    done = subprocess.run(command, cwd=tmp_path / "out", env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "skipped" not in done.stderr
    assert "matmul: 2 of 2 shapes checked" in done.stdout
    environment |= {"TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=tmp_path / "out", env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "torch sees no GPU here; with TRITON_INTERPRET=1" in done.stderr
    probe = subprocess.run([sys.executable, "-c", "import tilewright"], env=environment, capture_output=True, text=True, check=False)
    assert "must not import tilewright" in probe.stderr  # the hook is at work


def test_the_same_records_in_any_order_give_the_same_bytes(operators: dict[str, Operator], tmp_path: Path) -> None:
    records = small(operators) + [record(operators, "matmul", "M=64,N=64,K=64,dtype=float16", us=30.0)]
    first = contents(emit(records, operators, tmp_path / "a"))
    assert contents(emit(records, operators, tmp_path / "a")) == first  # in place of the older one
    for seed in range(3):
        shuffled = random.Random(seed).sample(records, len(records))
        assert contents(emit(shuffled, operators, tmp_path / f"b{seed}")) == first
    assert not any(b"2026" in text or str(tmp_path).encode() in text for text in first.values())


def test_nothing_but_torch_and_triton_is_imported(operators: dict[str, Operator], tmp_path: Path) -> None:
    folder = emit(small(operators), operators, tmp_path)
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom) and not node.level
                else []
            )
            for name in names:
                root = name.partition(".")[0]
                assert root in sys.stdlib_module_names or root in ("torch", "triton"), f"{path.name} imports {name}"


def test_the_manifest_pins_what_was_emitted(operators: dict[str, Operator], tmp_path: Path) -> None:
    records = small(operators)
    folder = emit(records, operators, tmp_path, mode=Mode.STRICT, triton=MINOR)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["mode"] == "strict"
    assert manifest["triton"] == [MINOR]
    assert manifest["drivers"] == ["580"]
    assert manifest["protocols"] == ["graph/1"]
    assert manifest["best_sha256"] == sha256_text(best_text(best_entries(records)))
    assert manifest["targets"][0]["sm_count"] == 132
    sources = {name: schedule["source"] for part in manifest["operators"].values() for name, schedule in part["schedules"].items()}
    assert set(sources.values()) == {record.source for record in records}
    for name, source in sources.items():
        assert sha256_text((folder / "_schedules" / f"{name}.py").read_text()) == source
    assert set(manifest["files"]) | {"manifest.json"} == set(contents(folder))


def test_functions_are_typed_and_scalars_have_their_tuned_values(operators: dict[str, Operator], tmp_path: Path) -> None:
    text = (emit(small(operators), operators, tmp_path) / "__init__.py").read_text()
    assert "def rms_norm(x: torch.Tensor, w: torch.Tensor, eps: float = 1e-06, *, out: torch.Tensor | None = None) -> torch.Tensor:" in text
    assert "def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:" in text


def test_a_vendor_serves_where_it_was_faster_and_only_if_asked(operators: dict[str, Operator], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    fast = record(operators, "matmul", "M=64,N=64,K=64,dtype=float16", us=10.0)
    slow = record(operators, "matmul", "M=64,N=64,K=128,dtype=float16", us=30.0)
    vendors = [
        VendorRecord(
            session="s",
            name="torch.mm",
            workload=line.workload,
            target=TARGET,
            status=Status.OK,
            measurement=Measurement(protocol="graph/1", median_us=20.0, min_us=20.0, max_us=20.0),
        )
        for line in (fast, slow)
    ]
    write_log(log, [fast, slow, *vendors])
    assert main(["emit", str(log), "-o", str(tmp_path / "plain"), "--name", "kernels", "--triton", MINOR]) == 0
    assert main(["emit", str(log), "-o", str(tmp_path / "vendors"), "--name", "kernels", "--triton", MINOR, "--vendors"]) == 0
    tables = {name: _tables(tmp_path / name / "kernels") for name in ("plain", "vendors")}
    assert [entry["vendor"] for entry in tables["plain"]["matmul"]["entries"]] == ["", ""]
    assert {entry["workload"]["K"]: (entry["vendor"], entry["median_us"]) for entry in tables["vendors"]["matmul"]["entries"]} == {
        64: ("", 10.0),
        128: ("torch.mm", 20.0),
    }


def test_a_race_outweighs_what_the_vendor_took_by_itself(operators: dict[str, Operator], tmp_path: Path) -> None:
    lines: list[Any] = []
    for k, alone, ratio in ((64, 20.0, 0.97), (128, 5.0, 1.04)):
        won = record(operators, "matmul", f"M=64,N=64,K={k},dtype=float16", us=10.0)
        time = Measurement(protocol="graph/1", median_us=alone, min_us=alone, max_us=alone)
        racers = [Racer(config=won.config, source=won.source, median_us=10.0, ratio=1.0), Racer(vendor="torch.mm", median_us=10.0 * ratio, ratio=ratio)]
        lines += [
            won,
            VendorRecord(session="s", name="torch.mm", workload=won.workload, target=TARGET, status=Status.OK, measurement=time),
            RaceRecord(session="s", workload=won.workload, target=TARGET, protocol="graph/1", racers=racers, winner=0, rounds=9),
        ]
    write_log(tmp_path / "log.jsonl", lines)
    assert main(["best", str(tmp_path / "log.jsonl"), "-o", str(tmp_path / "best.jsonl")]) == 0
    for name in ("log", "best"):
        assert main(["emit", str(tmp_path / f"{name}.jsonl"), "-o", str(tmp_path / name), "--name", "kernels", "--triton", MINOR, "--vendors"]) == 0
        entries = _tables(tmp_path / name / "kernels")["matmul"]["entries"]
        assert {entry["workload"]["K"]: (entry["vendor"], entry["median_us"]) for entry in entries} == {64: ("torch.mm", 9.7), 128: ("", 10.0)}


def _tables(folder: Path) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    exec((folder / "_table.py").read_text(), scope)
    tables: dict[str, Any] = scope["TABLES"]
    return tables


@pytest.mark.parametrize("name", ["../evil", "class", "json", "torch", "a-b", ""])
def test_a_package_needs_a_name_of_its_own(operators: dict[str, Operator], tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="--name"):
        emit_package(BestFile(entries=best_entries(small(operators))), operators, tmp_path / "out", name=name)
    assert not (tmp_path / "out").exists()


def test_what_is_no_package_of_ours_is_not_replaced(operators: dict[str, Operator], tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "mine.py").write_text("kept = True\n")
    with pytest.raises(UsageError, match="was not emitted by Tilewright"):
        emit(small(operators), operators, tmp_path)
    assert contents(tmp_path / "kernels") == {"mine.py": b"kept = True\n"}


def test_a_failed_write_leaves_the_older_package(operators: dict[str, Operator], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(emit(small(operators), operators, tmp_path))
    real = Path.write_text

    def full(path: Path, *args: Any, **options: Any) -> int:
        if path.name == "_table.py":
            raise OSError(28, "No space left on device")
        return real(path, *args, **options)

    monkeypatch.setattr(Path, "write_text", full)
    best = tmp_path / "best.jsonl"
    real(best, best_text(best_entries(small(operators)[:1])))
    assert main(["emit", str(best), "-o", str(tmp_path), "--name", "kernels"]) == ExitCode.HOST
    assert contents(tmp_path / "kernels") == before
    assert {path.name for path in tmp_path.iterdir()} == {"kernels", "best.jsonl"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("from tilewright.emit.plan import Mode", "cannot stand in an emitted package"),
        ("from tilewright import errors", "cannot stand in an emitted package"),
        ("import numpy", "imports 'numpy'"),
        ("from . import other", "relative import"),
        ("from tilewright.record import Record", "imports 'msgspec'"),
    ],
)
def test_a_spec_that_needs_more_is_refused(operators: dict[str, Operator], tmp_path: Path, line: str, said: str) -> None:
    from tilewright.emit.vendored import private_modules, stand_alone

    spec = operators["softmax"].folder / "spec.py"
    with pytest.raises(UsageError, match=said):
        private_modules(stand_alone(f"{line}\n{spec.read_text()}", spec, prefix="._tw.")[1])


def test_a_workload_set_may_be_required(operators: dict[str, Operator], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = tmp_path / "best.jsonl"
    best.write_text(best_text(best_entries(small(operators))))
    arguments = ["emit", str(best), "-o", str(tmp_path / "out"), "--triton", MINOR, "--require"]
    assert main([*arguments, "softmax:rows=5,cols=1000,dtype=float32"]) == 0
    assert main([*arguments, "matmul:smoke"]) == ExitCode.FAILED
    assert "matmul:K=96,M=17,N=48,dtype=float16,a_layout=row,b_layout=row has no entry; nearest:" in capsys.readouterr().err


@pytest.mark.parametrize(("target", "prefix"), [(TARGET.interpreted(), "&& TRITON_INTERPRET=1 python"), (TARGET, "&& python")])
def test_the_test_command_says_where_the_interpreter_is_needed(
    operators: dict[str, Operator], tmp_path: Path, capsys: pytest.CaptureFixture[str], target: Target, prefix: str
) -> None:
    best = tmp_path / "best.jsonl"
    # Sources are rendered for the device that the interpreter stands in for.
    chosen = record(operators, "softmax", "rows=5,cols=1000,dtype=float32")
    best.write_text(best_text(best_entries([msgspec.structs.replace(chosen, target=target)])))
    assert main(["emit", str(best), "-o", str(tmp_path / "out"), "--triton", MINOR]) == ExitCode.OK
    assert prefix in capsys.readouterr().out
