"""Timing protocols by name: what settings each name stands for. Pure.

A name and its settings go together one to one, so that to compare names is to compare settings. A change of a setting without a
version of its own gives a name that no other time carries (`graph-1a2b3c4d`): such times compare with each other alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from tilewright.anchoring import COMPUTE_EXPONENT, COMPUTE_SHARE, COMPUTE_US, LATENCY_BELOW_US, LATENCY_BYTES, MEMORY_SHARE
from tilewright.canonical import canonical_json, sha256_text
from tilewright.roofline import COLD_L2_MULTIPLE

Settings: TypeAlias = Mapping[str, str | int | float]

# guess: events have a resolution of 0.5 µs and a replay starts 1-2 µs after the one before ends; 300 µs makes both under 1%.
REPLAY_US: Final = 300.0
SHORTEST_REPLAY_US: Final = 200.0  # below this a graph is captured again with more calls
LONGEST_REPLAY_US: Final = 3000.0  # guess: a tenth of what a candidate may take; slower calls go one to a graph
MOST_CALLS: Final = 256  # 18 µs of host time each to capture (H200, 2026-11): 5 ms
# Of device time a candidate. At 4096³ bf16 everything else took some 10 ms of device time within 24 ms of wall time (H200, 2026-11, `graph/1`,
# measurement_h200.py): 7 ms of samples stay within 25 ms, keep the device at work, and narrow the interval of short kernels.
LEAST_US: Final = 7000.0
BUDGET_US: Final = 12000.0  # of device time a candidate, once the fewest samples are in: half of 25 ms, the check has the rest
FEWEST_SAMPLES: Final = 5
MOST_SAMPLES: Final = 50  # guess: at the spread seen (2-3%) the interval is under 1% by 40
BATCH: Final = 6  # samples between two looks at their interval: the first count whose range is a 95% interval
# Of samples between two times of the anchor. A power cap sets in within some ms: of a 1.2 ms kernel across its onset, the anchored time was off by up
# to 11% with 6 samples between anchors, and by 4% with 2 (H200, 2026-11).
BETWEEN_ANCHORS_US: Final = 2500.0
INTERVAL: Final = 0.01
ANCHOR_SAMPLES: Final = 2  # before and after each batch: 6 to 12 a candidate, 1 ms of its 25; their median is steady to 0.3% (guess)
CUT_FACTOR: Final = 3.0  # guess: no noise, clock or throttling makes up a factor of three
WARM_S: Final = 0.3  # the clock settles within 0.2-0.3 s of full load (H200, 2026-11)
INTERPRETER_RUNS: Final = 3
INTERPRETER_S: Final = 2.0  # guess: what a further wall time may cost

_DEVICE: Final[Settings] = {
    "replay_us": REPLAY_US,
    "shortest_replay_us": SHORTEST_REPLAY_US,
    "longest_replay_us": LONGEST_REPLAY_US,
    "most_calls": MOST_CALLS,
    "least_us": LEAST_US,
    "budget_us": BUDGET_US,
    "fewest_samples": FEWEST_SAMPLES,
    "most_samples": MOST_SAMPLES,
    "batch": BATCH,
    "interval": INTERVAL,
    "cut_factor": CUT_FACTOR,
    "warm_s": WARM_S,
    "rotation_l2_multiple": COLD_L2_MULTIPLE,
    "anchor_samples": ANCHOR_SAMPLES,
    "anchor_compute_us": COMPUTE_US,
    "anchor_compute_share": COMPUTE_SHARE,
    "anchor_memory_share": MEMORY_SHARE,
    "between_anchors_us": BETWEEN_ANCHORS_US,
    "anchor_compute_exponent": COMPUTE_EXPONENT,
    "anchor_latency_bytes": LATENCY_BYTES,
    "anchor_latency_below_us": LATENCY_BELOW_US,
}
_INTERPRETER: Final[Settings] = {"runs": INTERPRETER_RUNS, "longest_s": INTERPRETER_S, "cut_factor": CUT_FACTOR}
# As they were until November 2026: written out, since a log of then does not tell.
_FIRST: Final[Settings] = {
    **{"replay_us": 300.0, "shortest_replay_us": 200.0, "longest_replay_us": 3000.0, "most_calls": 256, "least_us": 0.0, "budget_us": 12000.0},
    **{"fewest_samples": 5, "most_samples": 50, "batch": 6, "interval": 0.01, "cut_factor": 3.0, "warm_s": 0.3, "rotation_l2_multiple": 2},
    **{"anchor_samples": 2, "anchor_compute_us": 100.0, "anchor_compute_share": 0.7, "anchor_memory_share": 0.9},
}
_SECOND: Final[Settings] = {**_FIRST, "least_us": 7000.0}
_THIRD: Final[Settings] = {
    **_SECOND,
    **{"between_anchors_us": 2500.0, "anchor_compute_exponent": 0.75, "anchor_latency_bytes": 2**21, "anchor_latency_below_us": 100.0},
}
# Never changed, only added to.
RELEASED: Final[Mapping[str, Settings]] = MappingProxyType(
    {
        "graph/1": _FIRST,
        "graph/2": _SECOND,
        "graph/3": _THIRD,
        "events/1": _FIRST,
        "events/2": _SECOND,
        "events/3": _THIRD,
        "interpreter/1": {"runs": 3, "longest_s": 2.0, "cut_factor": 3.0},
    }
)


def protocol_name(kind: str, settings: Settings) -> str:
    """The released name of a kind of protocol with these settings; else one of their own, made of their hash."""
    for name, released in RELEASED.items():
        if name.partition("/")[0] == kind and canonical_json(dict(released)) == canonical_json(dict(settings)):
            return name
    return f"{kind}-{sha256_text(canonical_json(dict(settings)))[:8]}"


def settings_of(protocol: str) -> dict[str, str | int | float]:
    """What a protocol's name stands for; empty for one that is not of this table, such as a recording's."""
    return dict(CURRENT.get(protocol) or RELEASED.get(protocol) or {})


GRAPH_PROTOCOL: Final = protocol_name("graph", _DEVICE)
EVENTS_PROTOCOL: Final = protocol_name("events", _DEVICE)
INTERPRETER_PROTOCOL: Final = protocol_name("interpreter", _INTERPRETER)
CURRENT: Final[Mapping[str, Settings]] = MappingProxyType({GRAPH_PROTOCOL: _DEVICE, EVENTS_PROTOCOL: _DEVICE, INTERPRETER_PROTOCOL: _INTERPRETER})
