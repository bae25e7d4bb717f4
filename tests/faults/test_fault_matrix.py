"""One session over schedules that are broken in every way that the interpreter can show: one record each, and the same winner."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.log import TuningLog
from tilewright.record import Record, SessionEnd
from tilewright.runner import InterpreterRunner
from tilewright.target import named_target
from tilewright.testing import FakeBuilder

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
faults = pytest.importorskip("faults")
sys.path.pop(0)

# The right schedules alone may take any time; what they took tells how long one may take on this machine, as busy as it is.
PATIENT_S = 60.0


def test_each_fault_is_one_record_and_the_winner_is_that_without_them(tmp_path: Path, is_running: Callable[..., bool]) -> None:
    log = tmp_path / "log.jsonl"
    with InterpreterRunner(named_target("sm_90"), cache_dir=tmp_path, timeout_s=PATIENT_S, spare=True) as runner:
        alone, before = faults.run_session(runner, FakeBuilder(), tmp_path / "alone.jsonl", faults="none", n=4096)
        moments = [moment for moment, _ in before.came]
        longest_s = max(later - earlier for earlier, later in zip(moments, moments[1:], strict=False))
        runner._timeout_s = timeout_s = 1.0 + 3.0 * longest_s  # one hangs for all of it
        began = time.monotonic()
        result, watch = faults.run_session(runner, FakeBuilder(), log, faults="interpreted", n=4096)
    records = [line for line in TuningLog(log).read().lines if isinstance(line, Record)]
    assert Counter(str(record.config["fault"]) for record in records) == {"none": 3, **dict.fromkeys(FAULTS, 1)}
    for record in records:
        statuses, said = faults.EXPECTED[record.config["fault"]]
        assert record.status in statuses and re.search(said, record.message), record
    assert result.reason == "exhausted"
    assert alone.results[0].best is not None and result.results[0].best is not None
    assert result.results[0].best.config == alone.results[0].best.config == {"work": 1, "fault": "none"}
    end = TuningLog(log).read().lines[-1]
    assert isinstance(end, SessionEnd) and end.trials == len(records)
    assert faults.costs_s(watch, began)["grandchild_hangs"] < timeout_s + max(12.0, 6.0 * longest_s)  # two cores, and a spare takes seconds to start
    assert not is_running("sleep", "86399"), "a grandchild is left"


FAULTS = ["raises", "killed", "nan", "garbage_on_the_wire", "half_unwritten", "grandchild_hangs", "row_past_the_end", "input_overwritten", "scratch_unwritten"]
FAULTS += ["ragged", "race", "all_memory", "flood"]
