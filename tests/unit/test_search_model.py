"""The cost model: its regression, its use of estimates and builds, and what it does with failures."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import optuna
import pytest

from tilewright.estimate import Tiling, estimate_for, general_us, guessed_resources, matmul_us, occupancy, overlapped
from tilewright.library import find_operator
from tilewright.record import Config, Resources, config_key
from tilewright.search import WideProposer, make_proposer
from tilewright.search.cost import CostSampler
from tilewright.search.encoding import Encoding
from tilewright.search.gaussian import Gaussian, Prior
from tilewright.search.improvement import improvement
from tilewright.search.model import TimeModel
from tilewright.search.params import decoded, objective
from tilewright.search.pool import Pool
from tilewright.space import Cfg, Space
from tilewright.target import named_target

H200 = named_target("sm_90")


def tiles(cfg: Cfg) -> None:
    m = cfg.define_knob("m", [16, 32, 64, 128, 256])
    n = cfg.define_knob("n", [16, 32, 64, 128, 256])
    cfg.define_knob("warps", [2, 4, 8])
    cfg.define_knob("order", ["row", "column"])
    cfg.require(m * n <= 128 * 256, "accumulator")


def number(config: Config, name: str) -> float:
    return float(str(config[name]))


def time_us(config: Config) -> float | None:
    m, n, warps = (number(config, name) for name in ("m", "n", "warps"))
    if m * n > 16384 and warps < 8:
        return None
    return 10 + 3 * abs(math.log2(m * n) - 13) + abs(math.log2(m / n)) + (0 if config["order"] == "row" else 2) + abs(math.log2(warps) - 2)


def search(space: Space, count: int, **options: object) -> list[float]:
    proposer = make_proposer("cost", space, seed=0, **options)  # type: ignore[arg-type]
    found = []
    for _ in range(count):
        config = proposer.ask()
        assert config is not None
        found.append(time_us(config) or math.inf)
        proposer.tell(config, time_us(config))
    return found


def optimum(space: Space) -> float:
    return min(time for config in space.enumerate() if (time := time_us(config)) is not None)


def test_the_posterior_is_that_of_the_textbook_however_it_was_built_up():
    rng = np.random.default_rng(0)
    points = rng.random((40, 3))
    encoding = Encoding(Space({"s": tiles}).knobs)
    groups = [group for group in encoding.groups if not group.exact][:3]
    groups = [replace(group, start=i, stop=i + 1) for i, group in enumerate(groups)]
    values = np.sin(points[:12].sum(axis=1) * 3)
    values -= values.mean()
    grown, whole = Gaussian(groups, Prior()), Gaussian(groups, Prior())
    grown.condition(points, [0, 1])
    for point in range(2, 12):
        grown.observe(point)
    whole.condition(points, list(range(12)))

    scale, noise = 0.7, math.exp(-7.0) + 1e-6
    root = np.sqrt(5) * np.linalg.norm((points[:, None] - points[None, :]) / scale, axis=2)
    kernel = (1 + root + root**2 / 3) * np.exp(-root)
    square = kernel[:12, :12] + noise * np.eye(12)
    mean = kernel[:, :12] @ np.linalg.solve(square, values)
    variance = 1 - np.einsum("po,op->p", kernel[:, :12], np.linalg.solve(square, kernel[:12]))
    for gaussian in (grown, whole):
        got, deviation = gaussian.posterior(values)
        assert np.allclose(got, mean, atol=1e-8)
        assert np.allclose(deviation**2, np.maximum(variance, 1e-12), atol=1e-8)


def test_the_fit_follows_the_gradient_of_its_loss():
    rng = np.random.default_rng(1)
    encoding = Encoding(Space({"s": tiles}).knobs)
    configs = list(Space({"s": tiles}).enumerate())[:60:4]
    points = encoding.vectors(encoding.rows(configs))
    values = rng.normal(size=len(points))
    gaussian = Gaussian(encoding.groups, Prior())
    distances = np.array([((points[:, None, g.start : g.stop] - points[None, :, g.start : g.stop]) ** 2).sum(axis=2).ravel() for g in encoding.groups])
    theta = gaussian._mean + 0.1
    _, gradient = gaussian._loss(theta, distances, values)
    for position in range(len(theta)):
        step = np.zeros(len(theta))
        step[position] = 1e-5
        numeric = (gaussian._loss(theta + step, distances, values)[0] - gaussian._loss(theta - step, distances, values)[0]) / 2e-5
        assert gradient[position] == pytest.approx(numeric, rel=1e-3, abs=1e-4)


def test_expected_improvement_matches_its_integral_and_orders_far_tails():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=400_000)
    for mean, deviation in ((0.0, 1.0), (0.5, 0.3), (-1.0, 2.0)):
        expected = np.maximum(0.2 - (mean + deviation * draws), 0).mean()
        assert improvement(np.array([mean]), np.array([deviation]), 0.2)[0] == pytest.approx(expected, rel=0.02)
    far = improvement(np.array([10.0, 20.0]), np.array([1.0, 1.0]), 0.0)
    assert far[0] > far[1] > 0


def test_equal_values_are_at_distance_zero_and_absent_knobs_have_a_place():
    def gated(cfg: Cfg) -> None:
        if cfg.define_knob("split", [1, 2, 4]) > 1:
            cfg.define_knob("reduce", ["atomic", "workspace", "none"])

    space = Space({"s": gated})
    encoding = Encoding(space.knobs)
    configs = list(space.enumerate())
    vectors = encoding.vectors(encoding.rows(configs))
    assert len(np.unique(vectors, axis=0)) == len(configs)
    assert (encoding.rows([{"split": 1}])[0] == [0, 3]).all()


def test_the_outermost_part_of_a_split_is_no_coordinate():
    def split(cfg: Cfg) -> None:
        cfg.define_split("tile", 64, num_outputs=2, policy="power2", min_factor=8)

    groups = Encoding(Space({"s": split}).knobs).groups
    assert [group.exact for group in groups] == [False, True]


def test_knobs_alone_find_the_optimum_in_a_quarter_of_the_space():
    space = Space({"s": tiles})
    assert min(search(space, 36)) == optimum(space)


def test_a_right_estimate_is_followed_at_once_and_a_wrong_one_is_left_behind():
    space = Space({"s": tiles})
    right = search(space, 3, estimate=lambda config, resources: time_us(config))
    assert min(right) == optimum(space)
    wrong = search(space, 50, estimate=lambda config, resources: 1000 / (time_us(config) or 1.0))
    assert min(wrong) <= 1.1 * optimum(space)


def test_a_point_that_the_estimate_rules_out_is_not_proposed_while_others_are_left():
    space = Space({"s": tiles})
    proposer = make_proposer("cost", space, seed=0, estimate=lambda config, resources: None if config["order"] == "column" else 1.0)
    allowed = sum(config["order"] == "row" for config in space.enumerate())
    asked = [proposer.ask() for _ in range(allowed)]
    assert sum(config is not None and config["order"] == "column" for config in asked) <= 1


def test_failures_lower_what_is_expected_of_points_like_them():
    pool = Pool(Space({"s": tiles}), seed=0)
    model = TimeModel(pool)
    corner = [k for k, config in enumerate(pool.configs) if time_us(config) is None]
    for point in corner[::2]:
        model.tell(point, None)
    for point in (k for k, config in enumerate(pool.configs) if config["m"] == 64):
        model.tell(point, time_us(pool.configs[point]))
    feasible = model.feasible()
    rest = [point for point in range(len(pool)) if point not in corner]
    assert feasible[corner[1::2]].mean() < feasible[rest].mean() - 0.05


def test_builds_are_wide_and_measurements_are_chosen_among_them():
    space = Space({"s": tiles})
    seen = []

    def estimate(config: Config, resources: Resources | None) -> float | None:
        return math.nan if resources is None else 10.0 + resources.registers if resources.registers else None

    proposer = make_proposer("cost", space, seed=0, estimate=estimate)
    assert isinstance(proposer, WideProposer)
    wanted = proposer.widen(12)
    assert len({config_key(config) for config in wanted}) == 12
    assert wanted[0] == space.default()
    registers = {config_key(config): 20 + 10 * position for position, config in enumerate(wanted)}
    for config in wanted[:-1]:
        proposer.built(config, Resources(shared_memory_bytes=0, registers=registers[config_key(config)]))
    for turn in range(11):
        if turn == 1:
            proposer.built(wanted[-1], None)
        config = proposer.ask()
        assert config is not None
        seen.append(config)
        proposer.tell(config, 10.0 + registers[config_key(config)])
    assert seen[0] == wanted[0]
    assert {config_key(config) for config in seen} == {config_key(config) for config in wanted[:-1]}
    assert not {config_key(config) for config in proposer.widen(20)} & {config_key(config) for config in wanted}


def test_what_was_handed_out_to_be_built_is_not_handed_out_again():
    space = Space({"s": tiles})
    proposer = make_proposer("cost", space, seed=0, estimate=lambda config, resources: time_us(config))
    assert isinstance(proposer, WideProposer)
    handed = [config_key(config) for _ in range(12) for config in proposer.widen(1)]
    assert len(set(handed[1:])) == len(handed) - 1 == 11  # the default may be among the model's too


def test_the_best_of_a_space_too_large_to_list_is_found_along_the_estimate():
    def vast(cfg: Cfg) -> None:
        for name in "abcdefg":
            cfg.define_knob(name, list(range(10)))
        cfg.require(cfg._config["a"] != 5, "a hole")

    def far(config: Config) -> float:
        return 1.0 + sum((number(config, name) - 7) ** 2 for name in "abcdefg")

    proposer = make_proposer("cost", Space({"s": vast}), seed=0, estimate=lambda config, resources: far(config))
    times = []
    for _ in range(12):
        config = proposer.ask()
        assert config is not None
        times.append(far(config))
        proposer.tell(config, times[-1])
    assert min(times) == 1.0


def test_points_of_a_large_space_come_and_go_without_losing_what_is_known():
    def vast(cfg: Cfg) -> None:
        for name in "abcdefg":
            cfg.define_knob(name, list(range(10)))

    space = Space({"s": vast})
    pool = Pool(space, seed=0)
    model = TimeModel(pool)
    for point in range(30):
        model.tell(point, 1.0 + sum(number(pool.configs[point], name) for name in "abcdefg"))
    model.predict()
    pool.spread(list(range(8)), near=300, drawn=20)
    model.grow()
    mean, deviation = model.predict()
    kept = np.array([*range(30), *range(100, len(pool), 2)])
    configs = [pool.configs[point] for point in kept]
    pool.keep(kept)
    model.keep(kept)
    after, doubt = model.predict()
    assert pool.configs == configs
    assert np.allclose(after, mean[kept], atol=1e-6)
    assert np.allclose(doubt, deviation[kept], atol=1e-6)


def test_the_sampler_serves_anyones_study():
    space = Space({"s": tiles})
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=CostSampler(space, seed=1))
    configs = []

    def run(trial: optuna.Trial) -> float:
        evaluation = space.evaluate(
            lambda knob: (
                knob.values[trial.suggest_int(knob.id, 0, len(knob.values) - 1)]
                if knob.ordered
                else knob.values[trial.suggest_categorical(knob.id, range(len(knob.values)))]
            )
        )
        configs.append(config_key(evaluation.config))
        return objective(time_us(evaluation.config))

    study.optimize(run, n_trials=30)
    assert len(set(configs)) == 30
    assert decoded(space, study.best_params) is not None


def test_a_space_too_large_to_list_is_searched_by_sample_and_neighbours():
    def vast(cfg: Cfg) -> None:
        for name in "abcdefg":
            cfg.define_knob(name, list(range(10)))

    def far(config: Config) -> float:
        return 1.0 + sum((number(config, name) - 7) ** 2 for name in "abcdefg")

    results = {}
    for name in ("cost", "random"):
        proposer = make_proposer(name, Space({"s": vast}), seed=0)
        times = []
        for _ in range(70):
            config = proposer.ask()
            assert config is not None
            times.append(far(config))
            proposer.tell(config, times[-1])
        results[name] = min(times)
    assert results["cost"] < 0.5 * results["random"]


@pytest.mark.parametrize(("warps", "shared", "registers", "expected"), [(4, 0, 32, 16), (8, 100 * 1024, 128, 2), (8, 0, 255, 1), (4, 228 * 1024, 32, 0)])
def test_occupancy_is_the_least_of_its_limits(warps, shared, registers, expected):
    assert occupancy(H200, warps=warps, shared_memory_bytes=shared, registers=registers) == expected


def test_overlapped_streams_take_at_least_the_longest_and_at_most_their_sum():
    for streams in itertools.product([0.0, 1.0, 5.0], repeat=3):
        assert max(streams) <= overlapped(*streams) <= sum(streams) + 1e-12


def tiling(**changes: int) -> Tiling:
    return replace(Tiling(rows=128, columns=256, depth=64, warps=8, stages=4), **changes)


def matmul(shape: tuple[int, int, int] = (4096, 4096, 4096), resources: Resources | None = None, **changes: int) -> float | None:
    return matmul_us(*shape, tiling(**changes), H200, dtype="float16", element_bytes=2, resources=resources)


def test_the_matmul_estimate_knows_what_every_author_knows():
    good = matmul()
    assert good is not None
    assert 150 < good < 300  # measured: 188 µs
    assert (matmul(rows=16, columns=32) or 0) > 3 * good  # operands read again and again
    assert (matmul(stages=1, depth=16) or 0) > 1.5 * good  # latency in the open
    assert matmul(depth=128, stages=5) is None  # 480 KiB of buffers
    few = (16, 4096, 14336)
    assert (matmul(few) or 0) > (matmul(few, rows=16, columns=32, depth=128, warps=2, stages=5) or math.inf)
    assert (matmul(few, splits=8) or 0) < (matmul(few) or 0)


def test_spills_found_by_the_build_make_an_estimate_longer_and_more_so_where_results_leave_no_registers():
    def slower(spill: int, **changes: int) -> float:
        shared = guessed_resources(tiling(**changes), 2, H200).shared_memory_bytes
        found = [matmul(resources=Resources(shared_memory_bytes=shared, registers=255, spill_bytes=held, num_warps=8), **changes) for held in (spill, 0)]
        assert found[0] is not None and found[1] is not None
        return found[0] / found[1]

    assert slower(100, rows=256, stages=3) > 2  # 256 results a thread: they spill in the loop
    assert 1 < slower(100) < slower(1000) < 1.5  # 128: around it


def test_the_matmul_estimate_knows_how_operands_are_read():
    ragged, even = (1000, 3000, 2000), (1024, 3072, 2048)
    assert (matmul(ragged, rows=64, columns=64) or 0) > (matmul(even, rows=64, columns=64) or math.inf)  # rows begin within a line
    assert (matmul(pointers=True, rows=64, columns=64) or 0) > (matmul(pointers=False, rows=64, columns=64) or math.inf)
    few = (16, 4096, 14336)
    narrow = {"rows": 16, "columns": 16, "depth": 128, "warps": 2, "stages": 5}
    assert (matmul(few, **narrow) or 0) > (matmul(few, **narrow, b_columns=True) or math.inf)  # 32 bytes at a time
    assert (matmul(columns=192, warps=8, accumulators=2) or 0) > (matmul(columns=192, warps=8) or math.inf)
    # Two stages of a warpgroup's tile: it is read while the next is awaited.
    assert (matmul(stages=2, depth=128) or 0) > 1.3 * (matmul(stages=4, depth=64) or math.inf)


def test_the_general_estimate_sees_the_parts_of_a_sum_in_the_workspace():
    def estimate(scratch: int, programs: int) -> float:
        held = Resources(shared_memory_bytes=98304, registers=90, num_warps=8, scratch_bytes=scratch, programs=programs)
        found = general_us(
            flops=2.0 * 512 * 512 * 16384,
            bytes_moved=2.0 * (2 * 512 * 16384 + 512 * 512),
            outputs=(512, 512),
            target=H200,
            dtype="float16",
            resources=held,
            programs=programs,
        )
        assert found is not None
        return found

    assert estimate(8 * 512 * 512 * 4, 128) < 0.5 * estimate(0, 16)  # the same tiles, and an eighth of the sum each
    assert estimate(8 * 512 * 512 * 4, 128) > estimate(0, 16) / 8


def test_the_general_estimate_prefers_large_tiles_for_large_products_and_never_beats_the_roofline():
    def estimate(registers: int, shared: int = 64 * 1024, spill: int = 0) -> float:
        resources = Resources(shared_memory_bytes=shared, registers=registers, spill_bytes=spill, num_warps=8)
        found = general_us(flops=2.0 * 4096**3, bytes_moved=3 * 2.0 * 4096**2, outputs=(4096, 4096), target=H200, dtype="float16", resources=resources)
        assert found is not None
        return found

    assert estimate(200) < estimate(64)
    assert estimate(200, spill=200) > estimate(200)
    assert estimate(200) > 2.0 * 4096**3 / 989e6
    too_much = Resources(shared_memory_bytes=240 * 1024, registers=64, num_warps=8)
    assert general_us(flops=1.0, bytes_moved=1.0, outputs=(1,), target=H200, dtype="float16", resources=too_much) is None


@pytest.mark.parametrize("name", ["evolutionary", "annealing", "descent"])
def test_moves_beat_uniform_search_on_a_smooth_space(name):
    def smooth(cfg: Cfg) -> None:
        for knob in "abcde":
            cfg.define_knob(knob, list(range(10)))

    def mean_of_best(searcher: str) -> float:
        best = []
        for seed in range(3):
            proposer = make_proposer(searcher, Space({"s": smooth}), seed=seed)
            times = []
            for _ in range(120):
                config = proposer.ask()
                assert config is not None
                times.append(1.0 + sum((number(config, knob) - 7) ** 2 for knob in "abcde"))
                proposer.tell(config, times[-1])
            best.append(min(times))
        return sum(best) / len(best)

    assert mean_of_best(name) < 0.7 * mean_of_best("random")


def test_an_operator_without_a_prediction_is_estimated_once_built():
    spec = find_operator("matmul").spec
    workload = spec.workload("M=4096,N=4096,K=4096")
    estimate = estimate_for(replace(spec, predict=None), workload, H200)
    assert estimate is not None
    unbuilt = estimate({}, None)
    assert unbuilt is not None and math.isnan(unbuilt)
    assert (estimate({}, Resources(shared_memory_bytes=0, registers=200, num_warps=8)) or 0) > 100
    predicted = estimate_for(replace(spec, predict=lambda workload, target, config, resources: 5.0), workload, H200)
    assert predicted is not None and predicted({}, None) == 5.0
    assert estimate_for(spec, workload, H200.interpreted()) is None
