"""Other workloads' results as a start: they help where they hold, and are left aside where they do not."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright.errors import LogError, TilewrightError
from tilewright.history import Kinship, LogHistory, default_history, named_history
from tilewright.library import find_operator
from tilewright.log import TuningLog
from tilewright.record import Config, Measurement, Record, Resources, Status
from tilewright.search import make_proposer
from tilewright.search.encoding import Matrix
from tilewright.search.expectation import Expectation
from tilewright.search.foresight import Foresight, amounts
from tilewright.search.leads import Lead
from tilewright.search.model import TimeModel
from tilewright.search.past import Past
from tilewright.search.past_result import PastResult
from tilewright.search.pool import Pool
from tilewright.search.wide import CostProposer
from tilewright.space import Cfg, Space
from tilewright.target import named_target
from tilewright.tuner import tune
from tilewright.workload import Workload

H200 = named_target("sm_90")


def tiles(cfg: Cfg) -> None:
    m = cfg.define_knob("m", [16, 32, 64, 128, 256])
    n = cfg.define_knob("n", [16, 32, 64, 128, 256])
    cfg.define_knob("warps", [2, 4, 8, 16])
    cfg.define_knob("stages", [2, 3, 4, 5])
    cfg.require(m * n <= 128 * 256, "accumulator")


SPACE = Space({"s": tiles})
CONFIGS = list(SPACE.enumerate())


def log2(config: Config, name: str) -> float:
    return math.log2(float(str(config[name])))


def time_us(config: Config, rows: float) -> float:
    """A time whose best tile follows the workload's rows, jagged by what all knobs together are."""
    jag = random.Random(f"{sorted(config.items())}").random()
    tile = abs(log2(config, "m") - min(rows, 7)) + abs(log2(config, "n") - 7)
    return 100 * math.exp(0.35 * tile + 0.2 * abs(log2(config, "warps") - 3) + 0.1 * abs(float(str(config["stages"])) - 4) + 0.1 * jag)


def results(rows: float, *, count: int = 60, scrambled: bool = False) -> list[PastResult]:
    rng = random.Random(int(rows))
    chosen = rng.sample(CONFIGS, count)
    times = [time_us(config, rows) for config in chosen]
    if scrambled:
        rng.shuffle(times)
    return [PastResult(source=f"{rows}", features=(rows,), config=config, time_us=time) for config, time in zip(chosen, times, strict=True)]


def reached(rows: float, past: list[PastResult], count: int, seeds: int = 6) -> float:
    """Geometric mean over seeds of the optimum's time over the best found."""
    best = min(time_us(config, rows) for config in CONFIGS)
    logs = []
    for seed in range(seeds):
        proposer = make_proposer("cost", SPACE, seed=seed, past=past, features=(rows,))
        found = math.inf
        for _ in range(count):
            config = proposer.ask()
            assert config is not None
            found = min(found, time_us(config, rows))
            proposer.tell(config, time_us(config, rows))
        logs.append(math.log(best / found))
    return math.exp(sum(logs) / seeds)


def unbuilt(pool: Pool) -> tuple[NDArray[np.intp], Matrix, Matrix]:
    """What a past is asked with where nothing was built and there is no estimate."""
    return pool.rows, np.full((len(pool), 3), np.nan), np.zeros(len(pool))


def test_results_of_workloads_alike_lead_to_the_best_at_once():
    past = [result for rows in (5.0, 7.0, 8.0) for result in results(rows)]
    cold, warm = reached(6.0, [], 6), reached(6.0, past, 6)
    assert warm > 0.9
    assert warm > cold + 0.1


@pytest.mark.parametrize(
    "past", [[r for rows in (5.0, 7.0, 8.0) for r in results(rows, scrambled=True)], results(40.0)], ids=["scrambled", "one unlike source"]
)
def test_a_history_that_misleads_costs_no_more_than_noise(past):
    assert reached(6.0, past, 24) > reached(6.0, [], 24) - 0.06


def test_trust_is_what_held_among_the_sources_themselves():
    encoding = Pool(SPACE, seed=0).encoding
    told = Past(encoding, [r for rows in (5.0, 7.0, 8.0) for r in results(rows)], (6.0,), estimated=False)
    noise = Past(encoding, [r for rows in (5.0, 7.0, 8.0) for r in results(rows, scrambled=True)], (6.0,), estimated=False)
    near, far = (Past(encoding, results(rows), (6.0,), estimated=False) for rows in (7.0, 30.0))
    assert told.tried and told.trust > 0.7 and told.spread is not None and told.spread < 0.4
    assert noise.trust < 0.2
    assert not near.tried and near.trust > 5 * far.trust


