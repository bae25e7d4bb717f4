"""Samples of a time: how sure their median is, and what of them goes into a record. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from math import comb

from tilewright.anchoring import anchored_us
from tilewright.protocols import EVENTS_PROTOCOL as EVENTS_PROTOCOL
from tilewright.protocols import GRAPH_PROTOCOL as GRAPH_PROTOCOL
from tilewright.protocols import INTERPRETER_PROTOCOL as INTERPRETER_PROTOCOL
from tilewright.record import Anchor, DeviceState, Measurement


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Distribution-free confidence interval of the median.

    The order statistics x(k) and x(n+1-k) enclose the median with probability 1 - 2·P(Binomial(n, 1/2) < k); the largest k that
    keeps the confidence is taken (Conover, Practical Nonparametric Statistics, section 3.2). With fewer than 6 samples not even
    their whole range holds the median with 95%, and the range is what is returned.

    Raises:
        ValueError: there are no samples.
    """
    ordered = sorted(samples)
    count = len(ordered)
    if not count:
        raise ValueError("the median of no samples")
    allowed = (1 - confidence) / 2 * 2**count
    below, rank = 0, 0
    while rank < (count - 1) // 2 and below + comb(count, rank) <= allowed:
        below += comb(count, rank)
        rank += 1
    # `rank` values at either end can be dropped; x(rank) in 1-based order is where P(Binomial < rank) still fits.
    index = max(rank - 1, 0)
    return ordered[index], ordered[count - 1 - index]


def median(samples: Sequence[float]) -> float:
    """The median, of one sample or more."""
    return statistics.median(samples)


def relative_interval(samples: Sequence[float], confidence: float = 0.95) -> float:
    """Width of the median's confidence interval as a share of the median."""
    low, high = median_interval(samples, confidence)
    return (high - low) / statistics.median(samples)


def recorded_us(time_us: float) -> float:
    """A time as records hold it, in whole nanoseconds: one at least, since a log takes no time that is not above 0."""
    return max(round(time_us, 3), 0.001)


def measurement(
    protocol: str,
    samples_us: Sequence[float],
    *,
    anchor: Anchor | None = None,
    latency: Anchor | None = None,
    kernels: float | None = None,
    state: DeviceState | None = None,
) -> Measurement:
    """What a record holds of samples in µs; all of them are kept, at nanosecond resolution, and none as less than one."""
    mean = statistics.fmean(samples_us)
    anchored = anchored_us(statistics.median(samples_us), anchor=anchor, latency=latency, kernels=kernels)
    return Measurement(
        protocol=protocol,
        median_us=recorded_us(statistics.median(samples_us)),
        min_us=recorded_us(min(samples_us)),
        max_us=recorded_us(max(samples_us)),
        cv=round(statistics.pstdev(samples_us) / mean, 5) if mean else 0.0,
        samples=len(samples_us),
        times_us=[recorded_us(sample) for sample in samples_us],
        anchor=anchor,
        state=state,
        latency=latency,
        kernels=kernels,
        anchored_us=None if anchored is None else recorded_us(anchored),
    )
