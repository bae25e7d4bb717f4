"""What races come to in large logs: of each schedule that won, whom it met, and how vendors did beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final, TypeAlias

import msgspec

from tilewright.bulk.candidates import GroupKey
from tilewright.bulk.known import TARGET, WORKLOAD
from tilewright.bulk.other_lines import Race
from tilewright.races import WRONG, first_of
from tilewright.record import Racer, RaceRecord, Status

# A schedule, as it is told from others before its config's canonical text is asked for: its config as JSON, and its source's hash.
_Told: TypeAlias = tuple[bytes, str]

_ENCODE: Final = msgspec.json.Encoder().encode
_CONFIG: Final = msgspec.json.Decoder(dict[str, Any])
_CONFIGS: Final = msgspec.json.Decoder(list[dict[str, Any]])
_SOURCES: Final = msgspec.json.Decoder(list[str])


class _Won:
    """What races that one schedule won say of others: the schedules that ran beside it, of each race sources and configs as JSON, and vendors' ratios."""

    __slots__ = ("fields", "vendors")

    def __init__(self) -> None:
        self.fields: set[tuple[bytes, bytes]] = set()
        self.vendors: list[tuple[str, float]] = []


class Races:
    """Races that a process reads, put together as they are read: one of 2 KB is read in a fifth of the time that it takes to read it twice.

    Attributes:
        count: of races.
    """

    def __init__(self) -> None:
        self.count = 0
        self._won: dict[GroupKey, dict[_Told, _Won]] = {}
        self._wrong: dict[tuple[str, str], set[_Told]] = {}
        # By key, a text of it.
        self._workloads: dict[str, bytes] = {}
        self._targets: dict[str, bytes] = {}

    def add(self, place: tuple[str, str], workload: bytes, target: bytes, race: Race | RaceRecord) -> None:
        """Take a race; where this raises, it is counted, and nothing else of it taken.

        Args:
            place: keys of its workload and target.
            workload: text of the workload.
            target: text of the target.
            race: itself.

        Raises:
            ValueError, OverflowError, TypeError: a config holds what only Python can.
        """
        self.count += 1
        raced = [racer for number, racer in enumerate(race.racers) if not racer.vendor and number != race.winner]
        field = (_ENCODE([racer.source for racer in raced]), _ENCODE([racer.config for racer in raced]))
        first = first_of(race.racers, race.winner)
        if first is not None:
            won = self._won.setdefault((*place, race.protocol), {}).setdefault((_ENCODE(first.config), first.source), _Won())
            won.fields.add(field)
            won.vendors += [(racer.vendor, racer.ratio) for racer in race.racers if racer.vendor and racer.status is Status.OK and racer.ratio is not None]
        for racer in race.racers:
            if racer.status in WRONG and not racer.vendor:
                self._wrong.setdefault(place, set()).add((_ENCODE(racer.config), racer.source))
        self._workloads.setdefault(place[0], workload)
        self._targets.setdefault(place[1], target)

    def plain(self) -> dict[str, Any]:
        """Plain values, for `races_of`."""
        return {
            "count": self.count,
            "won": [(*key, *first, list(won.fields), won.vendors) for key, firsts in self._won.items() for first, won in firsts.items()],
            "wrong": [(*place, list(schedules)) for place, schedules in self._wrong.items()],
            "workloads": self._workloads,
            "targets": self._targets,
        }


def races_of(answers: Sequence[Mapping[str, Any]]) -> Iterator[RaceRecord]:
    """Races from which `winners`, `first_places`, `wrong_in` and `vendor_ratios` find what they find from all: one for each schedule that won.

    Args:
        answers: of each process's `Races.plain`.
    """
    groups: dict[GroupKey, dict[_Told, _Won]] = {}
    wrong: dict[tuple[str, str], set[_Told]] = {}
    workloads: dict[str, bytes] = {}
    targets: dict[str, bytes] = {}
    for answer in answers:
        workloads.update(answer["workloads"])
        targets.update(answer["targets"])
        for workload, target, protocol, config, source, fields, vendors in answer["won"]:
            won = groups.setdefault((workload, target, protocol), {}).setdefault((config, source), _Won())
            won.fields.update(map(tuple, fields))
            won.vendors += vendors
        for workload, target, schedules in answer["wrong"]:
            wrong.setdefault((workload, target), set()).update(map(tuple, schedules))
    read_workload = {key: WORKLOAD.decode(text) for key, text in workloads.items()}
    read_target = {key: TARGET.decode(text) for key, text in targets.items()}
    for (workload, target, protocol), firsts in groups.items():
        sources = {source for _, source in firsts}
        for first, won in firsts.items():
            racers = [_racer(first), *_winners_among(won.fields, sources)]
            racers += [Racer(vendor=name, ratio=ratio) for name, ratio in won.vendors]
            yield RaceRecord(workload=read_workload[workload], target=read_target[target], protocol=protocol, racers=racers, winner=0)
    for (workload, target), schedules in wrong.items():
        racers = [_racer(schedule, Status.WRONG_RESULT) for schedule in schedules]
        yield RaceRecord(workload=read_workload[workload], target=read_target[target], protocol="", racers=racers)


def _winners_among(fields: Set[tuple[bytes, bytes]], sources: Set[str]) -> Iterator[Racer]:
    """Of those that ran beside a winner, only winners of other races matter; they are told mostly by their source."""
    for field, configs in fields:
        ran = _SOURCES.decode(field)
        if not sources.isdisjoint(ran):
            yield from (Racer(config=config, source=source) for source, config in zip(ran, _CONFIGS.decode(configs), strict=True) if source in sources)


def _racer(schedule: _Told, status: Status = Status.OK) -> Racer:
    return Racer(config=_CONFIG.decode(schedule[0]), source=schedule[1], status=status)
