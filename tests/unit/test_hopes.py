"""A search whose candidates all fail in one way, where nothing has ever run, ends before its budget; any doubt keeps it going."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from tilewright.children.modules import load_file
from tilewright.hopes import MOST_FAILURES, MOST_TIMEOUTS
from tilewright.log import TuningLog
from tilewright.record import SessionEnd, Status
from tilewright.report import print_end
from tilewright.result import TuneResult
from tilewright.runner import MeasureJob, MeasureOutcome
from tilewright.testing import timed

toy: Any = load_file(Path(__file__).with_name("toy_rig.py"), "toy_rig")
TEMPLATE = toy.TEMPLATE

WIDE = TEMPLATE.replace("[1, 2, 4, 8, 16, 32]", "[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]")


@pytest.fixture
def rig(tmp_path: Path) -> Any:
    rig = toy.Rig(tmp_path)
    for name in ("first", "second"):
        rig.write(name, broken=True, text=WIDE)
    return rig


def test_a_search_that_only_fails_is_given_up_and_says_so(rig: Any) -> None:
    answer = rig.tune(trials=26)
    assert (answer.reason, answer.best, len(rig.jobs)) == ("hopeless", None, MOST_FAILURES)
    (end,) = [line for line in TuningLog(rig.log).read().lines if isinstance(line, SessionEnd)]
    assert (end.reason, end.finished) == ("hopeless", [])
    out = io.StringIO()
    print_end(TuneResult(results=(answer,), log="l", protocol="fake/1", device="fake", reason="hopeless", wall_s=1.0), out)
    assert "ended before its budget" in out.getvalue() and "none of toy has ever run" in out.getvalue()
    # Asked again, it goes on: what failed may have been the machine's fault.
    assert rig.tune(trials=26).reason in ("exhausted", "budget") and len(rig.jobs) == 10


def test_time_outs_cost_more_and_end_it_sooner(rig: Any) -> None:
    rig.failure = lambda job: MeasureOutcome(status=Status.RUN_TIMEOUT, message="no answer within 60 s")
    assert rig.tune(trials=26).reason == "hopeless" and len(rig.jobs) == MOST_TIMEOUTS


def test_failures_that_differ_or_depend_on_the_config_do_not_end_it(rig: Any) -> None:
    def alternating(job: MeasureJob) -> MeasureOutcome:
        return MeasureOutcome(status=Status.LAUNCH_ERROR, message="abc"[len(rig.jobs) % 3])

    rig.failure = alternating
    assert rig.tune(trials=26).reason == "budget" and len(rig.jobs) == 26
    for status in (Status.OUT_OF_RESOURCES, Status.WRONG_RESULT, Status.OUT_OF_BOUNDS):
        rig.failure = lambda job, status=status: MeasureOutcome(status=status, message="x")  # type: ignore[misc]
        assert rig.tune(trials=26, force=True).reason == "budget" and len(rig.jobs) == 26


def test_one_that_ran_in_this_session_the_log_or_the_history_keeps_it_going(rig: Any, tmp_path: Path) -> None:
    rig.write("second", text=WIDE)
    assert rig.tune(trials=26).reason == "budget"
    rig.write("second", broken=True, text=WIDE)
    assert rig.tune(trials=26, workload="N=128").reason == "budget"
    past, rig.log = rig.log, tmp_path / "other.jsonl"
    assert rig.tune(trials=26, workload="N=128", history=past).reason == "budget"
    rig.log = tmp_path / "third.jsonl"
    assert rig.tune(trials=26, workload="N=128").reason == "hopeless"


@pytest.mark.parametrize("lookahead", [2, 4, 8])
@pytest.mark.parametrize("search", ["random", "cost"])
def test_a_search_without_hope_holds_up_no_other(rig: Any, lookahead: int, search: str) -> None:
    def answer(job: MeasureJob) -> MeasureOutcome:
        rig.jobs.append(job)
        others = sum(earlier.workload["N"] != 64 for earlier in rig.jobs)
        if job.workload["N"] == 64 or others <= 24:
            return MeasureOutcome(status=Status.LAUNCH_ERROR, message="x" if job.workload["N"] == 64 else "abc"[others % 3])
        return timed(10.0)

    rig.answer = answer
    assert rig.tune(trials=52, workload="N=64 N=128", lookahead=lookahead, search=search).reason == "hopeless"
    assert rig.measured[128] == 26 and rig.result.results[1].best is not None
