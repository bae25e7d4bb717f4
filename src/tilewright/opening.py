"""A device that is being opened while candidates are built for it already."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from tilewright.errors import HostError
from tilewright.runner import Job, MeasureJob, MeasureOutcome, RaceJob, RaceOutcome, Runner
from tilewright.target import Target, Toolchain


class TargetDiffers(HostError):
    """The runner's device is not what was read of it before: whatever was built so far is for another target."""


class OpeningRunner:
    """A runner that is made by a thread of its own; what needs it waits for it.

    Args:
        make: makes the runner: seconds of imports and a device's context.
        expected: what its target should turn out to be.
        protocol: its timing protocol.
        race_s: what it sets aside for a race.

    Attributes:
        target: what is expected.
    """

    def __init__(self, make: Callable[[], Runner], expected: Target, *, protocol: str, race_s: float) -> None:
        self.target = expected
        self.protocol = protocol
        self.race_s = race_s
        self._make = make
        self._made: Future[Runner] | None = None
        self._first: Job | None = None
        self._vendors: Future[list[tuple[str, MeasureOutcome]]] | None = None
        self._lock = threading.Lock()
        self._closed = False

    def start(self, first: Job | None = None) -> None:
        """Begin to make it; may be called again.

        Args:
            first: a job whose vendors will be asked for: they are measured as soon as there is a device, while the first candidate is
                still being built. Its workload's operands and the device's libraries are ready then, too.
        """
        with self._lock:
            self._first = first or self._first
        if self._made is None:
            made = self._made = Future()
            # A daemon, so that a session which ends meanwhile need not wait: the child dies with this process.
            threading.Thread(target=self._open, args=(made,), name="tilewright-open", daemon=True).start()

    def _open(self, made: Future[Runner]) -> None:
        try:
            runner = self._make()
        except BaseException as error:
            made.set_exception(error)
            return
        with self._lock:
            late = self._closed  # from here on, `close` finds it made and ends it, also in the middle of what follows
            first = None if late else self._first
            if first is not None:
                self._vendors = Future()
            made.set_result(runner)
        if first is not None and self._vendors is not None:
            try:
                self._vendors.set_result(runner.vendors(first))
            except BaseException as error:
                self._vendors.set_exception(error)  # for whoever asks for them
        if late:
            runner.close()

    @property
    def ready(self) -> bool:
        """Whether it is made, or failed to be."""
        return self._made is not None and self._made.done()

    def runner(self) -> Runner:
        """Wait for it.

        Raises:
            TargetDiffers: its device is not what was expected.
            HostError: it cannot be made.
        """
        self.start()
        assert self._made is not None
        made = self._made.result()
        # Names are labels, and how memory is counted differs between drivers; all else decides what is built, and for whom.
        if replace(made.target, name=self.target.name, memory_bytes=self.target.memory_bytes) != self.target or made.target.key != self.target.key:
            raise TargetDiffers(f"the device was read as {self.target}, and its runner finds {made.target}")
        return made

    @property
    def toolchain(self) -> Toolchain:
        """Versions found in the child; waits for it."""
        return self.runner().toolchain

    def measure(self, job: MeasureJob) -> MeasureOutcome:
        """As the runner."""
        runner = self.runner()
        self._settle_first()
        return runner.measure(job)

    def vendors(self, job: Job) -> list[tuple[str, MeasureOutcome]]:
        """As the runner."""
        runner = self.runner()
        measured = self._settle_first()
        with self._lock:
            known, self._first = measured is not None and job == self._first, None
        return measured.result() if measured is not None and known else runner.vendors(job)

    def _settle_first(self) -> Future[list[tuple[str, MeasureOutcome]]] | None:
        """Wait until the device is free: the vendors of the first job are done, well or not."""
        if self._vendors is not None:
            self._vendors.exception()
        return self._vendors

    def race(self, job: RaceJob) -> RaceOutcome | None:
        """As the runner."""
        runner = self.runner()
        self._settle_first()
        return runner.race(job)

    def close(self) -> None:
        """End it; one that is still being made is ended as soon as it is."""
        with self._lock:
            self._closed = True
            made = self._made if self._made is not None and self._made.done() else None
        if made is not None and made.exception() is None:
            made.result().close()
