"""When a workload's search is given up: its first candidates all fail in one way, and nothing of its operator has ever run. docs/decisions/0010."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tilewright.knobs import SCHEDULE
from tilewright.record import Record, Status
from tilewright.trials import Search

HOPELESS: Final = "hopeless"  # the reason that such a search ends by

# Failures in a row that end it. Among them are the author's own suggestions, and candidates of every schedule. guess: where one config in five
# runs, sixteen that all fail are one search in forty; a fault in a template fails all of them.
MOST_FAILURES: Final = 16
# A time-out costs up to a minute, so that a search of 64 by default would take an hour. guess: six are as many minutes.
MOST_TIMEOUTS: Final = 6

# Ends that say that the candidate did not get as far as an output, and that another config need not mend.
_BEFORE_RUNNING: Final = frozenset({Status.COMPILE_ERROR, Status.LAUNCH_ERROR, Status.CRASH})
_TIMEOUTS: Final = frozenset({Status.COMPILE_TIMEOUT, Status.RUN_TIMEOUT})
# That it asked for too much, or was never tried, says nothing either way.
_NEITHER: Final = frozenset({Status.OUT_OF_RESOURCES, Status.CUT})
_DIGITS: Final = re.compile(r"\d+")


class Hopes:
    """Hears of the records of a session, and ends the searches that are not worth their budget.

    Args:
        has_run: whether any record of the operator, in the log or its history, is of a candidate that ran; asked once, before a search is given up.
    """

    def __init__(self, has_run: Callable[[], bool]) -> None:
        self._has_run = has_run
        self._ran = False
        self._failed: dict[int, list[tuple[Status, str]]] = {}
        self._schedules: dict[int, set[object]] = {}

    def heard(self, search: Search, record: Record) -> None:
        """Note how a candidate of this session ended; ends its search where that was the last of its hopes."""
        if record.status in _NEITHER and record.measurement is None:
            self._failed[id(search)] = []
        elif record.status not in _BEFORE_RUNNING | _TIMEOUTS:
            self._ran = True
        elif not self._ran and not search.ended:
            failed = self._failed.setdefault(id(search), [])
            failed.append((record.status, _DIGITS.sub("#", record.message.partition("\n")[0])))
            tried = self._schedules.setdefault(id(search), set())
            tried.add(record.config.get(SCHEDULE))
            alike = len(set(failed)) == 1
            if alike and len(failed) >= (MOST_TIMEOUTS if record.status in _TIMEOUTS else MOST_FAILURES) and tried >= _schedules(search):
                self._ran = self._has_run()
                if not self._ran:
                    search.ended = HOPELESS


def _schedules(search: Search) -> set[object]:
    """All schedules of a search's operator that its space has; none where it has one alone."""
    return {value for knob in search.space.knobs if knob.name == SCHEDULE for value in knob.values}
