"""Whether a look-up reaches a record, and whether what it says is still so: the workload and config matched with today's operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tilewright.errors import SpaceError, TemplateError, UsageError
from tilewright.finding import Finding
from tilewright.library import Operator
from tilewright.nearby import differing
from tilewright.record import Record
from tilewright.target import compiled_for


def inspector(operators: Mapping[str, Operator]) -> Callable[[int, Record], Iterator[Finding]]:
    """What `lint` asks of the records that a look-up reaches. Those of operators that are not here are passed over."""
    hashes: dict[str, frozenset[str]] = {}  # read once

    def inspect(number: int, record: Record) -> Iterator[Finding]:
        operator = operators.get(record.workload.operator)
        if operator is None or not record.source:  # a recording has no code
            return
        key = record.workload.key
        try:
            made = operator.spec.workload(record.workload.parameters)
        except UsageError as error:
            yield Finding(number=number, rule="unreachable", severity="fault", message=f"no call can ask for {key}: {error}")
            return
        if made.key != key:
            message = f"no call can ask for {key}: calls ask for {made.key}, which differs in {differing(record.workload, made)}"
            yield Finding(number=number, rule="unreachable", severity="fault", message=message)
            return
        current = hashes.get(operator.name)
        if current is None:
            current = hashes[operator.name] = operator.template_hashes
        if record.template not in current:
            return  # told as stale, with all others from that template
        try:
            source = operator.instantiate(made, compiled_for(record.target), record.config, built=record.source)
        except (SpaceError, TemplateError, UsageError) as error:
            yield Finding(number=number, rule="illegal", severity="fault", message=f"the best of {key} is not in its space: {error}")
            return
        if source.hash != record.source:
            message = f"the best of {key}: its template renders other code here ({source.hash[:12]}) than was measured ({record.source[:12]})"
            yield Finding(number=number, rule="stale", severity="note", message=message)

    return inspect
