"""A recording that stands in for a device: builds and measurements answered from a log that covers a space."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Self, TypeVar

from tilewright.best import rank
from tilewright.builder import BuildOutcome, BuildRequest
from tilewright.canonical import canonical_json
from tilewright.errors import LogError, SpaceError, UsageError, nearest
from tilewright.job import Job, MeasureJob, MeasureOutcome, RaceJob
from tilewright.log import TuningLog
from tilewright.record import Config, Line, Record, RecordedSpace, Status, VendorRecord, config_key
from tilewright.recorded_space import RecordedSearchSpace
from tilewright.target import Target, Toolchain
from tilewright.template import Source
from tilewright.workload import Workload

_T = TypeVar("_T")

# Failures that the build itself finds; all others need the device.
_BUILD_FAILURES: Final = frozenset({Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT})


class Recording:
    """What a recorded log knows: one operator, target and timing protocol, and by workload the record of every config.

    Args:
        lines: of the log.
        origin: named in error messages, such as the log's path.

    Attributes:
        operator: the recorded operator's name.
        space_line: the knobs and their candidates.
        target, toolchain: what was recorded on, and with.
        protocol: the timing protocol.
        workloads: the recorded ones, by key.

    Raises:
        LogError: the lines are not one recording.
    """

    def __init__(self, lines: Iterable[Line], origin: str = "the log") -> None:
        self.origin = origin
        spaces: list[RecordedSpace] = []
        records: list[Record] = []
        vendors: list[VendorRecord] = []
        for line in lines:
            match line:
                case RecordedSpace():
                    spaces.append(line)
                case Record():
                    records.append(line)
                case VendorRecord():
                    vendors.append(line)
        if len(spaces) != 1:
            said = f"{origin} is no recording: it has {len(spaces)} lines of kind `space`, and one is needed to know the knobs and their candidates"
            raise LogError(f"{said}; make one with tilewright log import")
        self.space_line = spaces[0]
        self.operator = self.space_line.operator
        records = [record for record in records if record.workload.operator == self.operator]
        if not records:
            raise LogError(f"{origin} is no recording: it declares a space of operator {self.operator!r} and has no record of it")
        self.target: Target = _only(origin, "target", {record.target.key: record.target for record in records})
        # Not of those cut short: what was cut before it was captured has a time by events, which competes with nothing.
        self.protocol = _only(origin, "protocol", {m.protocol: m.protocol for r in records if (m := r.measurement) and r.status is Status.OK})
        self.toolchain = records[0].toolchain
        self.workloads: Mapping[str, Workload] = {}
        self._records: dict[str, dict[str, Record]] = {}
        self._vendors: dict[str, dict[str, VendorRecord]] = defaultdict(dict)
        self._spaces: dict[str, RecordedSearchSpace] = {}
        self._take(records, vendors)

    @classmethod
    def read(cls, log: TuningLog) -> Recording:
        """Read a recording.

        Raises:
            LogError: the log does not exist, is not a recording, or is damaged: a recording with holes would mislead.
        """
        contents = log.read()
        if contents.damage:
            first = contents.damage[0]
            raise LogError(f"{log.path}, line {first.number}: {first.reason}; a recording with holes would mislead, so restore the file or import it again")
        return cls(contents.lines, str(log.path))

    def _take(self, records: Iterable[Record], vendors: Iterable[VendorRecord]) -> None:
        workloads: dict[str, Workload] = {}
        for record in records:
            key = record.workload.key
            workloads.setdefault(key, record.workload)
            kept = self._records.setdefault(key, {})
            name = config_key(record.config)
            if name not in kept or _preferred(record, kept[name]):
                kept[name] = record
        for vendor in vendors:
            if vendor.workload.key in workloads and vendor.target.key == self.target.key:
                self._vendors[vendor.workload.key][vendor.name] = vendor
        self.workloads = workloads

    def workload(self, workload: Workload) -> Workload:
        """The recorded workload that a (perhaps partly given) workload means.

        Args:
            workload: may leave out parameters while only one recorded workload agrees with the rest.

        Raises:
            UsageError: no recorded workload agrees, or several do.
        """
        given = workload.parameters.items()
        meant = [recorded for recorded in self.workloads.values() if given <= recorded.parameters.items()]
        if len(meant) != 1:
            what = "is not recorded" if not meant else f"means {len(meant)} recorded workloads"
            raise UsageError(
                f"workload {workload.key} {what} in {self.origin}; {nearest(workload.key, [recorded.key for recorded in meant] or self.workloads)}"
            )
        return meant[0]

    def space(self, workload: Workload) -> RecordedSearchSpace:
        """The space of a recorded workload: its recorded configs.

        Raises:
            UsageError: it was not recorded.
            LogDamaged: its records do not fit the recorded knobs.
        """
        key = workload.key
        if key not in self._spaces:
            records = self._of(key)
            default = next((record.config for record in records.values() if record.default), None)
            self._spaces[key] = RecordedSearchSpace(self.space_line.knobs, (record.config for record in records.values()), default)
        return self._spaces[key]

    def source(self, workload: Workload, config: Config) -> Source:
        """A stand-in for rendered code: text that names the record. It has no hash, as the records have none."""
        self.record(workload.key, config)
        text = canonical_json({"workload": workload.key, "config": dict(config)}) + "\n"
        return Source(text=text, hash="", schedule=str(config.get("schedule", "")), template_hash="")

    def record(self, workload_key: str, config: Config) -> Record:
        """The record of a config.

        Raises:
            UsageError: the workload or the config was not recorded.
        """
        records = self._of(workload_key)
        record = records.get(config_key(config))
        if record is None:
            raise SpaceError(f"config {config_key(config)} is not in {self.origin} for {workload_key}, which has {len(records)} configs")
        return record

    def of_source(self, source: Source) -> Record:
        """The record that a stand-in source names.

        Raises:
            UsageError: it names none.
        """
        try:
            named = json.loads(source.text)
            return self.record(named["workload"], named["config"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError("a recorded device builds only sources made by its own recording, not rendered code") from error

    def vendors(self, workload: Workload) -> tuple[VendorRecord, ...]:
        """Vendors' records of a recorded workload, by name."""
        return tuple(vendor for _, vendor in sorted(self._vendors.get(workload.key, {}).items()))

    def _of(self, workload_key: str) -> dict[str, Record]:
        if workload_key not in self._records:
            raise UsageError(f"workload {workload_key} is not recorded in {self.origin}; {nearest(workload_key, self.workloads)}")
        return self._records[workload_key]

    def builder(self) -> RecordedBuilder:
        """A builder that answers from the recording."""
        return RecordedBuilder(self)

    def runner(self) -> RecordedRunner:
        """A runner that answers from the recording."""
        return RecordedRunner(self)


