"""NumPy on one thread: its linear algebra would otherwise take all cores from the builders, and be slower for it.

On two cores with other work on them, a proposal at 300 trials took 7 s of both on two threads and 0.1 s on one (2026-11).
"""

from __future__ import annotations

import os
import sys
from typing import Final

_LIMITS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def import_numpy() -> None:
    """Import NumPy with one thread, unless it is imported already, or someone has set a number of threads."""
    if "numpy" in sys.modules:
        return
    unset = [name for name in _LIMITS if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, "1"))
    try:
        import numpy  # noqa: F401 - it reads them once, on being imported
    finally:
        for name in unset:  # children decide for themselves
            os.environ.pop(name, None)
