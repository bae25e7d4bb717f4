"""Keys of workloads and targets for going over many records: as their `key`, but each computed once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tilewright.canonical import canonical_json
from tilewright.target import Target
from tilewright.workload import Workload


class Keys:
    """Remembers key texts.

    A record read from a log holds its own Workload and Target. Their keys cost 4 and 10 µs each time (2-core x86 machine, CPython
    3.11), more than reading the line does; telling that they were seen before costs 2 and 1 µs.
    """

    __slots__ = ("_configs", "_target", "_target_key", "_targets", "_workload", "_workload_key", "_workloads")

    def __init__(self) -> None:
        self._configs: dict[bytes, str] = {}
        self._workloads: dict[tuple[object, ...], str] = {}
        self._targets: dict[tuple[object, ...], str] = {}
        # The last ones asked for: where records share them, they mostly stand together.
        self._workload: Workload | None = None
        self._workload_key = ""
        self._target: Target | None = None
        self._target_key = ""

    def config(self, config: Mapping[str, Any]) -> str:
        """As `config_key`: the canonical text of a config."""
        plain = dict(config)
        try:
            raw = msgspec.json.encode(plain)  # a tenth of the time of the canonical text
        except (ValueError, OverflowError, TypeError):  # a number or a text that only Python holds
            return canonical_json(plain)
        key = self._configs.get(raw)
        if key is None:
            key = self._configs[raw] = canonical_json(plain)
        return key

    def workload(self, workload: Workload) -> str:
        """The workload's key."""
        if workload is self._workload:
            return self._workload_key
        parts = (workload.operator, *workload.dims.items(), *workload.dtypes.items(), *workload.layout.items())
        key = self._workloads.get(parts)
        if key is None:
            key = self._workloads[parts] = workload.key
        self._workload, self._workload_key = workload, key
        return key

    def target(self, target: Target) -> str:
        """The target's key."""
        if target is self._target:
            return self._target_key
        parts = (
            target.backend,
            target.arch,
            target.sm_count,
            target.l2_bytes,
            target.shared_memory_bytes,
            target.memory_bytes,
            target.pci_id,
            target.power_limit_w,
            target.mig_profile,
        )
        key = self._targets.get(parts)
        if key is None:
            key = self._targets[parts] = target.key
        self._target, self._target_key = target, key
        return key