def spilling(config: Config) -> Resources:
    """What no knob tells: a third of the configs spills."""
    return Resources(shared_memory_bytes=16384, registers=128, num_warps=4, spill_bytes=512 * (random.Random(f"{sorted(config.items())}").random() < 1 / 3))


def test_what_builds_need_and_estimates_say_here_is_compared_with_elsewhere():
    pool = Pool(SPACE, seed=0)
    for estimated in (False, True):
        # Where there is an estimate, the slow points are those of a long one.
        logs = {str(config): 1.5 * bool(spilling(config).spill_bytes) for config in CONFIGS}
        past = [
            PastResult(
                source=f"{rows}",
                features=(rows,),
                config=config,
                time_us=math.exp(logs[str(config)] * (1.5 if estimated else 1.0)),
                estimate_us=math.exp(logs[str(config)]) if estimated else None,
                resources=None if estimated else spilling(config),
            )
            for rows in (5.0, 7.0)
            for config in random.Random(int(rows)).sample(CONFIGS, 100)
        ]
        told = Past(pool.encoding, past, (6.0,), estimated=estimated)
        rows, unknown, flat = unbuilt(pool)
        wanted = np.array([logs[str(config)] for config in pool.configs])
        needs = unknown if estimated else np.array([amounts(spilling(config)) for config in pool.configs])
        seeing = told.expect(rows, needs, wanted if estimated else flat)
        blind = told.expect(rows, unknown, flat)
        assert np.corrcoef(seeing, wanted)[0, 1] > 0.9
        assert abs(np.corrcoef(blind, wanted)[0, 1]) < 0.6


def test_the_past_is_asked_again_only_where_more_is_known(monkeypatch: pytest.MonkeyPatch):
    pool = Pool(SPACE, seed=0)
    past = Past(pool.encoding, [replace(r, resources=spilling(r.config)) for rows in (5.0, 7.0, 8.0) for r in results(rows)], (6.0,), estimated=False)
    asked: list[int] = []
    expect = Past.expect
    monkeypatch.setattr(Past, "expect", lambda self, rows, *more: (asked.append(len(rows)), expect(self, rows, *more))[1])
    expectation = Expectation(pool, Foresight(pool), past)
    expectation.grow(len(pool))
    estimates = np.zeros(len(pool))
    expectation.ask(estimates)
    expectation.ask(estimates + 0.01)
    expectation.build(3, spilling(pool.configs[3]))
    expectation.ask(estimates)
    estimates[[5, 6]] = 1.0
    expectation.ask(estimates)
    expectation.consider(past)
    expectation.keep(np.arange(10))
    expectation.ask(estimates[:10])
    assert asked == [len(pool), 1, 2, 10]


def test_at_first_every_second_turn_leaves_the_past_aside():
    pool = Pool(SPACE, seed=0)
    tried, untried, noise = (
        Expectation(pool, Foresight(pool), Past(pool.encoding, [r for rows in sources for r in results(rows, scrambled=scrambled)], (6.0,), estimated=False))
        for sources, scrambled in (((5.0, 7.0, 8.0), False), ((7.0,), False), ((30.0,), False))
    )
    assert tried.led and not tried.hedged and untried.hedged and not untried.led
    assert [tried.aside(turn, turn) for turn in (0, 1, 7, 9)] == [False, True, True, False]
    assert [untried.aside(turn, turn) for turn in (0, 1, 31, 33)] == [False, True, True, False]
    assert not noise and noise.trust == 0 and not noise.aside(1, 1)
    blind, seeing = (TimeModel(pool, estimate, Past(pool.encoding, with_estimates(5.0, 7.0), (6.0,), estimated=True)) for estimate in (None, lambda *_: 1.0))
    assert [blind.lead(turn, turn) for turn in (0, 1)] == [Lead.PAST, Lead.PAST]
    assert [seeing.lead(turn, turn) for turn in (0, 1, 3, 9)] == [Lead.PAST, Lead.ESTIMATE, Lead.ESTIMATE, Lead.PAST]


def with_estimates(*sources: float) -> list[PastResult]:
    return [replace(result, estimate_us=10.0) for rows in sources for result in results(rows)]


