"""A session over the shipped templates, with builds and times made up: every searcher meets real spaces and many workloads."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

from tilewright.canonical import sha256_text
from tilewright.carrying import carries
from tilewright.device import Device
from tilewright.library import find_operator
from tilewright.log import TuningLog
from tilewright.neighbours import Neighbours
from tilewright.observer import Budget, Observers
from tilewright.record import Record, config_key
from tilewright.runner import MeasureJob, MeasureOutcome
from tilewright.search import SEARCHERS
from tilewright.session import Session
from tilewright.target import named_target
from tilewright.testing import FakeBuilder, FakeRunner, timed
from tilewright.tuner import parse_workloads

TARGET = named_target("sm_90")
# Shapes whose spaces differ: one row of tiles, many tiles, extents that TMA cannot take.
WORKLOADS = {
    "matmul": ["M=4096,N=4096,K=4096,dtype=bfloat16", "M=16,N=6144,K=4096,dtype=bfloat16", "M=300,N=4104,K=2056,dtype=bfloat16", "M=1,N=100,K=99"],
    "softmax": ["rows=2048,cols=1024", "rows=2048,cols=32768", "rows=7,cols=999"],
}


def made_up(job: MeasureJob) -> MeasureOutcome:
    return timed(10 + int(sha256_text(job.source.text + job.workload.key)[:6], 16) / 1e5)


def device(name: str) -> Device:
    operator = find_operator(name)
    return Device(
        name="fake",
        label="fake",
        operator=name,
        builder=FakeBuilder(),
        runner=FakeRunner(made_up, target=TARGET),
        target=TARGET,
        compile_target=TARGET,
        lookahead=6,
        width=2,
        spec=operator.spec,
        folder=operator.folder,
        template_hashes=frozenset(template.hash for template in operator.templates.values()),
        make_workload=operator.spec.workload,
        make_space=lambda workload: operator.space(workload, TARGET),
        make_source=lambda workload, config: operator.render(workload, TARGET, config),
        neighbours=Neighbours(lambda workload, config, source: carries(operator.templates[source.schedule], workload, TARGET, config, source.hash)),
    )


UNTRIED = {"grid", "random", *(() if importlib.util.find_spec("cmaes") else ("cmaes",))}


# `grid` and `random` share their code with the rest; models over the 13,000 points of a matmul take their time.
@pytest.mark.parametrize(
    ("name", "search"),
    [("matmul", "tpe"), ("matmul", "random"), ("matmul", "evolutionary"), *(("softmax", search) for search in SEARCHERS if search not in UNTRIED)],
)
def test_many_workloads_in_one_session(name: str, search: str, tmp_path: Path) -> None:
    opened = device(name)
    workloads = parse_workloads(opened, WORKLOADS[name], None)
    trials = 15 * len(workloads)
    session = Session(
        device=opened, workloads=workloads, budget=Budget(trials=trials), search=search, seed=0,
        log=TuningLog(tmp_path / "log.jsonl"), observer=Observers(), resume=False, force=False, default_only=False,
    )  # fmt: skip
    result = session.run()
    assert result.reason == "budget"
    assert all(answer.best is not None for answer in result.results)
    records = [line for line in TuningLog(tmp_path / "log.jsonl").read().lines if isinstance(line, Record) and line.measurement is not None]
    assert len(records) == trials
    counted = Counter((record.workload.key, config_key(record.config)) for record in records)
    assert set(counted.values()) == {1}
    for answer in result.results:
        own = [record for record in records if record.workload == answer.workload]
        assert own[0].default and len(own) >= 8
