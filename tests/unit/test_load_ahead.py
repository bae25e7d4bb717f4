"""What is loaded ahead: the binary that the cache has, run by nobody; nothing is compiled for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pathlib import Path
import torch
from triton.compiler.compiler import CompiledKernel
from triton.runtime.jit import JITFunction
from tilewright.children.ahead import Ahead, NotBuilt, binding
from tilewright.children.modules import load_file
from tilewright.children.standin import stand_in

stand_in({"backend": "cuda", "arch": "sm_90", "warp_size": 32})
loaded = []
CompiledKernel._init_handles = lambda self: loaded.append(self.metadata.name)
module = load_file(Path(sys.argv[1]), "candidate")
vectors = [torch.empty(1000, device="meta") for _ in range(3)]
really = JITFunction.run
try:
    with binding():
        module.launch(*vectors)
except NotBuilt:
    print("not built")
assert JITFunction.run is really
module.add_kernel.warmup(*vectors, 1000, BLOCK=1024, grid=(1,))  # as the builder does
with binding():
    module.launch(*vectors)
print(loaded)

ahead = Ahead()
text = Path(sys.argv[1]).read_text()
ahead.load({"text": text, "hash": "a" * 64}, Path(sys.argv[2]), lambda module: 1 / 0)
print(ahead.take("b" * 64), ahead.take("a" * 64))
ahead.load({"text": text, "hash": "a" * 64}, Path(sys.argv[2]), lambda module: 1 / 0)
print(ahead.take("a" * 64).launch.__name__, ahead.take("a" * 64))
ahead.load({"text": "raise SystemExit(3)", "hash": "c" * 64}, Path(sys.argv[2]), lambda module: None)
print(ahead.take("c" * 64))
"""


def test_binaries_are_taken_from_the_cache_and_modules_once(tmp_path: Path, vector_add: pytest.FixtureRequest) -> None:
    module = tmp_path / "module.py"
    module.write_text(vector_add.schedule)  # type: ignore[attr-defined]
    env = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton"), "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(module), str(tmp_path)], capture_output=True, text=True, env=env, check=False)
    assert done.stdout.splitlines() == ["not built", "['add_kernel']", "None None", "launch None", "None"], done.stderr