def test_a_history_that_is_not_believed_leaves_the_first_builds_to_chance():
    """They were the first of the space in its order: a regression without trust likes all points alike."""

    def first(past: list[PastResult]) -> list[Config]:
        proposer = make_proposer("cost", SPACE, seed=0, past=past, features=(6.0,), estimate=lambda config, resources: 10.0 if resources else math.nan)
        return [wanted for _ in range(3) for wanted in proposer.widen(4)]

    scrambled = [replace(result, estimate_us=10.0) for rows in (5.0, 7.0, 8.0) for result in results(rows, scrambled=True)]
    told = Past(Pool(SPACE, seed=0).encoding, scrambled, (6.0,), estimated=True)
    assert told.tried and told.trust == 0
    assert first(scrambled) == first([]) and len({config["m"] for config in first(scrambled)}) > 1


def test_a_history_that_misleads_beside_an_estimate_costs_no_more_than_noise():
    def estimate(config: Config, resources: Resources | None) -> float:
        return time_us(config, 6.0) * math.exp(0.4 * random.Random(f"{sorted(config.items())} estimate").random())

    def found(past: list[PastResult]) -> float:
        logs = []
        for seed in range(4):
            proposer = make_proposer("cost", SPACE, seed=seed, past=past, features=(6.0,), estimate=estimate)
            times = []
            for _ in range(10):
                config = proposer.ask()
                assert config is not None
                times.append(time_us(config, 6.0))
                proposer.tell(config, times[-1])
            logs.append(math.log(min(time_us(config, 6.0) for config in CONFIGS) / min(times)))
        return math.exp(sum(logs) / len(logs))

    scrambled = [replace(r, estimate_us=time_us(r.config, float(r.source))) for rows in (5.0, 7.0, 8.0) for r in results(rows, scrambled=True)]
    # Elsewhere, and there in every source, what is best here was three times slower than its estimate.
    agreeing = [
        replace(r, estimate_us=r.time_us, time_us=(r.time_us or 1.0) * (3.0 if r.config["warps"] == 8 else 1.0)) for rows in (9.0, 10.0) for r in results(rows)
    ]
    assert Past(Pool(SPACE, seed=0).encoding, agreeing, (6.0,), estimated=True).trust > 0.8
    assert min(found(scrambled), found(agreeing)) > found([]) - 0.06


@pytest.mark.parametrize("estimated", [True, False])
def test_a_history_without_anything_to_learn_from_says_nothing(estimated):
    encoding = Pool(SPACE, seed=0).encoding
    failed = [replace(result, time_us=None) for result in results(7.0)]
    assert len(Past(encoding, failed, (6.0,), estimated=estimated)) == 0
    flat = [replace(result, source=str(turn % 3), time_us=5.0, estimate_us=5.0) for turn, result in enumerate(results(7.0))]
    mean = Past(encoding, flat, (6.0,), estimated=estimated).expect(*unbuilt(Pool(SPACE, seed=0)))
    assert abs(mean).max() < 1e-6
    proposer = make_proposer("cost", SPACE, seed=0, estimate=(lambda config, resources: 1.0) if estimated else None, past=failed, features=(6.0,))
    assert proposer.ask() is not None


def test_knobs_and_values_of_other_versions_are_matched_by_name_or_left_out():
    encoding = Pool(SPACE, seed=0).encoding
    foreign = [replace(result, config={**result.config, "warps": 32, "unroll": 7}) for result in results(7.0)]
    past = Past(encoding, foreign, (6.0,), estimated=False)
    mean = past.expect(*unbuilt(Pool(SPACE, seed=0)))
    assert len(past) == len(foreign)
    assert all(map(math.isfinite, mean))


def test_results_heard_during_a_search_count_once_there_are_some():
    proposer = make_proposer("cost", SPACE, seed=0, features=(6.0,), relate=lambda workload, config, time, resources: results_of(config, time))
    workload = find_operator("matmul").spec.workload("M=64,N=64,K=64")
    for config in random.Random(1).sample(CONFIGS, 64):
        proposer.heard(workload, config, time_us(config, 7.0), None)  # type: ignore[attr-defined]
    config = proposer.ask()
    asked = []
    for _ in range(6):
        config = proposer.ask()
        assert config is not None
        asked.append(time_us(config, 6.0))
        proposer.tell(config, asked[-1])
    assert min(asked) < 2.5 * min(time_us(config, 6.0) for config in CONFIGS)


def results_of(config: Config, time: float | None) -> PastResult:
    return PastResult(source="heard", features=(7.0,), config=config, time_us=time)


