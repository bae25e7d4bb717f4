"""Operators without `predict`: what a launch's grid and the session's other workloads are worth to their searches."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import msgspec
import pytest

from tilewright.children.resources import KernelResources, summary
from tilewright.estimate import Tiling, estimate_for, general_us, guessed_resources, matmul_us
from tilewright.history import Kinship
from tilewright.library import find_operator
from tilewright.record import Config, Resources, config_key
from tilewright.search import WideProposer, make_proposer
from tilewright.search.foresight import Foresight
from tilewright.search.model import TimeModel
from tilewright.search.past_result import PastResult
from tilewright.search.pool import Pool
from tilewright.space import Cfg, Space
from tilewright.target import named_target
from tilewright.workload import Workload

H200 = named_target("sm_90")
MATMUL = replace(find_operator("matmul").spec, predict=None)
SQUARE, FLAT, FEW = (MATMUL.workload(text) for text in ("M=2048,N=2048,K=2048", "M=512,N=4096,K=4096", "M=16,N=4096,K=4096"))


def tiles(cfg: Cfg) -> None:
    m = cfg.define_knob("m", [16, 32, 64, 128, 256])
    n = cfg.define_knob("n", [32, 64, 128, 256])
    k = cfg.define_knob("k", [32, 64, 128])
    warps = cfg.define_knob("warps", [2, 4, 8])
    stages = cfg.define_knob("stages", [1, 2, 3, 4])
    cfg.require(m * n <= 256 * 32 * warps, "more results than registers")
    cfg.require((m + n) * k * stages <= 112 * 1024, "more buffers than shared memory")


SPACE = Space({"tiled": tiles})
CONFIGS = list(SPACE.enumerate())


def tiling(config: Config) -> Tiling:
    m, n, k, warps, stages = (int(str(config[name])) for name in ("m", "n", "k", "warps", "stages"))
    return Tiling(rows=m, columns=n, depth=k, warps=warps, stages=stages)


def launched(workload: Workload, config: Config) -> int:
    return math.ceil(workload.dims["M"] / tiling(config).rows) * math.ceil(workload.dims["N"] / tiling(config).columns)


def needs(workload: Workload, config: Config) -> Resources:
    return msgspec.structs.replace(guessed_resources(tiling(config), 2, H200), programs=launched(workload, config))


@functools.cache
def times(workload: Workload) -> dict[str, float]:
    """As matmul's own estimate has it, but for what no estimate knows of: two stages are a trap, and so is a depth of 32."""
    dims = (workload.dims[name] for name in "MNK")
    m, n, k = dims
    return {
        config_key(config): (matmul_us(m, n, k, tiling(config), H200, dtype="bfloat16", element_bytes=2, resources=needs(workload, config)) or 1e4)
        * (3.0 if config["stages"] == 2 else 1.0)
        * (2.0 if config["k"] == 32 else 1.0)
        * (1.5 if config["warps"] == 4 else 1.0)
        for config in CONFIGS
    }


def correlation(workload: Workload, resources: Callable[[Config], Resources], named: Callable[[Config], Config] = dict) -> float:
    """Rank correlation of the general estimate with a matmul's own."""
    estimate = estimate_for(MATMUL, workload, H200)
    assert estimate is not None
    real = [matmul_us(*(workload.dims[name] for name in "MNK"), tiling(config), H200, dtype="bfloat16", element_bytes=2) or math.inf for config in CONFIGS]
    found = [estimate(named(config), resources(config)) or math.inf for config in CONFIGS]

    def ranks(values: list[float]) -> list[float]:
        order = sorted(range(len(values)), key=values.__getitem__)
        return [float(order.index(place)) for place in range(len(values))]

    one, two = ranks(real), ranks(found)
    middle = (len(one) - 1) / 2
    return sum((a - middle) * (b - middle) for a, b in zip(one, two, strict=True)) / sum((a - middle) ** 2 for a in one)


def test_programs_are_those_of_the_kernel_that_reads_the_operands():
    product = KernelResources(name="split", shared_memory_bytes=98304, num_warps=8, warp_size=32, grid=(8, 4, 2), registers=128, input_bytes=4096)
    sums = KernelResources(name="sum", shared_memory_bytes=0, num_warps=4, warp_size=32, grid=(4096,), registers=24)
    assert summary([sums, product], 0)["programs"] == summary([product, sums], 0)["programs"] == 64
    assert summary([sums, replace(sums, grid=(7,), registers=60)], 0)["programs"] == 4096


def test_records_without_programs_stay_readable_and_none_is_written_where_none_is_known():
    old = msgspec.json.decode(b'{"shared_memory_bytes":1024,"registers":64}', type=Resources)
    assert old == Resources(shared_memory_bytes=1024, registers=64) and old.programs is None
    assert b"programs" not in msgspec.json.encode(old)


def unnamed(config: Config) -> Config:
    """The same with names that say nothing of tiles."""
    return {f"knob_{name}": value for name, value in config.items()}


def test_the_grid_tells_the_tile_better_than_registers_and_so_do_the_names_of_knobs():
    for workload in (SQUARE, FLAT, FEW):

        def without(config: Config, workload: Workload = workload) -> Resources:
            return msgspec.structs.replace(needs(workload, config), programs=None)

        blind = correlation(workload, without, unnamed)
        seeing = correlation(workload, lambda config, workload=workload: needs(workload, config), unnamed)
        # Of few rows most tiles are padding, of which registers know as much here, where they are made up: there the two are about alike.
        assert seeing > 0.8 and seeing > blind - (0.03 if workload is FEW else 0.0), (workload.key, seeing, blind)
        assert correlation(workload, without) >= seeing, workload.key  # names tell its sides, too