def _only(origin: str, what: str, values: Mapping[str, _T]) -> _T:
    if len(values) != 1:
        named = ", ".join(sorted(values)) or "none"
        raise LogError(f"{origin} is no recording of one device: its records name {len(values)} of {what} ({named}); split it by {what}")
    return next(iter(values.values()))


def _preferred(record: Record, kept: Record) -> bool:
    """Whether a second record of a config replaces the first: a time replaces a failure, a better time a worse."""
    if record.status is not Status.OK or record.measurement is None:
        return False
    return kept.status is not Status.OK or kept.measurement is None or rank(record) < rank(kept)


class _Closing:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Nothing to end."""


class RecordedBuilder(_Closing):
    """Builds at once: each outcome is the record's.

    Args:
        recording: where outcomes come from.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    @property
    def toolchain(self) -> Toolchain:
        """Versions that the recording was built with."""
        return self._recording.toolchain

    def submit(self, request: BuildRequest) -> Future[BuildOutcome]:
        """The build of a stand-in source: done already."""
        future: Future[BuildOutcome] = Future()
        try:
            future.set_result(build_of(self._recording.of_source(request.source)))
        except UsageError as error:
            future.set_exception(error)
        return future


def build_of(record: Record) -> BuildOutcome:
    """What a build of a recorded config comes to, as far as the build itself tells."""
    failed = record.status in _BUILD_FAILURES or _over_limit(record)
    return BuildOutcome(
        status=record.status if failed else Status.OK,
        message=record.message if failed else "",
        resources=record.resources,
        binary=record.binary,
        build_s=record.build_s,
        cached=False,
    )


def _over_limit(record: Record) -> bool:
    # A builder compares shared memory with the target's limit before any launch.
    needs = record.resources if record.status is Status.OUT_OF_RESOURCES else None
    return needs is not None and needs.shared_memory_bytes > record.target.shared_memory_bytes


class RecordedRunner(_Closing):
    """Measures at once: each outcome is the record's, on the recorded target by the recorded protocol.

    Args:
        recording: where outcomes come from.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    @property
    def target(self) -> Target:
        """The device that was recorded."""
        return self._recording.target

    @property
    def toolchain(self) -> Toolchain:
        """Versions that were recorded with."""
        return self._recording.toolchain

    @property
    def protocol(self) -> str:
        """The recording's timing protocol."""
        return self._recording.protocol

    def measure(self, job: MeasureJob) -> MeasureOutcome:
        """The recorded outcome of a stand-in source.

        Raises:
            UsageError: the source names no record.
        """
        record = self._recording.of_source(job.source)
        return MeasureOutcome(status=record.status, message=record.message, measurement=record.measurement, check=record.check)

    race_s = 0.0  # nothing to set aside

    def race(self, job: RaceJob) -> None:
        """No race: the recorded times decide."""

    def vendors(self, job: Job) -> list[tuple[str, MeasureOutcome]]:
        """The vendors' recorded outcomes for the job's workload, by name."""
        return [
            (vendor.name, MeasureOutcome(status=vendor.status, message=vendor.message, measurement=vendor.measurement))
            for vendor in self._recording.vendors(job.workload)
        ]
