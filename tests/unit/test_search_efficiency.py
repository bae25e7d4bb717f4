"""benchmarks/search_efficiency.py: a recording with conditional knobs and failures, read in two forms, scored, with and without history."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tilewright.log import write_log
from tilewright.record import Config, KnobInfo, Line, Measurement, Record, RecordedSpace, Resources, Status
from tilewright.target import Toolchain, named_target
from tilewright.workload import Workload

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "search_efficiency.py"
KNOBS = [
    KnobInfo(name="schedule", candidates=["plain", "split"]),
    KnobInfo(name="tile", candidates=[16, 32, 64, 128, 256]),
    KnobInfo(name="parts", candidates=[2, 4, 8]),
    KnobInfo(name="warps", candidates=[1, 2, 4, 8]),
]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("search_efficiency", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def configs() -> Iterator[Config]:
    for tile, warps in itertools.product(KNOBS[1].candidates, KNOBS[3].candidates):
        yield {"schedule": "plain", "tile": tile, "warps": warps}
        for parts in KNOBS[2].candidates:
            yield {"schedule": "split", "tile": tile, "parts": parts, "warps": warps}


def lines() -> Iterator[Line]:
    target = named_target("sm_90")
    yield RecordedSpace(session="r", operator="toy", knobs=KNOBS)
    for dim in (512, 2048):
        workload = Workload(operator="toy", dims={"M": dim}, dtypes={})
        for trial, config in enumerate(configs()):
            tile, warps, parts = (int(str(config.get(name, 1))) for name in ("tile", "warps", "parts"))
            time_us = 4 + 3 * abs(math.log2(tile) - 6) + 2 * abs(math.log2(warps) - 2) + abs(math.log2(parts) - math.log2(2048 / dim))
            fails = tile == 256 and warps < 4
            yield Record(
                session="r", trial=trial, workload=workload, target=target, toolchain=Toolchain(triton="3.6.0"), config=config,
                status=Status.COMPILE_ERROR if fails else Status.OK, message="too large" if fails else "",
                measurement=None if fails else Measurement(protocol="graph/2", median_us=time_us, min_us=time_us, max_us=time_us),
                resources=None if fails else Resources(shared_memory_bytes=tile * 64, registers=32, num_warps=warps),
            )  # fmt: skip


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "toy.jsonl"
    write_log(path, lines())
    return path


def figures(script: ModuleType, path: Path, folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    out = folder / "figures.json"
    assert script.main(["--recorded", str(path), "--seeds", "3", "--most", "32", "--json", str(out), *options]) == 0
    return {row["searcher"]: row for row in json.loads(out.read_text())[path.name]}


def test_a_conditional_recording_without_an_operators_folder(script, recording, tmp_path, capsys):
    rows = figures(script, recording, tmp_path, "--search", "auto", "cost", "random", "cost+predict", "cost+general", "--history")
    # Nothing is known of the operator's work, so what needs it is left out.
    assert set(rows) == {"auto", "cost", "random", "auto+history", "cost+history"}
    for row in rows.values():
        means = list(row["geometric_mean"].values())
        assert list(row["geometric_mean"]) == ["8", "16", "32"]
        assert means == sorted(means) and 0 < means[0] <= means[-1] <= 100
        assert all(worst <= mean + 1e-9 for worst, mean in zip(row["worst"].values(), means, strict=True))
    assert rows["auto"]["geometric_mean"]["32"] >= 99
    assert rows["auto+history"]["score"] > rows["random"]["score"]
    assert "2 workloads of 80 to 80 configs" in capsys.readouterr().out


def test_the_score_is_zero_for_what_random_search_expects_and_one_for_the_optimum(script, recording):
    case = script.cases_of(script.read(recording), [])[0]
    budget = script.budget_of(case.times)
    expected = script.random_expectation(case.times, budget)
    assert script.score(case, [expected]) == pytest.approx(0.0)
    assert script.score(case, [[case.best_us] * budget]) == pytest.approx(1.0)
    assert script.score(case, [[None] * budget]) < 0


def test_random_search_scores_nothing_over_many_runs(script, recording):
    case = script.cases_of(script.read(recording), [])[0]
    rng = random.Random(0)
    runs = []
    for _ in range(400):
        order = rng.sample(case.times, len(case.times))
        runs.append([min(order[: step + 1]) for step in range(script.budget_of(case.times))])
    assert abs(script.score(case, runs)) < 0.15


def test_builds_that_fail_cost_no_measurement(script, recording):
    case = script.cases_of(script.read(recording), [])[0]
    told = []

    class Proposer:
        def widen(self, count):
            return list(case.space.enumerate())[:count]

        def built(self, config, resources):
            told.append((config["tile"], config["warps"], resources))

    script.widen(case, Proposer(), len(case.records))
    assert len(told) == len(case.records)
    assert all((resources is None) == (tile == 256 and warps < 4) for tile, warps, resources in told)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--search", "coost"], "unknown search 'coost'; did you mean 'cost'"),
        (["--recorded", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(script, options, says, capsys):
    assert script.main(options) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_a_plot_without_matplotlib_names_it(script, recording, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    options = ["--recorded", str(recording), "--search", "random", "--seeds", "1", "--most", "8", "--plot", str(tmp_path / "a.svg")]
    assert script.main(options) == 2
    assert "needs matplotlib" in capsys.readouterr().err
