"""Fakes for the seams of Tilewright, for its own tests and for those of code built on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future

from tilewright.builder import BuildOutcome, BuildRequest
from tilewright.record import Measurement, Resources, Status
from tilewright.runner import Job, MeasureJob, MeasureOutcome, RaceJob, RaceOutcome
from tilewright.target import Target, Toolchain, named_target

# --- Builder ---


def built(request: BuildRequest) -> BuildOutcome:
    """The outcome that `FakeBuilder` gives by default: compiled, the binary being as unique as the source."""
    return BuildOutcome(status=Status.OK, resources=Resources(shared_memory_bytes=0, registers=32, num_warps=4), binary=request.source.hash, build_s=0.0)


class FakeBuilder:
    """A Builder that answers at once, as a function says.

    Args:
        answer: the outcome of a request; an exception that it raises becomes the future's.
        toolchain: what it claims to compile with.

    Attributes:
        requests: what was submitted, in order.
        closed: whether `close` was called.
    """

    def __init__(self, answer: Callable[[BuildRequest], BuildOutcome] = built, toolchain: Toolchain | None = None) -> None:
        self._answer = answer
        self.toolchain = toolchain or Toolchain(triton="3.6.0", ptxas="12.9", torch="2.11.0")
        self.requests: list[BuildRequest] = []
        self.closed = False

    def submit(self, request: BuildRequest) -> Future[BuildOutcome]:
        """A future that is done."""
        self.requests.append(request)
        future: Future[BuildOutcome] = Future()
        try:
            future.set_result(self._answer(request))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Note that it was called."""
        self.closed = True


# --- Runner ---


def timed(time_us: float, protocol: str = "fake/1") -> MeasureOutcome:
    """The outcome of a right candidate that takes that long."""
    return MeasureOutcome(status=Status.OK, measurement=Measurement(protocol=protocol, median_us=time_us, min_us=time_us, max_us=time_us))


class FakeRunner:
    """A Runner that answers at once, as functions say.

    Args:
        answer: the time of a candidate in µs, or its whole outcome; an exception that it raises is raised.
        vendors: times of the vendors' kernels in µs, by name.
        target: what it claims to measure on; `sm_90` with its published limits by default.
        toolchain: versions that it claims to have found.
        race: how a race ends; no race by default.

    Attributes:
        jobs: what was measured, in order.
        closed: whether `close` was called.
    """

    protocol = "fake/1"
    race_s = 0.0

    def __init__(
        self,
        answer: Callable[[MeasureJob], float | MeasureOutcome] = lambda _: 1.0,
        *,
        vendors: Mapping[str, float] | None = None,
        target: Target | None = None,
        toolchain: Toolchain | None = None,
        race: Callable[[RaceJob], RaceOutcome | None] = lambda _: None,
    ) -> None:
        self._answer = answer
        self._vendors = dict(vendors or {})
        self.target = target or named_target("sm_90")
        self.toolchain = toolchain or Toolchain(triton="3.6.0", torch="2.11.0", driver="580.65.06")
        self._race = race
        self.jobs: list[MeasureJob] = []
        self.closed = False

    def measure(self, job: MeasureJob) -> MeasureOutcome:
        """What the function says of the job."""
        self.jobs.append(job)
        answer = self._answer(job)
        return answer if isinstance(answer, MeasureOutcome) else timed(answer, self.protocol)

    def vendors(self, job: Job) -> list[tuple[str, MeasureOutcome]]:
        """The vendors' times."""
        return [(name, timed(time_us, self.protocol)) for name, time_us in self._vendors.items()]

    def race(self, job: RaceJob) -> RaceOutcome | None:
        """What the function says of the race."""
        return self._race(job)

    def close(self) -> None:
        """Note that it was called."""
        self.closed = True
