"""Operands that are kept between requests: those of recent workloads, and of their ragged neighbours."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tilewright.children.candidate import loaded
from tilewright.children.operands import Operands
from tilewright.record import Status
from tilewright.target import Target
from tilewright.workload import Workload

_KEPT_WORKLOADS: Final = 128  # a session comes round to each of its workloads; the share of memory below is the limit that counts
_KEPT_NEIGHBOURS: Final = 128  # as many: they are small, and each workload has up to three
_KEPT_SHARE: Final = 0.4  # guess: of device memory; another set is made before the oldest is dropped
_KEPT_CPU_BYTES: Final = 2 * 2**30  # guess: a machine without a GPU has 8 GB or more
_NEIGHBOUR_FRESH_S: Final = 0.0005  # of 25 ms a candidate: masks do not depend on data, so fresh data is needed only now and then

_Key = tuple[str, str, int]


class Stock:
    """Makes and keeps operands.

    Args:
        device: torch's.
        target: of the device; None under the interpreter.
    """

    def __init__(self, device: Any, target: Target | None) -> None:
        self._device, self._target = device, target
        self._kept: OrderedDict[_Key, Operands] = OrderedDict()
        self._neighbours: OrderedDict[_Key, Operands] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Bytes held in all."""
        return sum(kept.nbytes for kept in (*self._kept.values(), *self._neighbours.values()))

    def of(self, payload: Mapping[str, Any]) -> Operands:
        """The operands of a request's workload.

        Raises:
            OperatorFault: the operator's own code fails.
        """
        workload = Workload(**payload["workload"])
        key = _key(payload, workload)
        if key not in self._kept:
            while self._kept and (len(self._kept) >= _KEPT_WORKLOADS or self.nbytes > self._most_bytes()):
                self._neighbours.clear()
                self._kept.popitem(last=False)
            self._kept[key] = self._make(payload, workload, l2_bytes=self._target.l2_bytes if self._target else 0)
        self._kept.move_to_end(key)
        for other in self._kept.values():
            other.disturbed |= other is not self._kept[key]
        return self._kept[key]

    def kept(self, payload: Mapping[str, Any], workload: Workload) -> Operands | None:
        """The operands of a workload, where they are made."""
        return self._kept.get(_key(payload, workload))

    def neighbour(self, payload: Mapping[str, Any], workload: Workload) -> Operands:
        """The operands of a ragged neighbour: never timed, and drawn afresh only now and then.

        Raises:
            OperatorFault: there is no room for it, or the operator does not take such extents.
        """
        key = _key(payload, workload)
        if key not in self._neighbours:
            while len(self._neighbours) >= _KEPT_NEIGHBOURS:
                self._neighbours.popitem(last=False)
            self._neighbours[key] = self._make(payload, workload, l2_bytes=0, fresh_s=_NEIGHBOUR_FRESH_S)
        self._neighbours.move_to_end(key)
        return self._neighbours[key]

    def spoil(self, operands: Operands, status: Status) -> None:
        """Have everything made again that a failed candidate may have written to: all there is, where it was seen to stray."""
        operands.spoil()
        self._neighbours.clear()
        if status is Status.OUT_OF_BOUNDS:
            for kept in self._kept.values():
                kept.spoil()

    def _make(self, payload: Mapping[str, Any], workload: Workload, **options: Any) -> Operands:
        def default(operands: Operands) -> list[Any]:
            """What the author's default schedule computes, where an operator has no reference and it is trusted instead."""
            with loaded(payload["default"], Path(payload["sources"]), self._device, operands.synchronize) as candidate:
                for output in operands.outputs:
                    output.poison(0)
                candidate.call(operands.arguments, candidate.scratch(operands))()
                operands.synchronize()
            return [output.tensor for output in operands.outputs]

        return Operands(
            operator=payload["operator"],
            folder=Path(payload["folder"]),
            workload=workload,
            seed=int(payload["seed"]),
            device=self._device,
            default=default if payload.get("default") else None,
            **options,
        )

    def _most_bytes(self) -> int:
        return _KEPT_CPU_BYTES if self._target is None else int(self._target.memory_bytes * _KEPT_SHARE)


def _key(payload: Mapping[str, Any], workload: Workload) -> _Key:
    return (payload["folder"], workload.key, int(payload["seed"]))