def test_resources_are_foreseen_from_other_builds():
    pool = Pool(SPACE, seed=0)
    foresight = Foresight(pool)

    def needs(config: Config) -> Resources:
        m, n, warps, stages = (float(str(config[name])) for name in ("m", "n", "warps", "stages"))
        wanted = m * n / (32 * warps) + 30
        return Resources(
            shared_memory_bytes=int((m + n) * 128 * stages), registers=int(min(wanted, 255)), spill_bytes=int(8 * max(wanted - 255, 0)), num_warps=int(warps)
        )

    rng = random.Random(0)
    built = rng.sample(range(len(pool)), 60)
    for number in built:
        foresight.add(number, needs(pool.configs[number]))
    foresight.learn()
    rest = np.array([number for number in range(len(pool)) if number not in built])
    for number, foreseen in zip(rest, foresight.foresee(rest), strict=True):
        real = needs(pool.configs[number])
        assert foreseen.num_warps == real.num_warps
        assert abs(math.log2(foreseen.shared_memory_bytes / real.shared_memory_bytes)) < 0.6


def test_logs_give_the_nearest_workloads_results_and_not_ones_own(tmp_path: Path):
    operator = find_operator("matmul")
    kinship = Kinship(workload=operator.spec.workload("M=4096,N=4096,K=4096,dtype=bfloat16"), target=H200, spec=operator.spec)
    config = operator.space(kinship.workload, H200).default()
    log = TuningLog(tmp_path / "matmul.jsonl")
    for number, text in enumerate(["M=4096,N=4096,K=4096,dtype=bfloat16", "M=2048,N=4096,K=4096,dtype=bfloat16", "M=1,N=64,K=64,dtype=float16"]):
        log.append(
            Record(
                trial=number,
                workload=operator.spec.workload(text),
                target=H200,
                config=config,
                status=Status.OK,
                measurement=Measurement(protocol="graph/1", median_us=100.0, min_us=99.0, max_us=101.0),
            )
        )
    past = LogHistory([log.path, tmp_path / "missing.jsonl"]).past(kinship)
    assert [result.time_us for result in past] == [100.0, 100.0]
    assert past[0].features[:3] == (12.0, 11.0, 12.0) or past[0].features[:3] == (12.0, 12.0, 11.0)
    assert past[0].estimate_us is not None
    assert past[1].features != past[0].features
    assert log.path in default_history("matmul", log.path)


def test_shipped_logs_are_a_default_history():
    assert any(path.name.startswith("matmul") for path in default_history("matmul", None))
    assert not any(path.name.startswith("best") for path in default_history("matmul", None))


def test_a_history_that_was_named_must_be_readable_and_is_counted(tmp_path: Path):
    operator, said = find_operator("matmul"), []
    log = TuningLog(tmp_path / "matmul.jsonl")
    for text in ("M=64,N=64,K=64,dtype=float16", "M=128,N=64,K=64,dtype=float16", "M=128,N=64,K=64,dtype=float16"):
        workload = operator.spec.workload(text)
        log.append(Record(trial=0, workload=workload, target=H200, config=operator.space(workload, H200).default(), status=Status.CRASH, message="no"))
    named_history([log.path], "matmul", "auto", said.append)
    named_history([log.path], "softmax", "cost", said.append)
    named_history([log.path], "matmul", "gp", said.append)
    named_history([], "matmul", "gp", said.append)
    assert said == [
        "history: 3 results of 2 workloads",
        "history: 0 results of 0 workloads; none of them is of softmax",
        "--history is not used by --search gp; those that start from it: auto, cost",
    ]
    (tmp_path / "damaged.jsonl").write_text("no log\n")
    (tmp_path / "folder.jsonl").mkdir()
    for name, fault in (("missing.jsonl", LogError), ("damaged.jsonl", LogError), ("folder.jsonl", TilewrightError)):
        with pytest.raises(fault, match=name):
            tune("matmul", ["M=64,N=64,K=64,dtype=float16"], device="interpreter", log=log.path, history=[log.path, tmp_path / name])
        assert LogHistory([tmp_path / name]).count("matmul") == (0, 0)