def streaming(programs: int | None = 4096, registers: int = 64, num_warps: int = 8, shared: int = 0, spills: int = 0) -> float:
    held = Resources(shared_memory_bytes=shared, registers=registers, num_warps=num_warps, spill_bytes=spills)
    found = general_us(flops=2.0**25, bytes_moved=2.0**26, outputs=(4096, 4096), target=H200, dtype="float32", resources=held, programs=programs)
    assert found is not None
    return found


def test_a_kernel_that_streams_is_as_fast_as_what_it_has_on_its_way():
    floor = 2.0**26 / H200.bandwidth_gb_s * 1e-3
    assert floor < streaming() < 1.5 * floor + 5
    # Too few programs for the device draw less than its bandwidth, the fewer the less.
    times = [streaming(programs) for programs in (4, 16, 66, 132, 1056)]
    assert times == sorted(times, reverse=True) and times[0] > 5 * times[-1]
    assert streaming(None) == pytest.approx(streaming(132 * 4), rel=0.05)
    # Few threads hold little, unless their registers or stages in shared memory do.
    assert streaming(132, num_warps=1) > streaming(132, num_warps=4) > streaming(132, num_warps=8)
    assert streaming(132, num_warps=1, registers=255) < streaming(132, num_warps=1, registers=40)
    assert streaming(132, num_warps=1, shared=65536) < streaming(132, num_warps=1)
    # A little that is spilled costs a little.
    assert streaming() < streaming(spills=16) < 1.1 * streaming() < streaming(spills=1024)


def test_programs_that_stay_for_several_tiles_say_nothing_of_their_size():
    def estimate(programs: int | None) -> float:
        held = Resources(shared_memory_bytes=98304, registers=168, num_warps=8, programs=programs)
        found = general_us(
            flops=2.0 * 8192**3,
            bytes_moved=3 * 2.0 * 8192**2,
            outputs=(8192, 8192),
            target=H200,
            dtype="bfloat16",
            resources=held,
            programs=held.programs,
        )
        assert found is not None
        return found

    assert estimate(H200.sm_count) == estimate(None)  # 2 MB of results each
    assert estimate(64 * 64) != estimate(None)


def test_programs_are_foreseen_from_this_workloads_builds_alone():
    import numpy as np

    pool = Pool(SPACE, seed=0)
    foresight = Foresight(pool)
    order = random.Random(0).sample(range(len(pool)), 80)
    for number in order[:40]:  # of another workload
        foresight.add(number, msgspec.structs.replace(needs(SQUARE, pool.configs[number]), programs=None))
    foresight.learn()
    rest = np.array(order[60:])
    assert all(resources.programs is None for resources in foresight.foresee(rest))
    for number in order[40:60]:
        foresight.add(number, needs(FLAT, pool.configs[number]))
    assert foresight.due
    foresight.learn()
    misses = [
        math.log2((foreseen.programs or 1) / launched(FLAT, pool.configs[number])) for number, foreseen in zip(rest, foresight.foresee(rest), strict=True)
    ]
    assert fmean(abs(miss) for miss in misses) < 0.5


def test_the_same_binary_is_not_thought_to_be_launched_over_another_workloads_grid():
    grids: list[int | None] = []

    def estimate(config: Config, resources: Resources | None) -> float:
        if resources is None:
            return math.nan
        grids.append(resources.programs)
        return 1.0

    pool = Pool(SPACE, seed=0)
    model = TimeModel(pool, estimate)
    past = [PastResult(source="other", features=(), config=config, time_us=1.0, resources=needs(SQUARE, config)) for config in CONFIGS]
    model.foresee(past)
    model.gain()
    assert set(grids) == {None}
    kinship = Kinship(workload=FLAT, target=H200, spec=MATMUL)
    told = kinship.heard(SQUARE, CONFIGS[0], 10.0, needs(SQUARE, CONFIGS[0]))
    assert told.resources == msgspec.structs.replace(needs(SQUARE, CONFIGS[0]), programs=None)
    other = estimate_for(MATMUL, SQUARE, H200)
    assert other is not None and told.estimate_us == other(CONFIGS[0], needs(SQUARE, CONFIGS[0]))


def start(workload: Workload, seed: int, said: list[tuple[Workload, Config, float, Resources | None]]) -> float:
    """The best of a search's first four measurements, as a multiple of the optimum."""
    kinship = Kinship(workload=workload, target=H200, spec=MATMUL)
    proposer = make_proposer("cost", SPACE, seed=seed, estimate=estimate_for(MATMUL, workload, H200), features=kinship.features, relate=kinship.heard)
    assert isinstance(proposer, WideProposer)
    for heard in said:
        proposer.heard(*heard)  # type: ignore[attr-defined]
    best = math.inf
    for _ in range(4):
        for config in proposer.widen(6):
            proposer.built(config, needs(workload, config))
        config = proposer.ask()
        assert config is not None
        best = min(best, times(workload)[config_key(config)])
        proposer.tell(config, times(workload)[config_key(config)])
    return best / min(times(workload).values())


@pytest.mark.parametrize("first, second", [(SQUARE, FLAT), (FLAT, SQUARE)])
def test_what_is_heard_of_another_workload_brings_the_start_nearer_to_the_optimum(first: Workload, second: Workload):
    said = [(first, config, times(first)[config_key(config)], needs(first, config)) for config in random.Random(3).sample(CONFIGS, 48)]
    mute = [(workload, config, time, None) for workload, config, time, _ in said]
    hearing = fmean(start(second, seed, said) for seed in range(4))
    deaf = fmean(start(second, seed, mute) for seed in range(4))
    assert hearing - 1 < 0.7 * (deaf - 1), (hearing, deaf)
