"""What is learned of all operators corrects the general estimate, takes turns with it, and may be wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

import tilewright.search.pretrained as pretrained
from tilewright.descriptors import NAMES, describe_for
from tilewright.estimate import GeneralEstimate, estimate_for
from tilewright.history import Kinship
from tilewright.library import find_operator
from tilewright.record import Config, Resources
from tilewright.search import make_proposer
from tilewright.search.encoding import Matrix
from tilewright.search.leads import Lead
from tilewright.search.model import TimeModel
from tilewright.search.past import Past
from tilewright.search.past_result import PastResult
from tilewright.search.pool import Pool
from tilewright.search.pretrained import Correction, Network, Weights, corrections_of, network_of, shipped
from tilewright.search.wide import CostProposer
from tilewright.space import Cfg, Space
from tilewright.target import named_target
from tilewright.tiles import stage_namer
from tilewright.workload import Workload

H200 = named_target("sm_90")
SOFTMAX = find_operator("softmax").spec
ROWS = Workload(operator="softmax", dims={"rows": 4096, "cols": 1024}, dtypes={"dtype": "bfloat16"})
WARPS, SHARED = NAMES.index("warps"), NAMES.index("shared")


def knobs(cfg: Cfg) -> None:
    cfg.define_knob("warps", [1, 2, 4, 8, 16])
    cfg.define_knob("block", [1, 2, 4, 8, 16, 32])
    cfg.define_knob("order", ["a", "b", "c"])
    cfg.define_knob("num_stages", [1, 2, 3, 4])


SPACE = Space({"s": knobs})
CONFIGS = list(SPACE.enumerate())


def needs(config: Config) -> Resources:
    block, warps = int(str(config["block"])), int(str(config["warps"]))
    return Resources(shared_memory_bytes=1024 * block, registers=32 + 4 * block, num_warps=warps, programs=4096 // block)


def estimate() -> GeneralEstimate:
    found = estimate_for(SOFTMAX, ROWS, H200)
    assert isinstance(found, GeneralEstimate)
    return found


def slower(described: Matrix) -> Matrix:
    """What the network of these tests says, and what is true: few warps are slow, far more so than the estimate has it."""
    found: Matrix = 0.6 * np.abs(described[:, WARPS] - 3)
    return found


def time_us(config: Config) -> float:
    general = estimate()
    estimated = general(config, needs(config))
    assert estimated is not None
    jag = random.Random(f"{sorted(config.items())}").random()
    return estimated * math.exp(float(slower(np.array([general.describe(config, needs(config), estimated)]))[0]) + 0.05 * jag)


def share_reached(count: int, network: Callable[[Matrix], Matrix], monkeypatch: pytest.MonkeyPatch) -> float:
    """Of the best speed, after so many measurements."""
    monkeypatch.setattr(pretrained, "shipped", lambda: network)
    proposer = make_proposer("cost", SPACE, seed=0, estimate=estimate())
    assert isinstance(proposer, CostProposer)
    times = []
    for _ in range(count):
        for config in proposer.widen(8):
            proposer.built(config, needs(config))
        config = proposer.ask()
        assert config is not None
        times.append(time_us(config))
        proposer.tell(config, times[-1])
    return min(map(time_us, CONFIGS)) / min(times)


def test_descriptors_are_what_their_names_say():
    build = Resources(shared_memory_bytes=1023, registers=64, num_warps=4, programs=528)
    found = dict(zip(NAMES, describe_for(SOFTMAX, ROWS, H200)({"num_stages": 3}, build, math.e), strict=True))
    assert found["warps"] == 2 and found["registers"] == 6 and found["shared"] == 10 and found["spilled"] == found["stack"] == found["scratch"] == 0
    assert found["occupancy"] == 3 and found["resident_warps"] == 5  # 65,536 registers hold 8 blocks of 64 x 128
    assert found["programs"] == 2 and found["waves"] == -1 and found["filled"] == 0.5 and found["imbalance"] == 0
    moved = SOFTMAX.bytes_moved(ROWS)
    assert found["bytes"] == pytest.approx(math.log2(moved / 528)) and found["bytes_a_thread"] == pytest.approx(math.log2(moved / 528 / 128))
    results = 4096 * 1024 / 528
    assert found["results"] == pytest.approx(math.log2(1 + results)) and found["results_a_thread"] == pytest.approx(math.log2(1e-3 + results / 128))
    assert found["operations_a_thread"] == pytest.approx(math.log2(1 + SOFTMAX.flops(ROWS) / 528 / 128))
    more = replace(build, programs=133, scratch_bytes=moved, stack_bytes=7, spill_bytes=3)
    odd = dict(zip(NAMES, describe_for(SOFTMAX, ROWS, H200)({}, more, 1.0), strict=True))
    assert odd["imbalance"] == pytest.approx(math.log2(2 * 132 / 133)) and (odd["scratch"], odd["stack"], odd["spilled"]) == (1, 3, 2)
    assert found["register_bytes"] == pytest.approx(math.log2(8 * 128 * 64 * 4)) and found["shared_in_use"] == pytest.approx(math.log2(1 + 8 * 1023))
    assert found["bytes_a_slot"] == pytest.approx(math.log2(moved / (132 * 8 * 128)))
    assert found["estimate"] == 1 and found["stages"] == 3


def test_descriptors_of_a_build_that_says_little_are_numbers():
    describe = describe_for(SOFTMAX, ROWS, H200)
    assert np.isfinite(describe({}, Resources(shared_memory_bytes=0), 1.0)).all()
    assert np.isfinite(describe({"num_stages": 2, "stages": 5}, Resources(shared_memory_bytes=1 << 20, registers=255, num_warps=32, programs=1), 1e9)).all()
    assert describe({"num_stages": 2, "stages": 5}, Resources(shared_memory_bytes=0), 1.0)[-1] == 0  # two knobs named so say nothing
    assert describe({"num_stages": 10**400}, Resources(shared_memory_bytes=0), 1.0)[-1] == 16


def test_a_tile_along_a_dim_named_as_stages_are_is_no_number_of_stages():
    stages = [stage_namer(Workload(operator="o", dims={dim: 64}, dtypes={}))({"S": 32, "num_stages": 3}) for dim in ("S", "s", "n")]
    assert stages == [3, 3, 0]  # of a dim n, both are named so, and neither is believed
    assert stage_namer(ROWS)({"S": 4}) == 4


def test_a_network_is_evaluated_as_it_was_trained():
    layers = [([[1.0, -1.0], [0.5, 0.0]], [0.0, 1.0]), ([[2.0, 1.0]], [0.25])]
    other = [([[0.0, 0.0], [0.0, 0.0]], [0.0, 0.0]), ([[0.0, 0.0]], [1.0])]
    weights = Weights(names=["x", "y"], mean=[1.0, 0.0], deviation=[2.0, 1.0], layers=[layers, other], trained_on=[], device="none")
    scaled = ((5.0 - 1.0) / 2.0, 3.0)
    hidden = (scaled[0] - scaled[1], 0.5 * scaled[0] + 1.0)
    silu = [one / (1 + math.exp(-one)) for one in hidden]
    assert Network(weights)(np.array([[5.0, 3.0]])) == pytest.approx([(2 * silu[0] + silu[1] + 0.25 + 1.0) / 2])


def test_weights_of_other_descriptors_are_refused():
    weights = Weights(names=["x"], mean=[0.0], deviation=[1.0], layers=[], trained_on=[], device="none")
    for text, reason in ((msgspec.json.encode(weights), "of the descriptors x"), (b"{}", "no weights"), (b'{"names":null}', "no weights")):
        with pytest.raises(ValueError, match=reason):
            network_of(text)


def test_the_shipped_network_is_of_these_descriptors_and_answers_anything():
    described = np.vstack([np.zeros(len(NAMES)), np.full(len(NAMES), 1e4), np.full(len(NAMES), -1e4)])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert np.isfinite(shipped()(described)).all()
    answers = [shipped()(np.array([estimate().describe(config, needs(config), 10.0)]))[0] for config in CONFIGS[::40]]
    assert 0.01 < np.std(answers) < 2


def test_only_the_general_estimate_is_corrected():
    pool = Pool(SPACE, seed=0)
    for estimated, corrected in ((None, False), (lambda *_: 1.0, False), (estimate(), True)):
        correction = Correction(estimated)
        correction.grow(len(pool))
        correction.take([3, 4], [pool.configs[3], pool.configs[4]], [needs(pool.configs[3])] * 2, [1.0, math.inf])
        assert bool(correction) == corrected and bool(correction.mean[3]) == corrected and correction.mean[4] == 0
    correction.take([3], [pool.configs[3]], [needs(pool.configs[3])], [math.inf])  # foreseen to run, and cannot
    assert correction.mean[3] == 0
    correction.take([3], [pool.configs[3]], [needs(pool.configs[3])], [1.0])
    correction.keep(np.array([3]))
    assert len(correction.mean) == 1 and correction.mean[0] != 0


def test_points_that_are_not_built_are_corrected_once_their_builds_are_foreseen():
    model = TimeModel(Pool(SPACE, seed=0), estimate())
    for number in (0, 50, 100):
        model.build(number, needs(model.pool.configs[number]))
    mean, _ = model.predict(Lead.CORRECTED)
    assert len(set(mean.tolist())) == 1  # nothing is foreseen yet, so built and unbuilt are told apart by nothing
    for number in (150, 200, 250):
        model.build(number, needs(model.pool.configs[number]))
    apart = model.predict(Lead.CORRECTED)[0] - model.predict(Lead.ESTIMATE)[0]
    unbuilt = np.delete(np.arange(len(model.pool)), [0, 50, 100, 150, 200, 250])
    assert np.ptp(apart[unbuilt]) > 0.05 and (model._correction.mean[unbuilt] != 0).all()


def test_the_correction_and_the_estimate_alone_take_turns():
    pool = Pool(SPACE, seed=0)
    corrected, author = TimeModel(pool, estimate()), TimeModel(pool, lambda *_: 1.0)
    assert [corrected.lead(turn, turn) for turn in (0, 1, 2, 63, 65)] == [Lead.CORRECTED, Lead.ESTIMATE, Lead.CORRECTED, Lead.ESTIMATE, Lead.CORRECTED]
    assert {author.lead(turn, turn) for turn in range(9)} == {Lead.ESTIMATE}
    led = TimeModel(pool, estimate(), past_of(slower))
    assert [led.lead(turn, turn) for turn in range(10)] == [
        *(Lead.PAST, Lead.ESTIMATE, Lead.PAST, Lead.CORRECTED, Lead.PAST, Lead.ESTIMATE, Lead.PAST, Lead.CORRECTED),
        *(Lead.PAST, Lead.PAST),
    ]  # fmt: skip


def test_builds_take_turns_between_who_may_lead(monkeypatch: pytest.MonkeyPatch):
    """Alone, a correction that is wrong would have only what it likes built, and nothing else could be measured."""
    count = len(CONFIGS)
    liked = {Lead.CORRECTED: np.arange(count, dtype=float), Lead.ESTIMATE: -np.arange(count, dtype=float)}
    monkeypatch.setattr(TimeModel, "gain", lambda self, lead=None: liked[lead])
    proposer = make_proposer("cost", SPACE, seed=0, estimate=estimate())
    assert isinstance(proposer, CostProposer)
    proposer.built(CONFIGS[100], needs(CONFIGS[100]))
    pool = proposer._sampler._model.pool
    assert len(pool) == count
    wanted = [pool.number(config) for config in proposer._sampler.widen(proposer.study, 8)]
    assert sorted(wanted) == [0, 1, 2, 3, count - 4, count - 3, count - 2, count - 1]


def test_how_far_who_leads_is_believed_and_what_results_make_of_it():
    pool = Pool(SPACE, seed=0)
    cold, led = TimeModel(pool, estimate()), TimeModel(pool, estimate(), past_of(lambda described: 0.5 * shipped()(described)))
    assert [part.tolist() for part in cold._leads.beliefs(Lead.CORRECTED)] == [[1.0, 0.0, 0.8], [0.3, 0.0, 1.0]]
    assert [part.tolist() for part in cold._leads.beliefs(Lead.ESTIMATE)] == [[1.0, 0.0, 0.0], [0.3, 0.0, 0.0]]
    believed, allowed = led._leads.beliefs(Lead.CORRECTED)
    assert believed[2] == pytest.approx(0.5, abs=0.02) and allowed[2] == 0.2 and believed[1] == 0
    assert led._leads.beliefs(Lead.PAST)[0][1] == led._expected.trust > 0.3 and led._leads.beliefs(Lead.PAST)[0][2] == 0
    corrections = np.linspace(-1, 1, 20)
    told_of = np.column_stack([np.zeros(20), np.zeros(20), corrections])
    shares = [cold._leads.shares(Lead.CORRECTED, told_of, truth * corrections, 0.2)[2] for truth in (1.2, 0.0, -1.0)]
    assert shares == pytest.approx([1.2, 0.0, 0.0], abs=0.02)


def test_other_workloads_that_hardly_held_do_not_take_the_correction_away(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pretrained, "shipped", lambda: slower)
    weak, none = past_of(slower), past_of(slower)
    weak.trust, none.trust = 0.1, 0.0
    models = [TimeModel(Pool(SPACE, seed=0), estimate(), past) for past in (weak, none)]
    assert models[0].lead(9, 9) is Lead.PAST and models[1].lead(9, 9) is Lead.ESTIMATE and models[1].lead(10, 10) is Lead.CORRECTED
    believed, allowed = models[0]._leads.beliefs(Lead.PAST)
    assert believed.tolist() == pytest.approx([1.0, 0.1, 1.0], abs=0.02) and allowed[2] == 0.2
    assert models[1]._leads.beliefs(Lead.CORRECTED)[0].tolist() == [1.0, 0.0, 0.8]  # where nothing held, what they say of the correction is nothing either


def past_of(truth: Callable[[Matrix], Matrix]) -> Past:
    """Results of three other workloads, as the network has it or otherwise."""
    kinship = Kinship(workload=ROWS, target=H200, spec=SOFTMAX)
    results: list[PastResult] = []
    for cols in (512, 2048, 4096):
        workload = Workload(operator="softmax", dims={"rows": 4096, "cols": cols}, dtypes={"dtype": "bfloat16"})
        for config in random.Random(cols).sample(CONFIGS, 100):
            told = kinship.result(workload, H200, config, 1.0, needs(config))
            assert told.estimate_us is not None and told.described is not None
            missed = float(truth(np.array([told.described]))[0])
            results.append(kinship.result(workload, H200, config, told.estimate_us * math.exp(missed), needs(config)))
    return Past(Pool(SPACE, seed=0).encoding, results, kinship.features, estimated=True)


def test_other_workloads_tell_what_share_of_the_correction_holds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pretrained, "shipped", lambda: slower)
    shares = [past_of(truth).corrected for truth in (slower, lambda d: 0.5 * slower(d), lambda d: 0 * d[:, 0], lambda d: -slower(d))]
    assert shares == pytest.approx([1.0, 0.5, 0.0, 0.0], abs=0.02)


def test_results_without_descriptors_are_not_corrected():
    described = estimate().describe(CONFIGS[0], needs(CONFIGS[0]), 10.0)
    found = corrections_of([None, described, None])
    assert found[0] == found[2] == 0 and found[1] == shipped()(np.array([described]))[0]
    assert len(corrections_of([])) == 0


def test_a_right_correction_finds_the_best_sooner_and_a_wrong_one_hardly_later(monkeypatch: pytest.MonkeyPatch):
    right, none, wrong = (
        [share_reached(count, network, monkeypatch) for count in (1, 12)] for network in (slower, lambda d: 0 * d[:, 0], lambda d: -slower(d))
    )
    assert right[0] > 0.9 and right[0] > none[0] + 0.05
    assert wrong[1] > 0.9 * none[1]
