"""Times at the anchors' nominal times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright import anchoring
from tilewright.anchoring import COMPUTE_EXPONENT, anchor_plans, anchored_us
from tilewright.measured import Anchor, Measurement
from tilewright.protocols import GRAPH_PROTOCOL
from tilewright.sampling import measurement
from tilewright.target import named_target


def anchor(kind: str, median_us: float, nominal_us: float = 100.0) -> Anchor:
    return Anchor(kind=kind, median_us=median_us, nominal_us=nominal_us)


def test_a_memory_bound_time_follows_its_anchor_wholly_and_a_compute_bound_one_in_part() -> None:
    assert anchored_us(50.0, anchor=anchor("memory", 110.0), latency=None, kernels=1.0) == pytest.approx(50.0 / 1.1)
    assert anchored_us(50.0, anchor=anchor("compute", 110.0), latency=None, kernels=1.0) == pytest.approx(50.0 / 1.1**COMPUTE_EXPONENT)
    assert anchored_us(50.0, anchor=anchor("memory", 100.0), latency=None, kernels=None) == pytest.approx(50.0)


def test_each_kernel_of_a_call_counts_what_the_short_kernel_took_too_long() -> None:
    slow, fast = anchor("latency", 3.4, 3.0), anchor("latency", 2.7, 3.0)
    assert anchored_us(17.4, anchor=None, latency=slow, kernels=2.0) == pytest.approx(16.6)
    assert anchored_us(17.4, anchor=None, latency=fast, kernels=2.0) == pytest.approx(18.0)
    assert anchored_us(17.4, anchor=anchor("memory", 110.0), latency=slow, kernels=2.0) == pytest.approx(16.6 / 1.1)
    # A busy device may hold the short kernel up for long: no time falls to nothing by that.
    assert anchored_us(4.0, anchor=None, latency=anchor("latency", 90.0, 3.0), kernels=1.0) == pytest.approx(2.0)


def test_where_no_anchor_tells_anything_the_time_is_as_measured() -> None:
    assert anchored_us(4.0, anchor=None, latency=None, kernels=1.0) is None
    assert anchored_us(4.0, anchor=anchor("memory", 0.0), latency=None, kernels=1.0) is None
    assert anchored_us(4.0, anchor=None, latency=anchor("latency", 3.1, 3.0), kernels=None) is None
    assert anchored_us(4.0, anchor=None, latency=anchor("latency", 0.0, 3.0), kernels=1.0) is None
    assert measurement("graph/3", [4.0, 4.2, 4.1]).ranked_us == 4.1


def test_a_record_is_ranked_by_what_its_own_protocol_made_of_the_anchors() -> None:
    kept = measurement("graph/3", [4.0, 4.2, 4.1], anchor=anchor("memory", 110.0), latency=anchor("latency", 3.4, 3.0), kernels=1.0)
    assert kept.median_us == 4.1 and kept.ranked_us == kept.anchored_us == pytest.approx(3.7 / 1.1, abs=0.001)
    before = Measurement(protocol="graph/2", median_us=4.1, min_us=4.0, max_us=4.2, anchor=anchor("compute", 110.0))
    assert before.ranked_us == pytest.approx(4.1 / 1.1, abs=0.001)


def test_only_a_target_that_was_measured_has_a_short_kernel() -> None:
    target = replace(named_target("sm_90"), name="NVIDIA H200", l2_bytes=60 * 2**20)
    plans = anchor_plans(target)
    assert plans["latency"].copy_bytes * 40 <= plans["memory"].copy_bytes
    assert "latency" not in anchor_plans(replace(target, name="NVIDIA H100"))


def test_what_is_in_no_setting_of_the_protocol_stays_with_its_name() -> None:
    """Who changes one of these needs a new name for the protocol: times before and after do not compare."""
    anchors = pytest.importorskip("tilewright.children.anchors", exc_type=ImportError)
    held = anchoring.LATENCY_US["NVIDIA H200"], anchoring._LEAST_SHARE, dict(anchors._CALLS)
    assert (GRAPH_PROTOCOL, held) == ("graph/3", (2.8, 0.5, {"compute": 1, "memory": 2, "latency": 40}))
