"""Carrying a config from the workload that it was tuned for to another."""

from __future__ import annotations

from math import prod
from typing import Final

from tilewright.declare import Declared, Schedule, run_pass
from tilewright.errors import SpaceError
from tilewright.knobs import SCHEDULE, Config
from tilewright.target import Target
from tilewright.template import Template
from tilewright.workload import Workload

# Values of further knobs that are tried. guess: one or two such knobs.
_MOST_TRIED: Final = 64


def carries(template: Template, workload: Workload, target: Target, config: Config, source_hash: str) -> bool:
    """Whether a config of another workload is legal for this one, and renders the same module.

    Splits keep all parts but the outermost. Knobs that only this workload reaches may take any value that leaves the module as it
    is; those that it does not reach are left out.

    Args:
        template: the config's.
        workload: the other one.
        target: of both.
        config: of the workload that was tuned.
        source_hash: of the module that it renders there.
    """
    turn = 0
    missing: dict[str, int] = {}  # how many candidates the knobs have that the config does not

    def pick(declared: Declared) -> int:
        if declared.name in config:
            return declared.knob.carried(config[declared.name])
        place = turn // prod(missing.values()) % declared.size
        missing[declared.name] = declared.size
        return place

    schedule = Schedule(template.name, template.program(workload, target))
    while turn < _MOST_TRIED:
        missing.clear()
        try:
            cfg = run_pass(schedule, pick)
        except SpaceError:  # this extent does not offer these tiles
            return False
        if not cfg._violations:
            carried = {name: value for name, value in cfg._config.items() if name != SCHEDULE}
            if template.instantiate(workload, target, carried).hash == source_hash:
                return True
        turn += 1
        if turn >= prod(missing.values()):
            return False
    return False
