"""templates/matmul with coarser lists of candidates: a conditional space of three schedules, small enough to be recorded whole.

Spec and reference are matmul's own; the templates are copies in which only the candidates and the suggestions differ.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Final

_MATMUL: Final = Path(__file__).resolve().parents[3] / "templates" / "matmul" / "spec.py"
_description = importlib.util.spec_from_file_location("coarse_matmul_base", _MATMUL)
assert _description is not None and _description.loader is not None
_base = importlib.util.module_from_spec(_description)
_description.loader.exec_module(_base)

# Large and even; few rows; wide; ragged in all dims; odd rows; deep; a wide decode; multiples of 8 and not of 16.
RECORDED: Final = (
    (4096, 4096, 4096),
    (16, 6144, 4096),
    (512, 8192, 3584),
    (1000, 3000, 2000),
    (77, 5000, 4104),
    (1024, 1024, 16384),
    (128, 28672, 4096),
    (999, 2056, 1544),
)

SPEC: Final = replace(
    _base.SPEC,
    name="coarse_matmul",
    summary="c = a @ b by matmul's three schedules, with few candidates a knob: for recording the whole space",
    workload_sets={
        "recorded": [{"M": m, "N": n, "K": k, "dtype": "bfloat16"} for m, n, k in RECORDED],
        "smoke": [{"M": 64, "N": 64, "K": 64}, {"M": 40, "N": 48, "K": 96}],
    },
    buckets={},
)
