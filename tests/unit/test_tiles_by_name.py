"""Tiles by the names of knobs: which names count, what they say, and what they are worth beside the launch's programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tilewright.errors import UsageError
from tilewright.estimate import estimate_for
from tilewright.library import find_operator
from tilewright.operator import OperatorSpec, TensorSpec
from tilewright.record import Config, Resources
from tilewright.target import named_target
from tilewright.tiles import NamedTile, TileKnobs, knob_namer, tile_namer
from tilewright.workload import Workload

MATMUL = replace(find_operator("matmul").spec, predict=None)
WORKLOAD = MATMUL.workload("M=1000,N=512,K=4096")


@pytest.mark.parametrize(
    "config",
    [
        {"BM": 64, "BN": 128, "BK": 32},
        {"m": 64, "n": 128, "stages": 3},
        {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "GROUP_M": 8},
        {"block_m": 64, "block_n": 128, "num_warps": 4},
        {"tile_m": [16, 64], "tile_n": [4, 128], "schedule": "tma"},
        {"bs_m": 64, "bsn": 128},
    ],
    ids=lambda config: " ".join(config),
)
def test_tiles_are_known_by_the_names_that_people_give_them(config: Config):
    tile = tile_namer(MATMUL, WORKLOAD)(config)
    assert tile is not None
    assert (tile.count, tile.rows, tile.columns) == (16 * 4, 64, 128)


@pytest.mark.parametrize(
    ("more", "depth", "stages"),
    [
        ({"BK": 32, "S": 3}, 32, 3),
        ({"tile_k": [128, 64], "num_stages": 4}, 64, 4),
        ({"stages": 2}, None, 2),
        ({"BK": 32}, 32, None),
        ({"BK": "deep", "stages": True}, None, None),
        ({"BK": 32, "k": 16, "stages": 2, "s": 3}, None, None),
        ({"split_k": 4, "num_warps": 8}, None, None),
    ],
    ids=str,
)
def test_what_is_loaded_at_a_time_and_stages_are_known_by_theirs(more: Config, depth: int | None, stages: int | None):
    assert tile_namer(MATMUL, WORKLOAD)({"BM": 64, "BN": 128, **more}) == NamedTile(count=16 * 4, rows=64, columns=128, depth=depth, stages=stages)


@pytest.mark.parametrize(
    "config",
    [{"BM": 64}, {"BM": 64, "BK": 32}, {"BM": 64, "m": 32, "BN": 64}, {"BM": "wide", "BN": 64}, {"BM": 0, "BN": 64}, {"GROUP_M": 8, "GROUP_N": 8}, {}],
    ids=str,
)
def test_where_a_dim_has_no_such_knob_or_two_nothing_is_said(config: Config):
    assert tile_namer(MATMUL, WORKLOAD)(config) is None


def test_knobs_are_told_by_what_they_are_named_after():
    told = knob_namer(MATMUL, WORKLOAD)
    known = told(["BM", "tile_m", "BN", "GROUP_M", "num_stages"])
    assert known == TileKnobs(sides={"M": ("BM", "tile_m"), "N": ("BN",)}, along={"K": ()}, stages=("num_stages",))
    assert known.complete and not told(["BM"]).complete
    assert not knob_namer(outputs(("M", "N"), more=2), WORKLOAD)(["BM", "BN"]).complete


def outputs(shape: tuple[str, ...], *, least: int = 1, more: int = 0) -> OperatorSpec:
    """matmul with a result of other dims."""

    def made(workload: Workload) -> Mapping[str, TensorSpec]:
        if workload.dims["M"] > 1000 and least > 1:
            raise UsageError("M too large")
        return {"c": TensorSpec(shape=tuple(workload.dims[name] + more for name in shape), dtype="float16")}

    return replace(MATMUL, outputs=made)


def test_only_the_dims_of_the_result_count_and_only_where_it_is_their_product():
    config: Config = {"BM": 64, "BN": 128, "BK": 32}
    assert tile_namer(outputs(("N",)), WORKLOAD)(config) == NamedTile(count=4, rows=1, columns=128, depth=64 * 32)
    assert tile_namer(outputs(("M", "K")), WORKLOAD)(config) == NamedTile(count=16 * 128, rows=64, columns=32, depth=128)
    assert tile_namer(outputs(("M", "N"), more=2), WORKLOAD)(config) is None
    assert tile_namer(outputs(("M", "N"), least=2), WORKLOAD)(config) is None


def test_programs_fewer_than_tiles_stay_and_more_are_of_other_tiles():
    estimate = estimate_for(MATMUL, MATMUL.workload("M=8192,N=8192,K=1024"), named_target("sm_90"))
    assert estimate is not None

    def time_us(config: Config, programs: int | None) -> float:
        held = Resources(shared_memory_bytes=98304, registers=168, num_warps=8, programs=programs)
        found = estimate(config, held)
        assert found is not None
        return found

    named, unnamed = {"BM": 128, "BN": 256}, {"x": 128, "y": 256}
    tiles = 64 * 32
    # As many programs as fill the device may be tiles, or stay: the names say which.
    assert time_us(named, 132) == time_us(named, tiles) == time_us(named, None) == time_us(unnamed, tiles)
    assert time_us(unnamed, 132) != time_us(named, 132)
    # What is named a tile is no tile of these programs.
    assert time_us({"BM": 512, "BN": 512}, tiles) == time_us(unnamed, tiles)
    # A tile for which there are no registers is no program's.
    assert time_us({"BM": 2048, "BN": 2048}, None) == time_us(unnamed, None)
