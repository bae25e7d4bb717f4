"""The same choices on another workload."""

from __future__ import annotations

from tilewright.space import Cfg, Space
from tilewright.transfer import distance, translate
from tilewright.workload import parse_key


def space(extent: int, *, warps: tuple[int, ...] = (2, 4)) -> Space:
    def declare(cfg: Cfg) -> None:
        tile = cfg.define_split("tile", extent, num_outputs=2, policy="power2", min_factor=16, max_factor=128)
        cfg.define_knob("warps", list(warps))
        if tile.size[0] > 1:
            cfg.define_knob("group", [1, 8])
        cfg.require(tile.size[-1] != 32, "no 32")

    return Space({"only": declare})


def test_the_outer_part_of_a_split_follows_the_extent() -> None:
    assert translate({"tile": [64, 64], "warps": 4, "group": 8}, space(1024)) == {"tile": [16, 64], "warps": 4, "group": 8}


def test_knobs_that_the_other_does_not_have_are_dropped_and_missing_ones_forbid() -> None:
    assert translate({"tile": [64, 64], "warps": 4, "group": 8}, space(64)) == {"tile": [1, 64], "warps": 4}
    assert translate({"tile": [1, 64], "warps": 4}, space(1024)) is None


def test_what_the_other_refuses_or_lacks_has_no_translation() -> None:
    assert translate({"tile": [2, 32], "warps": 4, "group": 8}, space(1024)) is None
    assert translate({"tile": [2, 64], "warps": 8, "group": 8}, space(1024)) is None
    assert translate({"tile": [2, 128], "warps": 4, "group": 1}, space(32)) is None


def test_distance_counts_doublings_and_words() -> None:
    base = parse_key("matmul:M=16,N=4096,dtype=float16,b_layout=row")
    assert distance(base, base) == 0
    assert distance(base, parse_key("matmul:M=64,N=2048,dtype=float16,b_layout=row")) == 3
    assert distance(base, parse_key("matmul:M=16,N=4096,dtype=bfloat16,b_layout=col")) == 16
