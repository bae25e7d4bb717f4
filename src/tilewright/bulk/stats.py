"""What large logs hold: the counts of `log stats`, by folding parts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.best import best_of
from tilewright.bulk.best import deciding_lines, fold_files, note_damage
from tilewright.bulk.best_fold import Fold, Session, Slim
from tilewright.bulk.known import TARGET
from tilewright.bulk.parts import Part
from tilewright.log import collector_paused
from tilewright.record import Line, Record, RecordedSpace, SessionEnd, SessionStart, Status

_NUMBER: Final = re.compile(r"\d(?<![\w.]\d)\d*(?:\.\d+)?")  # not the 90 of sm_90. It begins with a digit, so that the search skips all else at once
_LONGEST: Final = 300  # of the messages remembered, so that tracebacks fill no memory. guess: more than most first lines
_DIGIT: Final = re.compile(r"\d")
_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_NONE: Final = msgspec.Raw(b"")


class _StatsFold(Fold):
    """The best's fold, with counts."""

    def __init__(self) -> None:
        super().__init__()
        self._failures: Counter[tuple[str, str, str, str]] = Counter()
        # Of blocks read in one go: by the texts of target and workload.
        self._kinds: dict[bytes, dict[bytes, _Kinds]] = {}
        self._target = _NONE
        self._workloads: dict[bytes, _Kinds] = {}
        self._started: set[str] = set()
        self._ended: set[str] = set()
        self._spaces: list[tuple[int, str]] = []  # with the part's place
        self._names: dict[tuple[str, str], tuple[int, str]] = {}  # of the target in the first record of a workload on it, with the part's place
        self._messages = _Messages()

    def take(self, parts: Iterable[tuple[int, Part]]) -> dict[str, Any]:
        """As the best's fold, with counts."""
        answer = super().take(parts)
        for target, workloads in self._kinds.items():
            for workload, kinds in workloads.items():
                place = (self._known.workload(workload), self._known.target(target))
                if not all(place):  # their lines are damaged
                    answer["damaged"] += sum(count for _, count in kinds.counts())
                    continue
                for kind, count in kinds.counts():
                    self._failures[*place, *kind] += count
        return answer | {
            "failures": [(*key, count) for key, count in self._failures.items()],
            "started": sorted(self._started),
            "ended": sorted(self._ended),
            "spaces": self._spaces,
            "vendor_count": self._vendor_count,
            "names": [(*name, *place) for place, name in self._names.items()],
        }

    def _placed(self, workload: str, target: str, text: msgspec.Raw) -> None:
        if workload and target and (workload, target) not in self._names:
            self._names[workload, target] = (self._part, TARGET.decode(text).name)

    def _failed(self, line: Slim) -> None:
        if line.target != self._target:
            target = b"" + line.target
            self._target, self._workloads = msgspec.Raw(target), self._kinds.setdefault(target, {})
        kinds = self._workloads.get(b"" + line.workload)
        if kinds is None:
            kinds = self._workloads[b"" + line.workload] = _Kinds(self._messages)
            self._placed(self._known.workload(b"" + line.workload), self._known.target(b"" + line.target), line.target)
        kinds.add(line.status, line.message)

    def _other(self, line: Any) -> None:
        (self._started if isinstance(line, Session) else self._ended).add(line.session)

    def _seen(self, line: Line) -> None:
        if isinstance(line, Record) and (line.status is not Status.OK or line.measurement is None):
            workload, target = self._keys.workload(line.workload), self._keys.target(line.target)
            self._failures[workload, target, str(line.status), failure_kind(line.message)] += 1
        elif isinstance(line, SessionStart):
            self._started.add(line.session)
        elif isinstance(line, SessionEnd):
            self._ended.add(line.session)
        elif isinstance(line, RecordedSpace):
            self._spaces.append((self._part, line.operator))
        if isinstance(line, Record):
            self._names.setdefault((self._keys.workload(line.workload), self._keys.target(line.target)), (self._part, line.target.name))


class _Messages:
    """The kinds of messages. Most differ in their digits alone, and what is put for numbers does not depend on which digits they have."""

    def __init__(self) -> None:
        self._kinds: dict[bytes, str | None] = {}  # by message with every digit a 0; None where digits stay

    def __call__(self, message: str) -> str:
        """The kind of a message, as `failure_kind` gives it."""
        return self.of(message, alike(message)) if len(message) <= _LONGEST else failure_kind(message)

    def of(self, message: str, zeros: bytes) -> str:
        """The kind of a message that was found to be `alike` to others."""
        kind = self._kinds.get(zeros, "")
        if not kind:
            found = failure_kind(message)
            if kind == "":
                self._kinds[zeros] = None if _DIGIT.search(found) else found
            return found
        return kind

    def alone(self, zeros: bytes) -> bool:
        """Whether digits stay in such a message's kind."""
        return self._kinds[zeros] is None


