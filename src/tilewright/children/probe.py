"""A child process that says which torch and triton are here and whether they work; `doctor` asks it.

    python -m tilewright.children.probe versions       their versions, and the devices torch sees
    python -m tilewright.children.probe interpreter    with TRITON_INTERPRET=1: run a kernel and check its result

Prints one line of JSON, the last of its standard output. An exception is the answer too: the parent shows its last line.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def versions() -> dict[str, Any]:
    """Versions of torch and triton, and of the CUDA that torch was built for."""
    import torch
    import triton

    return {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda or "",
        "cuda_devices": torch.cuda.device_count() if torch.cuda.is_available() else 0,
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


if __name__ == "__main__":
    print(json.dumps({"versions": versions, "interpreter": interpreter}[sys.argv[1]]()))
