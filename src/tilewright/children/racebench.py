"""The workbench's part in a race."""

from __future__ import annotations

from typing import Any

import msgspec

from tilewright.anchoring import anchor_kind
from tilewright.children.failure import OperatorFault
from tilewright.children.operands import Operands
from tilewright.children.racing import Race, RacerFailed
from tilewright.children.rest import rss_bytes
from tilewright.children.workbench import Payload, Workbench
from tilewright.record import Status


class RacingWorkbench(Workbench):
    """A workbench that races as well."""

    _hung: Race | None = None

    def race_begin(self, payload: Payload) -> dict[str, Any]:
        """Make ready for a race on one workload: fresh inputs, for its entrants and for the sets that they rotate through."""
        self._end_race()
        try:
            operands = self._stock.of(payload)
            if payload["afresh"]:
                self._stock.spoil(operands, Status.OUT_OF_BOUNDS)  # a racer may have written anywhere
            kind = anchor_kind(operands.spec, operands.workload, self._known_target)
            self._race = Race(operands, self._device, anchors=self._anchors, kind=kind, sensors=self._sensors_now())
        except OperatorFault as fault:
            return {"fault": str(fault)}
        return {"rss_bytes": rss_bytes()}

    def race_enter(self, payload: Payload) -> dict[str, Any]:
        """Check a candidate or a vendor's kernel on the race's inputs, and capture it."""
        race = self._race
        assert race is not None

        def enter(operands: Operands, result: dict[str, Any]) -> None:
            if "vendor" in payload:
                call, calls = self._vendor_calls(payload["vendor"], operands)
                self._checked(operands, result, call, [], repeatable=False, redraw=False)
                race.enter(calls, checks=False)
                return
            candidate = race.stack.enter_context(self._loaded(payload, operands))
            scratch = candidate.scratch(operands)
            self._checked(operands, result, candidate.checked_call(operands, scratch), scratch, repeatable=not candidate.atomics, redraw=False)
            race.enter([candidate.call(arguments, scratch) for arguments in operands.sets()], checks=True)

        return self._run(payload, enter, racing=True)

    def race_run(self, payload: Payload) -> dict[str, Any]:
        """Race those that were entered, and end the race; or tell which of them failed, after which this process is of no more use."""
        race = self._race
        assert race is not None
        try:
            found = race.run(payload.get("rounds"))
        except RacerFailed as failed:
            # Nothing is freed: that would wait for what never ends.
            self._hung, self._race = race, None
            return {"failed": {"place": failed.place, "status": failed.status, "message": failed.message}}
        except BaseException:
            self._end_race()
            raise
        self._end_race()
        entrants = [{"status": one.status, "message": one.message, "times_us": [round(us, 4) for us in one.times_us]} for one in found.pop("entrants")]
        return {"entrants": entrants, **{name: msgspec.to_builtins(value) for name, value in found.items()}}
