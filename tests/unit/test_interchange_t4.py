"""T4 files: written by the community's schema, read back to the same recording, and read from other tuners."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tilewright.cli import main
from tilewright.errors import LogDamaged, UsageError
from tilewright.importers import import_kernel_tuner, import_logs, import_t4
from tilewright.interchange.t4 import milliseconds, t4_files
from tilewright.lint import lint
from tilewright.log import TuningLog, write_log
from tilewright.record import Anchor, Check, KnobInfo, Line, Measurement, Record, RecordedSpace, Resources, Status, VendorRecord
from tilewright.recorded import Recording
from tilewright.target import NAMED_TARGETS, Toolchain
from tilewright.workload import Workload

TARGET = NAMED_TARGETS["sm_90"]
# What the schema asks of a file: AutoTuningAssociation/autotuning_methodology, schemas/T4.json, 1.1.0.
REQUIRED = {"configuration", "times", "invalidity", "correctness"}
WORDS = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}


def workload(m: int) -> Workload:
    return Workload(operator="op", dims={"M": m}, dtypes={"dtype": "bfloat16"}, layout={"b": "col"})


def recorded(m: int, config: dict[str, Any], us: float | None, status: Status = Status.OK, **changes: Any) -> Record:
    measurement = None
    if us is not None:
        anchor = Anchor(kind="compute", median_us=91.392, nominal_us=99.263, samples=4)
        times = [us * 1.01, us, us * 0.99]
        measurement = Measurement(protocol="graph/1", median_us=us, min_us=min(times), max_us=max(times), cv=0.01, samples=3, times_us=times, anchor=anchor)
    return Record(trial=0, workload=workload(m), target=TARGET, config=config, status=status, measurement=measurement, **changes)


def recording() -> list[Line]:
    chain = Toolchain(triton="3.6.0", torch="2.11.0")
    check = Check(rel_norm=1e-3, max_error=0.1, rel_norm_allowed=1e-2, max_error_allowed=1.0)
    needs = Resources(shared_memory_bytes=40960, registers=54, spill_bytes=0, num_warps=4)
    knobs = [KnobInfo(name="tile", candidates=[[4, 16], [2, 32]]), KnobInfo(name="mode", candidates=["a", "b"]), KnobInfo(name="extra", candidates=[1, 2])]
    records = []
    for m in (64, 128):
        records += [
            recorded(m, {"tile": [4, 16], "mode": "a"}, 7.123, toolchain=chain, check=check, resources=needs, default=True, source="ab" * 32, build_s=1.5),
            recorded(m, {"tile": [4, 16], "mode": "b", "extra": 1}, m / 3, toolchain=chain, template="cd" * 32),
            recorded(m, {"tile": [4, 16], "mode": "b", "extra": 2}, None, Status.COMPILE_ERROR, message="no: {{ x }}\nend"),
            recorded(m, {"tile": [2, 32], "mode": "a"}, 0.5, Status.IMPOSSIBLE, toolchain=chain, message="too fast"),
            recorded(m, {"tile": [2, 32], "mode": "b", "extra": 1}, None, Status.WRONG_RESULT, toolchain=chain, message="wrong", check=check),
            recorded(m, {"tile": [2, 32], "mode": "b", "extra": 2}, 99.0, Status.CUT, toolchain=chain, message="hopeless"),
        ]
    vendor = VendorRecord(name="torch.mm", workload=workload(64), target=TARGET, status=Status.OK, measurement=records[0].measurement, toolchain=chain)
    return [RecordedSpace(operator="op", knobs=knobs, note="made up"), vendor, *records]


def told(line: Record | VendorRecord) -> Record | VendorRecord:
    return msgspec.structs.replace(line, session="", **({"trial": 0} if isinstance(line, Record) else {}))


def content(lines: list[Line]) -> dict[str, Any]:
    """What a recording knows, without who wrote it."""
    known = Recording(lines)
    return {
        "space": (known.space_line.knobs, known.space_line.complete, known.space_line.note),
        "about": (known.operator, known.target, known.toolchain, known.protocol),
        "records": {
            key: [told(known.record(key, config)) for config in known.space(workload).enumerate()] for key, workload in sorted(known.workloads.items())
        },
        "vendors": {key: [told(vendor) for vendor in known.vendors(workload)] for key, workload in sorted(known.workloads.items())},
    }


def written(tmp_path: Path, lines: list[Line]) -> list[Path]:
    paths = []
    for file in t4_files(lines):
        paths.append(tmp_path / file.name)
        paths[-1].write_text(file.text)
    return paths


def test_what_we_write_reads_back_to_the_same_recording(tmp_path: Path) -> None:
    paths = written(tmp_path, recording())
    assert [path.name for path in paths] == [
        "op-M64-dtypebfloat16-bcol-nvidia_h200_published_limits.json",
        "op-M128-dtypebfloat16-bcol-nvidia_h200_published_limits.json",
    ]
    back = import_logs(paths, "t4")
    assert content(back) == content(recording())
    log = tmp_path / "back.jsonl"
    write_log(log, back)
    assert [finding.rule for finding in lint(TuningLog(log).read())] == []


def test_a_file_meets_the_schema(tmp_path: Path) -> None:
    document = json.loads(written(tmp_path, recording())[0].read_text())
    assert document["schema_version"] == "1.1.0"
    metadata = document["metadata"]
    assert (metadata["compute_api"], metadata["timeunit"], metadata["autotuner"]) == ("CUDA", "milliseconds", "Tilewright")
    assert all(isinstance(metadata[name], str) for name in ("platform", "device", "autotuner_version"))
    for result in document["results"]:
        assert set(result) >= REQUIRED
        assert result["invalidity"] in WORDS
        assert result["correctness"] == (result["invalidity"] == "correct")
        assert result["objectives"] == ["time"]
        assert all(isinstance(item["name"], str) and isinstance(item["unit"], str) and item["value"] is not None for item in result["measurements"])
        assert all(isinstance(time, float) for time in result["times"]["runtimes"])
    times = [result["measurements"][0]["value"] for result in document["results"]]
    assert times[0] == pytest.approx(7.123e-3 * 99.263 / 91.392, rel=1e-4)  # ms, at the anchor's nominal speed
    assert times[2:] == ["CompilationFailedConfig", "InvalidConfig", "InvalidConfig", "RuntimeFailedConfig"]


@pytest.mark.parametrize("us", [43553.86238098144, 0.1 + 0.2, 1e-3, 123456789.123, 5.0])
def test_milliseconds_move_the_point(us: float) -> None:
    assert milliseconds(us) * 1000 == pytest.approx(us, rel=1e-15)
    assert str(milliseconds(43.553)) == "0.043553"


def test_a_search_without_a_recorded_space_gives_what_was_seen(tmp_path: Path) -> None:
    records = [line for line in recording() if isinstance(line, Record) and line.workload == workload(64)]
    again = msgspec.structs.replace(records[0], measurement=msgspec.structs.replace(records[0].measurement, median_us=6.0, min_us=6.0))
    failed = msgspec.structs.replace(records[0], status=Status.CRASH, measurement=None, message="bang")
    other = recorded(64, {"tile": [1, 64], "mode": "a"}, 1.0)
    other = msgspec.structs.replace(other, measurement=msgspec.structs.replace(other.measurement, protocol="events/1"))
    (file,) = t4_files([*records, again, failed, other])
    assert (file.results, file.passed_over) == (6, 1)
    path = tmp_path / "one.json"
    path.write_text(file.text)
    space = next(line for line in import_t4(path) if isinstance(line, RecordedSpace))
    assert [(knob.name, knob.candidates) for knob in space.knobs] == [("tile", [[4, 16], [2, 32]]), ("mode", ["a", "b"]), ("extra", [1, 2])]
    assert not space.complete
    best = min(record.measurement.median_us for record in import_t4(path) if isinstance(record, Record) and record.measurement and record.status is Status.OK)
    assert best == 6.0


def test_an_edited_file_is_refused(tmp_path: Path) -> None:
    (path, _) = written(tmp_path, recording())
    good = json.loads(path.read_text())
    for edit, said in (
        (lambda result: result["measurements"][0].update(value=0.001), r"result 1: its time is 1.0 us, and that of its 'tilewright' object 7.7"),
        (lambda result: result.update(invalidity="compile"), r"it says 'compile', and its 'tilewright' object ok"),
        (lambda result: result["tilewright"].update(surprise=1), r"result 1: its 'tilewright' object: .*surprise"),
        (lambda result: result["tilewright"].update(status="good"), r"its 'tilewright' object: .*good"),
    ):
        document = json.loads(json.dumps(good))
        edit(document["results"][0])
        path.write_text(json.dumps(document))
        with pytest.raises(LogDamaged, match=said):
            import_t4(path)


def foreign(path: Path, results: list[dict[str, Any]], **metadata: Any) -> Path:
    document = {"schema_version": "1.0.0", "results": results, **({"metadata": metadata} if metadata else {})}
    text = json.dumps(document)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def result(config: dict[str, Any], value: Any, word: str = "correct", *, unit: str = "ms", objective: str = "time", **changes: Any) -> dict[str, Any]:
    return {
        "configuration": config,
        "times": {"compilation": 250.0, "runtimes": [1.0, 2.0]},
        "invalidity": word,
        "correctness": 1,
        "objectives": [objective],
        "measurements": [{"name": "GFLOP/s", "value": 3.0, "unit": ""}, {"name": objective, "value": value, "unit": unit}],
        **changes,
    }


def test_a_file_of_kernel_tuner_becomes_a_recording(tmp_path: Path) -> None:
    results = [
        result({"b": 64, "f": 1}, 1.5),
        result({"b": 16, "f": 1}, "CompilationFailedConfig", "compile"),
        result({"b": 16, "f": 0}, "RuntimeFailedConfig", "runtime"),
        result({"b": 32, "f": 0}, "InvalidConfig", "constraints"),
        result({"b": 32, "f": 1}, 2.0, correctness=0),
        result({"b": 64, "f": 0}, 2.0, "timeout"),
    ]
    lines = import_t4(foreign(tmp_path / "A100_T4.json.gz", results))
    records = [line for line in lines if isinstance(line, Record)]
    first = records[0].measurement
    assert first is not None
    assert (first.median_us, first.min_us, first.max_us, first.samples, records[0].build_s) == (1500.0, 1000.0, 2000.0, 2, 0.25)
    assert [record.status for record in records[1:]] == [
        Status.COMPILE_ERROR,
        Status.LAUNCH_ERROR,
        Status.OUT_OF_RESOURCES,
        Status.WRONG_RESULT,
        Status.RUN_TIMEOUT,
    ]
    known = Recording(lines)
    assert (known.operator, known.target.name) == ("A100_T4", "unknown device")
    assert [(knob.name, list(knob.values)) for knob in known.space(records[0].workload).knobs] == [("b", [16, 32, 64]), ("f", [0, 1])]
    named = import_t4(tmp_path / "A100_T4.json.gz", operator="conv", workload="N0=4096", target="sm_80")
    assert Recording(named).target == NAMED_TARGETS["sm_80"]
    assert [*Recording(named).workloads] == ["conv:N0=4096"]


@pytest.mark.parametrize(
    ("item", "metadata", "us"),
    [
        (result({"b": 1}, 2.5, objective="TotalDuration", unit="milliseconds"), {}, 2500.0),
        (result({"b": 1}, 2.5, objective="TotalDuration", unit=""), {"timeunit": "microseconds"}, 2.5),
        (result({"b": 1}, 2500, unit="ns"), {"timeunit": "seconds"}, 2.5),
        (result({"b": 1}, 2.5, objective="my_time", unit="us"), {"timeunit": "miliseconds", "device": "AMD Radeon"}, 2.5),
        (result({"b": 1}, 9.0, objective="score", unit=""), {}, 1500.0),  # no time by name: the mean of the runtimes
    ],
)
def test_times_of_other_tuners_in_their_units(tmp_path: Path, item: dict[str, Any], metadata: dict[str, Any], us: float) -> None:
    (record,) = (line for line in import_t4(foreign(tmp_path / "x.json", [item], **metadata)) if isinstance(line, Record))
    assert record.measurement is not None
    assert record.measurement.median_us == pytest.approx(us)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({}, "result 1: 'configuration' is missing"),
        (result({"b": 1}, 1.0, "odd"), "invalidity 'odd' is none of T4's"),
        (result({"b": None}, 1.0), "parameter b=None must be a number, a word"),
        (result({"b": {"__class__": 1}}, 1.0), "must be a number, a word"),
        (result({"{{ b }}": 1}, 1.0), "is no plain name"),
        (result({"b": 1}, -1.0), "is -1.0, no time"),
        (result({"b": 1}, 1.0, unit="fortnights"), "has unit 'fortnights'"),
        (result({"b": 1}, 0.5, objective="score", unit="", times={}), "objective 'score' is no time"),
    ],
)
def test_what_is_no_t4_file_names_the_result(tmp_path: Path, item: dict[str, Any], said: str) -> None:
    with pytest.raises(LogDamaged, match=said):
        import_t4(foreign(tmp_path / "x.json", [item]))


@pytest.mark.parametrize(("text", "said"), [("[]", "the file"), ("{}", "'results' is missing"), ('{"results": []}', "has no results"), ("{", "the file")])
def test_what_is_no_t4_file_at_all(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(LogDamaged, match=said):
        import_t4(path)


def test_files_that_are_not_one_recording(tmp_path: Path) -> None:
    first, second = written(tmp_path, recording())
    with pytest.raises(UsageError, match="of the same workload"):
        import_t4([first, first])
    other = foreign(tmp_path / "other.json", [result({"b": 1}, 1.0)])
    with pytest.raises(UsageError, match="differ in operator, device or protocol"):
        import_t4([first, other])
    with pytest.raises(UsageError, match="unknown target 'sm_81'; did you mean"):
        import_t4(other, target="sm_81")
    with pytest.raises(UsageError, match="is not name=value"):
        import_t4(other, workload="N0")
    with pytest.raises(UsageError, match="of one T4 file"):
        import_t4([first, second], workload="M=1")
    with pytest.raises(UsageError, match="import them one by one"):
        import_logs([first, second], "kernel-tuner")
    with pytest.raises(UsageError, match="--operator conv: files of format kernel-tuner say so"):
        import_logs([first], "kernel-tuner", operator="conv")


def test_the_commands_go_there_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, folder, back = tmp_path / "log.jsonl", tmp_path / "t4", tmp_path / "back.jsonl"
    write_log(log, recording())
    assert main(["log", "export", str(log), "--format", "t4", "-o", str(folder)]) == 0
    paths = sorted(map(str, folder.iterdir()))
    assert len(paths) == 2
    assert main(["log", "import", *paths, "--format", "t4", "-o", str(back)]) == 0
    assert content(list(TuningLog(back).read().lines)) == content(recording())
    assert "tilewright tune op -w M=" in capsys.readouterr().err
    assert main(["log", "export", str(log), "--format", "t4", "-w", "M=64", "-o", str(tmp_path / "one.json")]) == 0
    assert content(import_t4(tmp_path / "one.json"))["records"].keys() == {workload(64).key}


def test_kernel_tuner_files_of_devices_and_versions_not_met_before(tmp_path: Path) -> None:
    entries = {
        "1": {"b": 1, "time": 1e20, "compile_time": 1.0},
        "2": {"b": 2, "time": 2.0, "times": [2.0, 2.0], "compile_time": None},
        "3": {"b": 3, "time": None, "__error__": "CompilationFailedConfig"},
    }
    cache = {
        "device_name": "AMD Radeon Pro W6600", "kernel_name": "k", "problem_size": "(4096, 32)", "tune_params_keys": ["b"],
        "tune_params": {"b": [1, 2, 3]}, "cache": entries,
    }  # fmt: skip
    path = tmp_path / "cache.json"
    path.write_text(json.dumps(cache))
    failed, good, broken = (line for line in import_kernel_tuner(path) if isinstance(line, Record))
    assert (failed.status, failed.message) == (Status.CRASH, "time 1e+20: none was measured")
    assert (good.status, good.workload.dims, good.target.backend, good.target.name) == (Status.OK, {"N0": 4096, "N1": 32}, "hip", "AMD Radeon Pro W6600")
    assert broken.status is Status.COMPILE_ERROR
