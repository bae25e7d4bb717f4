"""Short names of devices, told apart by identity: PCI id, multiprocessors, memory, power limit, MIG profile. Never by marketing name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tilewright.errors import UsageError, nearest
from tilewright.target import Target

# Memory that the driver keeps for itself differs between releases. guess: a gibibyte or two.
_MEMORY_SLACK_GIB: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """What a device of a short name has.

    Attributes:
        pci_id: PCI device id.
        sm_count: multiprocessors.
        memory_gib: device memory.
        power_limit_w: as shipped; a device set to another limit is not of this name.
    """

    pci_id: str
    sm_count: int
    memory_gib: int
    power_limit_w: int

    def differences(self, target: Target) -> tuple[str, ...]:
        """The fields in which a whole device differs, such as `power_limit_w (600, not 700)`."""
        identity = target.identity
        found = [(name, identity[name], wanted) for name, wanted in (("pci_id", self.pci_id), ("sm_count", self.sm_count)) if identity[name] != wanted]
        if abs(identity["memory_gib"] - self.memory_gib) > _MEMORY_SLACK_GIB:
            found.append(("memory_gib", identity["memory_gib"], self.memory_gib))
        if identity["power_limit_w"] != self.power_limit_w:
            found.append(("power_limit_w", identity["power_limit_w"], self.power_limit_w))
        return tuple(f"{name} ({ours!r}, not {theirs!r})" for name, ours, theirs in found)


# PCI ids: the PCI ID repository (pci-ids.ucw.cz), vendor 10de. The rest: NVIDIA's data sheets.
ALIASES: Final[Mapping[str, Alias]] = {
    "a100-pcie-80gb": Alias(pci_id="0x20b5", sm_count=108, memory_gib=80, power_limit_w=300),
    "a100-sxm4-40gb": Alias(pci_id="0x20b0", sm_count=108, memory_gib=40, power_limit_w=400),
    "a100-sxm4-80gb": Alias(pci_id="0x20b2", sm_count=108, memory_gib=80, power_limit_w=400),
    "h100-nvl": Alias(pci_id="0x2321", sm_count=132, memory_gib=94, power_limit_w=400),
    "h100-pcie": Alias(pci_id="0x2331", sm_count=114, memory_gib=80, power_limit_w=350),
    "h100-sxm5": Alias(pci_id="0x2330", sm_count=132, memory_gib=80, power_limit_w=700),
    "h200-nvl": Alias(pci_id="0x233b", sm_count=132, memory_gib=140, power_limit_w=600),
    "h200-sxm": Alias(pci_id="0x2335", sm_count=132, memory_gib=140, power_limit_w=700),
}


def is_named(name: str, target: Target) -> bool:
    """Whether a target is what a short name stands for: an alias, with `/<profile>` for a MIG slice of it, or an arch.

    A slice has fewer multiprocessors and less memory than the whole, so its PCI id and profile tell it.

    Raises:
        UsageError: no such name.
    """
    alias, slash, profile = name.partition("/")
    if alias in ALIASES:
        if slash:
            return target.mig_profile == profile and target.pci_id == ALIASES[alias].pci_id
        return not target.mig_profile and not ALIASES[alias].differences(target)
    if slash or not alias.startswith(("sm_", "gfx")):
        raise UsageError(f"unknown target {name!r}; {nearest(alias, ALIASES)}, or an arch such as sm_90; a MIG slice is <name>/<profile>, as h200-sxm/1g.18gb")
    return target.arch == alias


def select(name: str, targets: Iterable[Target]) -> list[Target]:
    """The targets that a short name stands for.

    Raises:
        UsageError: there are none; the message says in which fields each differs.
    """
    known = {target.key: target for target in targets}
    found = [target for target in known.values() if is_named(name, target)]
    if not found:
        alias = ALIASES.get(name.partition("/")[0])
        why = [f"{target.name} differs in {_why(name, alias, target)}" for target in known.values()]
        raise UsageError(f"no record for target {name!r}; {'; '.join(why) or 'there are no records'}")
    return found


def _why(name: str, alias: Alias | None, target: Target) -> str:
    if alias is None:
        return f"arch ({target.arch!r}, not {name!r})"
    profile = name.partition("/")[2]
    fields = [f"mig_profile ({target.mig_profile!r}, not {profile!r})"] if target.mig_profile != profile else []
    return ", ".join([*alias.differences(target), *fields])