class _Kinds:
    """How many failures there are of one workload and target, by status and kind of message."""

    __slots__ = ("_alike", "_counts", "_messages")

    def __init__(self, messages: _Messages) -> None:
        self._messages = messages
        self._counts: dict[tuple[Status, str], list[int]] = {}
        self._alike: dict[tuple[Status, bytes], list[int]] = {}  # the same ones, by messages that are alike

    def add(self, status: Status, message: str) -> None:
        """Count one."""
        if len(message) > _LONGEST:
            self._counts.setdefault((status, failure_kind(message)), [0])[0] += 1
            return
        zeros = alike(message)
        count = self._alike.get((status, zeros))
        if count is None:
            count = self._counts.setdefault((status, self._messages.of(message, zeros)), [0])
            if not self._messages.alone(zeros):
                self._alike[status, zeros] = count
        count[0] += 1

    def counts(self) -> Iterator[tuple[tuple[str, str], int]]:
        """Statuses and kinds, each with how many there are."""
        for (status, kind), (count,) in self._counts.items():
            yield (str(status), kind), count


def alike(message: str) -> bytes:
    """A message with every digit a 0."""
    return message.encode("utf-8", "surrogatepass").translate(_ZEROS)


def _fold(parts: Iterator[tuple[int, Part]]) -> dict[str, Any]:
    return _StatsFold().take(parts)


def stats_of_files(paths: Sequence[Path], note: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """The answer of `log stats`.

    Args:
        paths: logs, not compressed.
        note: told of damaged lines.

    Raises:
        LogError, HostError: a log cannot be read.
    """
    with collector_paused():
        return _stats_of_files(paths, note)


def _stats_of_files(paths: Sequence[Path], note: Callable[[str], None]) -> dict[str, Any]:
    folded = fold_files(paths, _fold)
    note_damage(folded, note)
    deciding = deciding_lines(paths, folded)
    best: dict[tuple[str, str], list[tuple[str, Record]]] = defaultdict(list)  # with the protocol, by workload and target
    for key, record in sorted(best_of(deciding).items(), key=itemgetter(0)):
        best[key[:2]].append((key[2], record))
    total: Counter[tuple[str, str]] = Counter()
    right: Counter[tuple[str, str]] = Counter()
    statuses: Counter[str] = Counter()
    others: Counter[tuple[str, str]] = Counter()  # by status and kind of message: failures, and what was cut
    # The name in the first part stays.
    named = sorted((found for answer in folded for found in answer["names"]), key=itemgetter(0), reverse=True)
    names = {(workload, target): name for _, name, workload, target in named}
    for answer in folded:
        for workload, target, _, _, times, *_ in answer["groups"]:
            timed = len(times) // 8
            total[workload, target] += timed
            right[workload, target] += timed
            statuses["ok"] += timed
        for workload, target, status, message, number in answer["failures"]:
            total[workload, target] += number
            statuses[status] += number
            if status == "ok":
                right[workload, target] += number
            else:
                others[status, message] += number
    started = {session for answer in folded for session in answer["started"]}
    ended = {session for answer in folded for session in answer["ended"]}
    return {
        "sessions": {"count": len(started), "interrupted": len(started - ended)},
        "records": total.total(),
        "vendors": sum(answer["vendor_count"] for answer in folded),
        "spaces": [operator for _, operator in sorted((space for answer in folded for space in answer["spaces"]), key=itemgetter(0))],
        "statuses": dict(ranked(statuses)),
        **told_apart(others),
        "races": sum(answer["races"]["count"] for answer in folded),
        "workloads": [row for place in sorted(total) for row in _rows(place, names[place], total[place], right[place], best[place])],
    }


def failure_kind(message: str) -> str:
    """What failures are counted by: the message's first line, numbers left out, which differ from candidate to candidate."""
    lines = message.strip().splitlines()
    return _NUMBER.sub("#", lines[0]) if lines else "(no message)"


def told_apart(counts: Counter[tuple[str, str]]) -> dict[str, list[dict[str, Any]]]:
    """What did not end `ok`, the most frequent first: failures, and apart from them those that were cut, which did nothing wrong.

    Args:
        counts: by status and kind of message.
    """
    rows = [{"status": status, "message": message, "records": number} for (status, message), number in ranked(counts)]
    cut = [{"message": row["message"], "records": row["records"]} for row in rows if row["status"] == Status.CUT]
    return {"failures": [row for row in rows if row["status"] != Status.CUT], "cut": cut}


def ranked(counts: Counter[Any]) -> list[tuple[Any, int]]:
    """Counts, the greatest first; those that are equal by name."""
    return sorted(((key, count) for key, count in counts.items() if count), key=lambda item: (-item[1], item[0]))


def _rows(place: tuple[str, str], name: str, records: int, right: int, best: Sequence[tuple[str, Record]]) -> list[dict[str, Any]]:
    where = {"workload": place[0], "target": name, "records": records, "ok": right}
    return [
        {**where, "protocol": protocol, "best_us": record.measurement and record.measurement.ranked_us, "best": dict(record.config)}
        for protocol, record in best
    ] or [{**where, "protocol": None, "best_us": None, "best": None}]