def test_what_is_heard_is_worked_out_once_it_is_thought_over_and_not_where_a_search_has_results_of_its_own() -> None:
    made: list[int] = []

    def relate(workload: Workload, config: Config, time_us: float | None, resources: Resources | None) -> PastResult:
        made.append(len(made))
        return PastResult(source=workload.key, features=(float(workload.dims["M"]),), config=config, time_us=time_us)

    proposer = CostProposer(SPACE, seed=0, features=(6.0,), relate=relate)
    others = [Workload(operator="x", dims={"M": 2**place}, dtypes={}) for place in range(4)]
    configs = list(SPACE.enumerate())
    heard = 0
    while heard < 31:
        proposer.heard(others[heard % 4], configs[heard % len(configs)], 10.0 + heard, None)
        heard += 1
    assert made == []
    proposer.heard(others[0], configs[0], 9.0, None)
    assert len(made) == 32
    for _ in range(18):
        config = proposer.ask()
        assert config is not None
        proposer.tell(config, 10.0)
    for place in range(200):
        proposer.heard(others[place % 4], configs[place % len(configs)], 10.0, None)
    assert len(made) == 32


def test_what_is_told_of_a_point_holds_for_one_that_differs_in_a_knob_that_hardly_mattered_elsewhere() -> None:
    def elsewhere(rows: float) -> list[PastResult]:
        chosen = random.Random(int(rows)).sample(CONFIGS, 80)
        slow = [abs(log2(config, "m") - rows) + abs(log2(config, "n") - 7) + (log2(config, "m") - rows) * (log2(config, "n") - 6) / 3 for config in chosen]
        times = [100 * math.exp(0.3 * tile) for tile in slow]
        return [
            PastResult(config=config, time_us=time, estimate_us=100.0, resources=None, features=(rows,), source=f"rows {rows}")
            for config, time in zip(chosen, times, strict=True)
        ]

    pool = Pool(SPACE, seed=0)
    past = Past(pool.encoding, [result for rows in (5.0, 6.0, 8.0) for result in elsewhere(rows)], (7.0,), estimated=True)
    assert past.trust > 0.3

    def share_of_a_surprise(past: Past | None, knob: str, value: int) -> float:
        """What of a time that nobody expected is expected of the point that differs in one knob."""
        model = TimeModel(pool, lambda config, resources: 100.0, past)
        here = {"m": 64, "n": 128, "warps": 4, "stages": 3}
        numbers = [pool.number(config) for config in (here, {**here, knob: value})]
        others = [pool.number({**here, "m": 256, "n": 16}), pool.number({**here, "m": 16, "n": 256})]
        for number in others:
            model.tell(number, 100.0)
        before, _ = model.predict()
        model.tell(numbers[0], 400.0)
        after, _ = model.predict()
        shift = after - before
        return float(shift[numbers[1]] / shift[numbers[0]])

    for knob, value in (("warps", 8), ("stages", 4)):
        assert share_of_a_surprise(past, knob, value) > share_of_a_surprise(None, knob, value) + 0.1
    # That of m is told by how it compares with the rows, and not by m's own length.
    assert share_of_a_surprise(past, "n", 64) < share_of_a_surprise(past, "warps", 8)


def test_what_is_fast_elsewhere_though_the_estimate_calls_it_slow_is_expected_to_be_fast_here():
    """And the estimate's slope is what it was worth there: softmax between two products is nothing that it knows."""

    def elsewhere(rows: float, *, misled: bool) -> list[PastResult]:
        told = [(config, time_us(config, rows)) for config in random.Random(int(rows)).sample(CONFIGS, 100)]
        return [
            PastResult(source=f"{rows}", features=(rows,), config=config, time_us=time, estimate_us=1e4 / time if misled else time) for config, time in told
        ]

    pool = Pool(SPACE, seed=0)
    wanted = np.array([time_us(config, 6.0) for config in pool.configs])
    right, wrong = (Past(pool.encoding, [r for rows in (5.0, 7.0) for r in elsewhere(rows, misled=misled)], (6.0,), estimated=True) for misled in (False, True))
    assert right.slope > 0.95 and wrong.slope == 0.0
    rows, unknown, _ = unbuilt(pool)
    for past, estimates in ((right, np.log(wanted)), (wrong, -np.log(wanted))):
        relative = estimates - estimates.min()
        expected = relative + past.trust * past.expect(rows, unknown, relative)
        first = np.argsort(expected, kind="stable")[:8]
        assert wanted.min() / wanted[first].min() > 0.9
    models = [TimeModel(pool, lambda config, resources: 1.0, past) for past in (right, wrong)]
    told = np.log(np.array([1.0, 2.0, 4.0]))
    told_of = np.column_stack([told, np.zeros(3), np.zeros(3)])
    slopes = [model._leads.shares(lead, told_of, np.zeros(3), 0.2)[0] for model in models for lead in (Lead.ESTIMATE, Lead.PAST)]
    assert slopes[0] == pytest.approx(slopes[1], abs=0.1) and slopes[2] < slopes[3] - 0.2
