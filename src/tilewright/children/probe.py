"""A child process that says which torch and triton are here and whether they work; `doctor` asks it.

    python -m tilewright.children.probe versions       their versions, and the devices torch sees
    python -m tilewright.children.probe interpreter    with TRITON_INTERPRET=1: run a kernel and check its result
    python -m tilewright.children.probe measuring      on the first GPU: time the anchors, by graph replay and by events

Prints one line of JSON, the last of its standard output. An exception is the answer too: the parent shows its last line.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

_SAMPLES: Final = 60  # of each anchor: 20 ms of device time
_CALLS: Final = 20


def versions() -> dict[str, Any]:
    """Versions of torch and triton, and of the CUDA that torch was built for."""
    import torch
    import triton

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    ids = [str(getattr(torch.cuda.get_device_properties(index), "uuid", "")) for index in range(count)]
    return {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda or "",
        "cuda_devices": count,
        "device_ids": ids,
    }


def interpreter() -> dict[str, Any]:
    """Run a tiny kernel in Triton's interpreter and compare its result."""
    import torch
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def double(x_ptr: Any, y_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        # A loop with a run-time bound: the part that breaks first when numpy and Triton do not fit.
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        for _ in range(0, n, BLOCK):
            total += tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
        tl.store(y_ptr + offsets, total, mask=offsets < n)

    x = torch.arange(100, dtype=torch.float32)
    y = torch.empty_like(x)
    double[(2,)](x, y, 100, BLOCK=64)
    return {"correct": bool(torch.equal(y, 2 * x))}


def measuring() -> dict[str, Any]:
    """Times of the anchors under load, by both timers, and the device's state meanwhile."""
    import msgspec
    import torch

    from tilewright.children import timing
    from tilewright.children.anchors import Anchors
    from tilewright.children.device import describe
    from tilewright.children.sensors import Sensors
    from tilewright.children.warming import warm_up
    from tilewright.target import Target

    device = torch.device("cuda:0")
    target = msgspec.convert(describe("cuda:0")["target"], Target)
    torch.cuda.set_device(device)
    warm_up(device)
    anchors, sensors = Anchors(target, device), Sensors(device)
    found: dict[str, Any] = {"name": target.name, "anchors": {}}
    with torch.cuda.stream(timing.stream(device)):
        for kind, (call, *others) in anchors.calls.items():
            take = anchors.taker(kind)
            told = anchors.told(kind, [1.0])
            if take is None or told is None or others:  # the short kernel: between events it would be the host that is timed
                continue

            def run(call: Any = call) -> None:
                for _ in range(_CALLS):
                    call()

            graph = take(_SAMPLES)
            # Many calls between two events: the host's launches stay ahead of the device, as they must for events to be right.
            events = timing.replay(run, _CALLS, _SAMPLES // 10, lead=True)
            found["anchors"][kind] = {"graph_us": graph, "events_us": events, "nominal_us": told.nominal_us}
    found["state"] = msgspec.to_builtins(sensors.read())
    return found


if __name__ == "__main__":
    print(json.dumps({"versions": versions, "interpreter": interpreter, "measuring": measuring}[sys.argv[1]]()))
