"""The commands' answers, on the operator whose template the README shows."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.builder import BuildOutcome, BuildRequest
from tilewright.bulk import parts
from tilewright.cli import main, make_parser
from tilewright.codec import encode_line
from tilewright.errors import ExitCode
from tilewright.library import find_operator
from tilewright.log import TuningLog, write_log
from tilewright.record import Measurement, Record, Resources, SessionStart, Status, VendorRecord
from tilewright.target import Target, Toolchain, named_target
from tilewright.testing import FakeBuilder

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
WORKLOAD = "n=4096,dtype=float32"

SPEC = """
from tilewright.operator import OperatorSpec, ScalarSpec, TensorSpec, Tolerance

SPEC = OperatorSpec(
    name="axpy", summary="out = alpha * x + y", dims=("n",), dtypes={"dtype": ("float32", "float16")}, arguments=("x", "y", "alpha"),
    inputs=lambda w: {
        "x": TensorSpec(shape=(w.dims["n"],), dtype=w.dtypes["dtype"]),
        "y": TensorSpec(shape=(w.dims["n"],), dtype=w.dtypes["dtype"]),
        "alpha": ScalarSpec(value=0.5),
    },
    outputs=lambda w: {"out": TensorSpec(shape=(w.dims["n"],), dtype=w.dtypes["dtype"])},
    flops=lambda w: 2.0 * w.dims["n"], bytes_moved=lambda w: 12.0 * w.dims["n"],
    tolerance=lambda w: Tolerance(rel_norm=1e-6, max_error=1e-5, reason="one rounding"),
    infer=lambda args: {"n": args["x"].shape[0], "dtype": args["x"].dtype},
    workload_sets={"small": [{"n": 100}, {"n": 4096}]},
)
"""


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    folder = tmp_path / "operators" / "axpy"
    folder.mkdir(parents=True)
    template = re.search(r"<!-- template:begin -->\n```jinja\n(.*?)```", README, re.DOTALL)
    assert template is not None
    (folder / "flat.py.jinja").write_text(template[1], encoding="utf-8")
    (folder / "spec.py").write_text(SPEC, encoding="utf-8")
    (folder / "reference.py").write_text("", encoding="utf-8")
    return folder.parent


@pytest.fixture
def run(templates: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def command(*argv: str | Path) -> tuple[int, str, str]:
        code = main([*map(str, argv), "--templates", str(templates)])
        return (code, *capsys.readouterr())

    return command


Run = Callable[..., tuple[int, str, str]]


def record(templates: Path, us: float, target: Target | None = None, index: int = 0, **changes: Any) -> Record:
    operator = find_operator("axpy", [templates])
    workload = operator.spec.workload(changes.pop("workload", WORKLOAD))
    compiled_for = named_target("sm_90")
    config = operator.space(workload, compiled_for)[index]
    fields: dict[str, Any] = {
        "session": "s",
        "trial": index,
        "workload": workload,
        "target": target or compiled_for,
        "config": config,
        "status": Status.OK,
        "toolchain": Toolchain(triton="3.9.0"),
        "template": operator.template_hash(config),
        "source": operator.render(workload, compiled_for, config).hash,
        "measurement": Measurement(protocol="graph/1", median_us=us, min_us=us, max_us=us),
    }
    return Record(**{**fields, **changes})


@pytest.mark.parametrize("line", re.findall(r"^tilewright (.+)$", README, re.MULTILINE))
def test_the_readme_names_commands_that_parse(line: str) -> None:
    assert make_parser().parse_args(shlex.split(line, comments=True)).module


def test_operators_lists_shipped_and_named_ones(run: Run) -> None:
    code, out, _ = run("operators", "--json")
    by_name = {operator["name"]: operator for operator in json.loads(out)}
    assert code == ExitCode.OK
    assert {"axpy", "matmul", "rms_norm", "softmax"} <= set(by_name)
    assert by_name["axpy"]["schedules"] == ["flat"] and by_name["axpy"]["workload_sets"] == {"small": 2}
    assert "axpy: out = alpha * x + y" in run("operators")[1]


def test_space_counts_lists_and_explains(run: Run) -> None:
    code, out, _ = run("space", "axpy", "-w", WORKLOAD, "--list", "2", "--json")
    answer = json.loads(out)
    assert code == ExitCode.OK
    # 6 tiles of 128 to 4096 and 4 counts of warps; 128 elements are too few for 8 warps.
    assert (answer["legal"], answer["points"], answer["rejected"]) == (23, 24, {"threads would idle": 1})
    assert [knob["name"] for knob in answer["knobs"]] == ["tile", "num_warps"]
    assert answer["configs"][0] == {"tile": [32, 128], "num_warps": 1} and len(answer["configs"]) == 2
    text = run("space", "axpy", "-w", WORKLOAD)[1]
    assert "23 legal configs of 24 points" in text and "threads would idle" in text


def test_space_without_legal_configs_is_a_no(run: Run, templates: Path) -> None:
    path = templates / "axpy" / "flat.py.jinja"
    path.write_text(path.read_text().replace("BLOCK >= 32 * num_warps", "BLOCK >= 10 ** 6"))
    code, out, _ = run("space", "axpy", "-w", WORKLOAD, "--json")
    assert code == ExitCode.FAILED
    assert json.loads(out)["legal"] == 0 and json.loads(out)["rejected"] == {"threads would idle": 24}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("space", "axpi", "-w", WORKLOAD), "did you mean 'axpy'?"),
        (("space", "axpy", "-w", "m=1"), "unknown workload parameter 'm'"),
        (("space", "axpy", "-w", "dtype=float32"), "missing dim n"),
        (("space", "axpy", "-w", WORKLOAD, "-w", "m=1"), "unknown workload parameter 'm'"),
        (("space", "axpy", "-w", WORKLOAD, "--target", "sm_91"), "did you mean 'sm_9"),
        (("check", "axpy"), "give -w with n=..."),
        (("tune", "axpy"), "nothing to tune"),
        (("tune", "axpy", "-w", WORKLOAD, "--device", "tpu"), "unknown device 'tpu'"),
        (("tune", "axpy", "--workloads", "smal", "--dry-run", "--device", "interpreter"), "did you mean 'small'?"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(run: Run, argv: tuple[str, ...], said: str) -> None:
    code, out, err = run(*argv)
    assert code == ExitCode.USAGE and out == ""
    assert said in err


def fake_builder(request: BuildRequest) -> BuildOutcome:
    """Eight warps ask for more shared memory than Ada's and Blackwell's consumer parts have; tiles of 4096 do not compile."""
    if "BLOCK=4096" in request.source.text:
        return BuildOutcome(status=Status.COMPILE_ERROR, message="tile too large\nfor this compiler")
    warps = int(re.findall(r"num_warps=(\d+)", request.source.text)[-1])
    needs = Resources(shared_memory_bytes=warps * 20_000, registers=64, spill_bytes=0, num_warps=warps)
    if needs.shared_memory_bytes > request.target.shared_memory_bytes:
        return BuildOutcome(status=Status.OUT_OF_RESOURCES, message="shared memory", resources=needs)
    return BuildOutcome(status=Status.OK, resources=needs)


def test_check_says_which_config_exceeds_which_limit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = FakeBuilder(fake_builder)
    monkeypatch.setattr("tilewright.commands.check.CompileBuilder", lambda jobs, timeout_s: builder)
    argv = ("check", "axpy", "-w", WORKLOAD, "--target", "sm_90", "--target", "sm_120", "--sample", "200")
    code, out, _ = run(*argv, "--json")
    assert code == ExitCode.FAILED and builder.closed, "what does not compile anywhere is a fault"
    large, small = json.loads(out)["checks"]
    assert (large["target"], large["checked"], large["legal"]) == ("sm_90", 23, 19), "200 draws meet all 23 configs, each checked once"
    assert (small["target"], small["legal"]) == ("sm_120", 15)
    over = [config for config in small["configs"] if config["exceeds"]]
    assert {config["config"]["num_warps"] for config in over} == {8}
    assert over[0]["exceeds"] == ["shared memory of a block: 160,000 of 101,376 bytes"]
    assert small["leaks"] == {}
    text = run(*argv)[1]
    assert "does not compile (4), shared memory of a block (4)" in text
    assert "for this compiler" in text


def test_check_fails_where_a_target_can_run_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.commands.check.CompileBuilder", lambda jobs, timeout_s: FakeBuilder(lambda _: BuildOutcome(status=Status.COMPILE_ERROR)))
    assert run("check", "axpy", "-w", WORKLOAD)[0] == ExitCode.FAILED


def test_check_names_dims_that_reach_the_text(run: Run, templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = templates / "axpy" / "flat.py.jinja"
    path.write_text(path.read_text().replace("n = x.numel()", "n = {{ n }}"))
    monkeypatch.setattr("tilewright.commands.check.CompileBuilder", lambda jobs, timeout_s: FakeBuilder())
    _, out, _ = run("check", "axpy", "-w", WORKLOAD, "--json")
    assert json.loads(out)["checks"][0]["leaks"] == {"n": 1}
    assert "n: its extent changes the rendered text of 1 of these" in run("check", "axpy", "-w", WORKLOAD)[1]


def test_check_compiles_for_five_targets_without_a_device(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    targets = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942")
    code, out, _ = run("check", "axpy", "-w", WORKLOAD, *(part for target in targets for part in ("--target", target)), "--json")
    checks = json.loads(out)["checks"]
    assert code == ExitCode.OK
    assert [(check["target"], check["legal"]) for check in checks] == [(target, 1) for target in targets]
    for check in checks:
        assert check["configs"][0]["resources"]["registers"] > 0


def test_dry_run_shows_the_plan_and_touches_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    argv = ("tune", "axpy", "-w", WORKLOAD, "--workloads", "small", "--device", "interpreter", "--dry-run")
    code, out, _ = run(*argv, "--json")
    plan = json.loads(out)
    assert code == ExitCode.OK
    assert [workload["workload"] for workload in plan["workloads"]] == ["axpy:n=4096,dtype=float32", "axpy:n=100,dtype=float32"]
    assert plan["workloads"][0]["legal"] == 23 and plan["target"]["arch"] == "sm_90" and plan["trials"] == 2 * 64
    assert plan["workloads"][0]["candidates"][0] == {"tile": [32, 128], "num_warps": 1}
    assert "23 legal configs; first candidates" in run(*argv)[1]
    assert not (tmp_path / "tuning_logs").exists()


def test_best_writes_the_winner_of_each_workload(run: Run, templates: Path, tmp_path: Path) -> None:
    first, second, output = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "best.jsonl"
    timed = record(templates, 6.0)
    vendor = VendorRecord(name="torch.add", workload=timed.workload, target=timed.target, status=Status.OK, measurement=timed.measurement)
    write_log(first, [record(templates, 9.0), record(templates, 5.0, index=1), vendor])
    write_log(second, [record(templates, 7.0, index=2), record(templates, 1.0, index=3, status=Status.WRONG_RESULT)])
    code, out, _ = run("best", first, second)
    assert code == ExitCode.OK
    assert [(entry["median_us"], entry["vendor"]) for entry in map(json.loads, out.splitlines())] == [(5.0, {"name": "torch.add", "median_us": 6.0})]
    assert run("best", first, second, "-o", output)[0] == ExitCode.OK
    assert output.read_text() == out
    assert json.loads(run("best", first, "--json")[1])["entries"][0]["median_us"] == 5.0


def test_best_of_failures_alone_is_a_no(run: Run, templates: Path, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    write_log(log, [record(templates, 1.0, status=Status.WRONG_RESULT)])
    code, out, err = run("best", log)
    assert code == ExitCode.FAILED and out == "" and "no record here is both correct and timed" in err


def test_best_that_cannot_be_written_is_a_host_error(run: Run, templates: Path, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    write_log(log, [record(templates, 1.0)])
    before = log.read_bytes()
    assert run("best", log, "-o", log)[0] == ExitCode.USAGE and log.read_bytes() == before, "a log is never overwritten"
    code, _, err = run("best", log, "-o", tmp_path / "nowhere" / "best.jsonl")
    assert code == ExitCode.HOST and "cannot write" in err


def test_show_renders_the_winner(run: Run, templates: Path, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    write_log(log, [record(templates, 9.0), record(templates, 5.0, index=1)])
    code, out, err = run("show", log, WORKLOAD)
    assert code == ExitCode.OK and "BLOCK=128" in out and "num_warps=2" in out and "tilewright" not in out
    assert "5 µs by graph/1" in err and "tune again" not in err
    assert run("show", log, "axpy:n=4096", "--config-only")[1] == "tile=32x128 num_warps=2\n"
    answer = json.loads(run("show", log, "--json")[1])
    assert answer["config"] == {"tile": [32, 128], "num_warps": 2} and answer["stale"] is False and answer["source"] == out


def test_show_says_where_the_template_has_moved_on(run: Run, templates: Path, tmp_path: Path) -> None:
    log, path = tmp_path / "a.jsonl", templates / "axpy" / "flat.py.jinja"
    write_log(log, [record(templates, 9.0)])
    path.write_text("{#- a comment -#}\n" + path.read_text())
    assert "tune again" not in run("show", log)[2], "a comment in the template stales nothing"
    path.write_text(path.read_text().replace("alpha * x + y", "y + alpha * x"))
    assert "tune again" in run("show", log)[2]
    assert json.loads(run("show", log, "--json")[1])["stale"] is True


def test_show_of_an_interpreters_record_renders_for_the_target_behind_it(run: Run, templates: Path, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    write_log(log, [record(templates, 9.0, target=named_target("sm_90").interpreted())])
    assert json.loads(run("show", log, "--json")[1])["stale"] is False


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "has 2 workloads: name one"),
        (("n=17",), "has no correct and timed record"),
        (("dtype=float32",), "fits 2 workloads"),
        (("n=100",), "on several targets: name one with --target"),
        (("n=100", "--target", "sm_70"), "has no target 'sm_70'"),
        (("n=4096", "--protocol", "event/1"), "did you mean 'events/1'?"),
    ],
)
def test_show_asks_where_the_log_has_several_answers(run: Run, templates: Path, tmp_path: Path, argv: tuple[str, ...], said: str) -> None:
    log = tmp_path / "a.jsonl"
    events = Measurement(protocol="events/1", median_us=1.0, min_us=1.0, max_us=1.0)
    small = replace(named_target("sm_90"), name="a smaller one", sm_count=66)
    large_n = [record(templates, 3.0), record(templates, 1.0, measurement=events)]
    small_n = [record(templates, 2.0, target, workload="n=100") for target in (None, small)]
    write_log(log, [*large_n, *small_n])
    code, out, err = run("show", log, *argv)
    assert code == ExitCode.USAGE and out == "" and said in err
    # The better protocol speaks, though the other's figure is smaller; a target is told by its name.
    assert "3 µs by graph/1" in run("show", log, "n=4096", "--config-only")[2]
    assert "a smaller one" in run("show", log, "n=100", "--target", "a smaller one", "--config-only")[2]


def test_show_refuses_a_config_that_the_template_does_not_declare(run: Run, templates: Path, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    write_log(log, [record(templates, 1.0, config={"tile": [32, 128], "num_warps": 3})])
    code, out, err = run("show", log)
    assert code == ExitCode.USAGE and out == "" and "3 is no candidate" in err


def test_show_of_a_recording_has_only_a_config(run: Run, templates: Path, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    write_log(log, [record(templates, 1.0, template="", source="")])
    code, _, err = run("show", log)
    assert code == ExitCode.USAGE and "--config-only" in err
    assert run("show", log, "--config-only")[0] == ExitCode.OK


def test_lint_and_stats_of_a_damaged_log(run: Run, templates: Path, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    start = SessionStart(
        session="s", started_at="2026-11-01T00:00:00Z", tilewright="0.1.0", operator="axpy", workloads=[record(templates, 1.0).workload],
        target=named_target("sm_90"), toolchain=Toolchain(),
    )  # fmt: skip
    failed = record(templates, 1.0, index=2, status=Status.CRASH, message="died of SIGSEGV\nlong story", measurement=None)
    write_log(log, [start, record(templates, 900.0), record(templates, 700.0, index=1), failed])
    assert run("log", "lint", log)[0] == ExitCode.OK
    with log.open("a") as file:
        file.write('{"kind":"trial","sche')
    code, out, _ = run("log", "lint", log, "--json")
    faults = [finding for finding in json.loads(out)[0]["findings"] if finding["severity"] == "fault"]
    assert code == ExitCode.FAILED and [(fault["number"], fault["rule"]) for fault in faults] == [(5, "damage")]
    code, out, err = run("log", "stats", log, "--json")
    answer = json.loads(out)
    assert code == ExitCode.OK and "skipped 1 damaged line" in err
    assert answer["sessions"] == {"count": 1, "interrupted": 1}
    assert answer["statuses"] == {"ok": 2, "crash": 1}
    assert answer["failures"] == [
        {
            "status": "crash",
            "message": "died of SIGSEGV",
            "records": 1,
            "example": {"message": failed.message, "workload": failed.workload.key, "config": failed.config},
        }
    ]
    assert [(row["records"], row["ok"], row["best_us"]) for row in answer["workloads"]] == [(3, 2, 700.0)]
    text = run("log", "stats", log)[1]
    assert "1 sessions (1 without an end), 3 records" in text and "crash: died of SIGSEGV" in text and "num_warps=2" in text


@pytest.mark.parametrize("large", [False, True])
def test_stats_tell_what_was_cut_from_what_failed(run: Run, templates: Path, tmp_path: Path, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr(parts, "LARGE_BYTES", 1)
    slow = [record(templates, 80.0, index=index, status=Status.CUT, message=f"cut after {index} samples: 80.0 µs is over 3 times 9.5 µs") for index in (0, 1)]
    left = record(templates, 1.0, index=2, status=Status.CUT, message="the search ended before it was built", measurement=None)
    write_log(tmp_path / "a.jsonl", [*slow, left, record(templates, 1.0, index=3, status=Status.CRASH, message="died", measurement=None)])
    answer = json.loads(run("log", "stats", tmp_path / "a.jsonl", "--json")[1])
    assert answer["statuses"] == {"cut": 3, "crash": 1}
    assert [(failure["status"], failure["message"]) for failure in answer["failures"]] == [("crash", "died")]
    assert answer["cut"] == [
        {"message": "cut after # samples: # µs is over # times # µs", "records": 2},
        {"message": "the search ended before it was built", "records": 1},
    ]
    failed, cut = run("log", "stats", tmp_path / "a.jsonl")[1].split("failed with")[1].split("cut: not wrong")
    assert "crash: died" in failed and "samples" not in failed
    assert "2  cut after # samples" in cut and "died" not in cut


@pytest.mark.parametrize("large", [False, True])
def test_stats_give_a_whole_example_of_each_kind_of_failure(run: Run, templates: Path, tmp_path: Path, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr(parts, "LARGE_BYTES", 1)

    def failed(message: str, index: int, status: Status = Status.WRONG_RESULT) -> Record:
        return record(templates, 1.0, index=index, status=status, message=message, measurement=None)

    late, spaced = failed("42 of 7 elements are NaN", 0), failed("x is 3, not 4", 1, Status.CRASH)
    first = [failed("17 of 100 elements differ\n  worst at [3]", 2), record(templates, 1.0), failed("18 of 100 elements differ", 0)]
    logs = [tmp_path / "b.jsonl", tmp_path / "a.jsonl"]
    write_log(logs[0], first)
    with logs[0].open("a") as file:
        file.write("{\n" + json.dumps(json.loads(encode_line(spaced)), indent=None) + "\n")  # as another program writes it
    write_log(logs[1], [failed("19 of 100 elements differ", 1), late])
    answer = json.loads(run("log", "stats", *logs, "--json")[1])
    examples = {failure["message"]: (failure["records"], failure["example"]["message"], failure["example"]["config"]) for failure in answer["failures"]}
    assert examples == {
        "# of # elements differ": (3, first[0].message, first[0].config),
        "# of # elements are NaN": (1, late.message, late.config),
        "x is #, not #": (1, spaced.message, spaced.config),
    }
    lines = run("log", "stats", *logs)[1].splitlines()
    place = next(number for number, line in enumerate(lines) if "# of # elements differ" in line)
    assert [line.strip() for line in lines[place + 1 : place + 3]] == ["such as: 17 of 100 elements differ", "worst at [3]"]
    assert lines[place + 3].strip().startswith("first of axpy:") and "num_warps=" in lines[place + 3]


def test_stats_look_for_examples_in_the_beginning_of_large_logs_alone(run: Run, templates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LARGE_BYTES", 1)
    monkeypatch.setattr("tilewright.commands.failure_examples._LOOKED_THROUGH", 2_000)
    failures = [record(templates, 1.0, index=index % 3, status=Status.CRASH, message="abc"[index // 20], measurement=None) for index in range(60)]
    write_log(tmp_path / "a.jsonl", failures)
    answer = json.loads(run("log", "stats", tmp_path / "a.jsonl", "--json")[1])
    assert {failure["message"]: "example" in failure for failure in answer["failures"]} == {"a": True, "b": False, "c": False}
    code, text, _ = run("log", "stats", tmp_path / "a.jsonl")
    assert code == ExitCode.OK and text.count("first of axpy:") == 1


def test_a_log_that_is_not_there_is_a_log_error(run: Run, tmp_path: Path) -> None:
    for argv in (("log", "lint"), ("log", "stats"), ("best",), ("show",)):
        assert run(*argv, tmp_path / "none.jsonl")[0] == ExitCode.LOG


def test_import_writes_a_log_that_stands_in_for_a_device(run: Run, tmp_path: Path) -> None:
    raw, log, tuned = tmp_path / "raw.jsonl", tmp_path / "recorded.jsonl.gz", tmp_path / "tuned.jsonl"
    head = {"kind": "cublas_us", "device": "NVIDIA H200", "torch": "2.11.0+cu130", "triton": "3.6.0", "shapes": {"16x4096x14336": 31.0}}
    point = {"ok": True, "BM": 16, "BK": 64, "W": 4, "S": 2, "compile_s": 0.5, "regs": 64, "spills": 0, "shared": 40960}
    rows = [{**point, "BN": n, "us": {"16x4096x14336": [us, us, us, 3]}} for n, us in ((32, 80.0), (64, 50.0))]
    raw.write_text("".join(json.dumps(row) + "\n" for row in (head, *rows)))
    code, out, _ = run("log", "import", "--format", "recorded", raw, "-o", log, "--json")
    assert code == ExitCode.OK and json.loads(out)["records"] == 2
    code, out, _ = run("tune", "recorded_gemm", "-w", "M=16,N=4096,K=14336", "--device", f"recorded:{log}", "--log", tuned, "--json")
    assert code == ExitCode.OK and json.loads(out)["results"][0]["best_us"] == 50.0
    assert len(TuningLog(tuned).read().damage) == 0
    assert run("log", "import", "--format", "recorded", raw, "-o", log)[0] == ExitCode.USAGE, "a log is never overwritten"
