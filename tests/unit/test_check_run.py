"""`check --run`: configs run in Triton's interpreter and compared with the reference, and not timed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.cli import main
from tilewright.errors import ExitCode
from tilewright.library import Operator, find_operator
from tilewright.neighbours import Neighbours, device_steps, interpreted_steps
from tilewright.record import Check, Status
from tilewright.runner import MeasureJob, MeasureOutcome
from tilewright.target import named_target
from tilewright.testing import FakeBuilder, FakeRunner
from tilewright.timeouts import Timeouts
from tilewright.tryout import Tryout, Tryouts
from tilewright.workload import parse_key

TEMPLATE = """
{%- set way = cfg.define_knob("way", ["plain", "bold", "wide", "odd"]) -%}
{%- do cfg.suggest(way="plain") -%}
import triton
import triton.language as tl

@triton.jit
def add_kernel(a, b, c, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
{%- if way == "bold" %}
    mask = offsets < (n + 255) // 256 * 256
{%- else %}
    mask = offsets < n
{%- endif %}
    total = tl.load(a + offsets, mask=mask) + tl.load(b + offsets, mask=mask)
{%- if way == "odd" %}
    total = tl.where(offsets == 7, 0, total)
{%- endif %}
    tl.store(c + offsets, total, mask=mask)

def launch(a, b, c):
    n = c.numel()
{%- if way == "wide" %}
    add_kernel[(1,)](a, b, c, n, BLOCK=missing)
{%- else %}
    add_kernel[(triton.cdiv(n, 256),)](a, b, c, n, BLOCK=256)
{%- endif %}
"""
WORKLOAD = "N=512,dtype=float32"


@pytest.fixture
def templates(vector_add: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator with a template of four branches, of which two are wrong and one fails; all of them compile, as far as the builder says."""
    vector_add.with_files(tmp_path / "vector_add")
    (tmp_path / "vector_add" / "branches.py.jinja").write_text(TEMPLATE)
    monkeypatch.setattr("tilewright.commands.check.CompileBuilder", lambda jobs, timeout_s: FakeBuilder())
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_each_branch_is_run_and_what_is_wrong_is_said(templates: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["check", "vector_add", "--templates", str(templates), "-w", WORKLOAD, "--run"]
    assert main([*argv, "--json"]) == ExitCode.OK, "the author's suggestion is right"
    (told,) = json.loads(capsys.readouterr().out)["checks"]
    assert told["run"] == {"right": 1}
    (config,) = told["configs"]
    assert config["run"]["verdict"] == "right" and config["run"]["check"]["ragged"] == "vector_add:N=496,dtype=float32"
    assert config["run"]["rel_norm_share"] == config["run"]["check"]["rel_norm"] / 1e-3

    assert main([*argv, "--each", "--target", "sm_90", "--target", "sm_80"]) == ExitCode.FAILED
    out, err = capsys.readouterr()
    assert "2 wrong, 1 right, 1 fails" in out.splitlines()[1]
    said = {line.split()[-1]: line.split()[1] for line in out.splitlines() if line.startswith("  legal ")}
    assert said == {"way=plain": "right", "way=bold": "wrong", "way=odd": "wrong", "way=wide": "fails"}
    assert "out_of_bounds: right at its own extents, and at N=496: output 'c'" in out
    assert "worst at [7]" in out and "NameError: name 'missing'" in out
    assert "allowed, of which the share that an error uses is in brackets: rel_norm 0.001, max_error 0.01: one rounding of a 16-bit sum" in out
    assert "running it in the interpreter" in err


def test_without_a_run_nothing_is_said_of_one(templates: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.tryout.InterpreterRunner", lambda *args, **options: pytest.fail("nothing is run"))
    argv = ["check", "vector_add", "--templates", str(templates), "-w", WORKLOAD]
    assert main([*argv, "--each"]) == ExitCode.OK
    assert "rel_norm" not in capsys.readouterr().out
    assert main([*argv, "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["checks"][0]["configs"][0]["run"] is None
    assert main([*argv, "--run-timeout", "3"]) == ExitCode.USAGE
    assert "give --run too" in capsys.readouterr().err
    assert main([*argv[:-1], "N=512,dtype=bfloat16", "--run"]) == ExitCode.OK, "what cannot be run is not wrong"
    out = capsys.readouterr().out
    assert "1 not run" in out and "not run: vector_add:N=512,dtype=bfloat16: Triton's interpreter computes bfloat16 wrongly" in out


@pytest.fixture
def trying(templates: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Operator, Tryouts, FakeRunner, list[str]]]:
    """Tryouts whose child answers as a function of the job says."""

    def make(answer: Callable[[MeasureJob], MeasureOutcome]) -> tuple[Operator, Tryouts, FakeRunner, list[str]]:
        runner, said = FakeRunner(answer), list[str]()

        def start(target: object, timeout_s: float) -> FakeRunner:
            assert timeout_s == 7.0
            return runner

        monkeypatch.setattr("tilewright.tryout.InterpreterRunner", start)
        operator = find_operator("vector_add", [templates])
        return operator, Tryouts(operator, seed=3, timeouts=Timeouts(run=7.0), say=said.append), runner, said

    return make


def tried(operator: Operator, tryouts: Tryouts, workload: str, arch: str = "sm_90") -> list[Tryout]:
    target, at = named_target(arch), operator.workload(workload)
    sources = {str(config["way"]): (config, operator.render(at, target, config)) for config in operator.space(at, target).enumerate()}
    return [tryouts.of(at, target, config, source) for config, source in sources.values()]


def test_two_time_outs_are_enough_of_a_workload(trying: Callable[..., Any]) -> None:
    operator, tryouts, runner, said = trying(lambda job: MeasureOutcome(status=Status.RUN_TIMEOUT, message="measure: no answer"))
    found = tried(operator, tryouts, WORKLOAD)
    assert [one.verdict for one in found] == ["time-out", "time-out", "not run", "not run"]
    assert [one.faulty for one in found] == [True, True, False, False]
    assert "not done in 7 s: take smaller extents" in found[0].message and found[3].message == "2 others of this workload were not done in 7 s"
    assert len(runner.jobs) == 2 and len(said) == 1 and said[0].startswith("vector_add:N=512,dtype=float32, in the interpreter: not done in 7 s")
    assert tried(operator, tryouts, "N=64,dtype=float32")[0].verdict == "time-out", "another workload may be small enough"
    tryouts.close()
    assert runner.closed


def test_a_source_is_run_once_untimed_and_with_what_the_reference_needs(trying: Callable[..., Any]) -> None:
    check = Check(rel_norm=0.5, max_error=0.25, rel_norm_allowed=1.0, max_error_allowed=0.0, ragged="vector_add:N=496,dtype=float32")
    operator, tryouts, runner, _ = trying(lambda job: MeasureOutcome(status=Status.OK, check=check))
    first = tried(operator, tryouts, WORKLOAD)
    assert tried(operator, tryouts, WORKLOAD, "sm_80") == first and len(runner.jobs) == 4, "the same text for both"
    assert {(job.timed, job.seed, job.default) for job in runner.jobs} == {(False, 3, runner.jobs[0].source)}
    assert all([workload.dims["N"] for workload in job.neighbours] == [496] for job in runner.jobs)
    assert (first[0].rel_norm_share, first[0].max_error_share) == (0.5, None), "of nothing allowed there is no share"
    assert json.loads(json.dumps(first[0].to_json()))["max_error_share"] is None


def test_a_candidate_that_is_only_checked_has_no_times(interpreter_runner: Any, vector_add: Any) -> None:
    neighbour = vector_add.workload(1001)
    outcome = interpreter_runner.measure(vector_add.job(timed=False, neighbours=(neighbour,)))
    assert (outcome.status, outcome.measurement) == (Status.OK, None) and "time" not in outcome.phases_ms
    assert outcome.check.ragged == neighbour.key and outcome.bitwise_equal is True
    wrong = interpreter_runner.measure(vector_add.changed("total, mask=mask", "total + 1, mask=mask", timed=False))
    assert wrong.status is Status.WRONG_RESULT and wrong.check.rel_norm > wrong.check.rel_norm_allowed


def test_a_further_run_is_made_where_its_time_allows_it() -> None:
    from tilewright.children.ragged import affordable

    named = {"operator": "toy", "dims": {"N": 3}, "dtypes": {}, "layout": {}}
    timed, untimed = ({"timed": timed, "timeout_s": 40.0, "neighbours": [named]} for timed in (True, False))
    assert [len(affordable(timed, run_s)) for run_s in (1.9, 2.1)] == [1, 0]
    assert [len(affordable(untimed, run_s)) for run_s in (9.9, 10.1)] == [1, 0]


def test_neighbours_in_the_interpreter_are_hardly_larger() -> None:
    assert [interpreted_steps(extent) for extent in (1, 2, 16, 17, 18)] == [(), (3,), (15, 17), (16, 18), (2, 17, 19)]
    assert [device_steps(extent) for extent in (1, 2, 16, 18)] == [(), (18,), (32,), (2, 34)]
    workload = parse_key("toy:heads=2,group=4,length=256,dtype=float16")
    served = lambda workload, config, source: True  # noqa: E731
    source: Any = type("Source", (), {"schedule": "plain"})()
    first = Neighbours(served, interpreted_steps).of(workload, {}, source)[0]
    assert first.dims == {"group": 3, "heads": 3, "length": 240}
    assert Neighbours(served).of(workload, {}, source)[0].dims == {"group": 20, "heads": 18, "length": 240}
