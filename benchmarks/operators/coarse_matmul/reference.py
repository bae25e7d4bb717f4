"""matmul's own inputs, reference and vendors."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

_MATMUL: Final = Path(__file__).resolve().parents[3] / "templates" / "matmul" / "reference.py"
_description = importlib.util.spec_from_file_location("coarse_matmul_reference", _MATMUL)
assert _description is not None and _description.loader is not None
_base = importlib.util.module_from_spec(_description)
_description.loader.exec_module(_base)

make_inputs = _base.make_inputs
reference = _base.reference
VENDORS = _base.VENDORS
