"""Whatever a log's lines say: no crash, nothing executed, nothing written elsewhere, every refused line counted with its reason.

`benchmarks/mutated_logs.py` does the same with 100,000 lines.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_mutated_lines_are_refused_or_harmless(tmp_path: Path) -> None:
    # In a process of its own: its audit hook cannot be taken out again.
    command = [sys.executable, str(BENCHMARKS / "mutated_logs.py"), "--lines", "1500", "--seed", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'offences': {}" in done.stdout
    assert "LogDamaged: JSON is malformed" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["mutated_logs.json"]
