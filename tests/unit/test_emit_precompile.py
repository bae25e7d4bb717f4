"""Compiled kernels of an emitted package: made in a child without a device, named by no path, and nothing that a package needs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tilewright.best import BestEntry, BestFile, Pins, best_text
from tilewright.cli import main
from tilewright.emit import precompile as precompiling
from tilewright.emit.package import MANIFEST
from tilewright.emit.precompile import precompile_package
from tilewright.emit.write import write_package
from tilewright.errors import ExitCode, HostError
from tilewright.library import find_operator
from tilewright.target import named_target

TARGET = named_target("sm_90")


@pytest.fixture
def best(tmp_path: Path) -> Path:
    pytest.importorskip("triton")
    operator = find_operator("rms_norm")
    workload = operator.spec.workload("rows=16,cols=256")
    config = operator.space(workload, TARGET).default()
    source = operator.instantiate(workload, TARGET, config)
    entry = BestEntry(workload=workload, target=TARGET, config=config, median_us=1.0, pins=Pins(protocol="graph/1", source=source.hash))
    path = tmp_path / "best.jsonl"
    path.write_text(best_text([entry]))
    return path


def test_kernels_are_compiled_without_a_device(best: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    assert main(["emit", str(best), "-o", str(tmp_path / "out"), "--name", "kernels", "--precompile", "sm_90"]) == 0
    assert "not precompiled" not in capsys.readouterr().err
    folder = tmp_path / "out" / "kernels" / "_precompiled"
    assert [path.read_bytes()[:4] for path in folder.rglob("*.cubin")] == [b"\x7fELF"]
    texts = [path.read_text() for path in folder.rglob("*.json")]
    assert len(texts) == 3  # the manifest, and of the kernel what Triton says of it and what its key is made of
    if shutil.which("gcc"):
        assert "cuda_utils.so" in {path.name for path in folder.rglob("*.so")}
    assert not any(str(tmp_path) in text for text in texts)  # may be moved
    assert json.loads((folder / "manifest.json").read_text())["format"] == 2


def test_an_arch_without_records_is_named(best: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emit", str(best), "-o", str(tmp_path / "out"), "--precompile", "sm_80"]) == ExitCode.USAGE
    assert "no record is of that arch; did you mean 'sm_90'?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_child_that_dies_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompiling.sys, "executable", "/bin/false")
    with pytest.raises(HostError, match="ended with code 1"):
        precompile_package(tmp_path, [TARGET], "sm_90")


@pytest.mark.parametrize("signal", [KeyboardInterrupt, OSError("no more processes")])
def test_a_package_has_its_kernels_or_is_not_there(best: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signal: BaseException) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "out"
    emit = ["emit", str(best), "-o", str(out), "--name", "kernels"]

    def interrupted(*args: object, **named: object) -> None:
        raise signal

    with monkeypatch.context() as patched:
        patched.setattr(precompiling.subprocess, "run", interrupted)
        assert main([*emit, "--precompile", "sm_90"]) in (ExitCode.INTERRUPTED, ExitCode.HOST)
        assert list(out.iterdir()) == []
        assert main(emit) == 0
        (out / "kernels" / "mark").touch()
        assert main([*emit, "--precompile", "sm_90"]) in (ExitCode.INTERRUPTED, ExitCode.HOST)
        assert (out / "kernels" / "mark").exists() and [path.name for path in out.iterdir()] == ["kernels"]
    assert main([*emit, "--precompile", "sm_90"]) == 0
    assert (out / "kernels" / "_precompiled" / "manifest.json").exists()
    assert [path.name for path in out.iterdir()] == ["kernels"] and not (out / "kernels" / "mark").exists()


def test_an_interrupt_between_two_renames_leaves_the_older_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, renamed = tmp_path / "kernels", Path.rename
    write_package(folder, {MANIFEST: '{"generator": "tilewright 0"}', "old": ""})

    def stopping(path: Path, target: Path) -> Path:
        if Path(target) == folder and path.name == folder.name:
            raise KeyboardInterrupt
        return renamed(path, target)

    monkeypatch.setattr(Path, "rename", stopping)
    with pytest.raises(KeyboardInterrupt):
        write_package(folder, {"new": ""})
    assert [path.name for path in tmp_path.iterdir()] == ["kernels"] and (folder / "old").exists()


def test_an_empty_best_file_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "best.jsonl").write_text(best_text(()))
    assert BestFile(entries=()).text == ""
    assert main(["emit", str(tmp_path / "best.jsonl"), "-o", str(tmp_path / "out")]) == ExitCode.USAGE
