"""Triton's C modules, built without a device, and loaded in a process in which every compiler fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")

from triton.backends.nvidia import driver  # noqa: E402

from tilewright.runtime import cmodules  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")

# Loads what a launch needs: the driver's module, and where there is a launcher for each signature, that of one.
CHILD = """
import sys
from pathlib import Path
from triton.backends.nvidia import driver
from tilewright.runtime import cmodules
if sys.argv[1]:
    cmodules.offer(Path(sys.argv[1]))
utilities = driver.CudaUtils()
assert driver.PyCUtensorMap is not None and callable(utilities.load_binary)
if hasattr(driver, "make_launcher"):
    module = driver.compile_module_from_src(
        src=driver.make_launcher({}, {"a": "*fp32", "n": "i32"}, None), name="__triton_launcher",
        library_dirs=driver.library_dirs(), include_dirs=driver.include_dirs, libraries=driver.libraries)
    assert callable(module.launch)
print("loaded")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of modules, and beside it a libcuda whose functions all do nothing."""
    folder = tmp_path_factory.mktemp("cmodules")
    before = (dict(vars(driver)), vars(driver.CudaUtils).get("instance"), triton.knobs.build.impl, triton.knobs.cache.dir)
    kernels = []
    if hasattr(driver, "make_launcher"):
        source = type("Source", (), {"constants": {}, "signature": {"a": "*fp32", "n": "i32"}})
        fields = ("global_scratch_size", "global_scratch_align", "profile_scratch_size", "profile_scratch_align", "launch_cooperative_grid", "launch_pdl")
        kernels = [type("Kernel", (), {"src": source, "metadata": type("Metadata", (), dict.fromkeys(fields, 0))})]
    assert cmodules.make(kernels, folder / "modules") == []
    assert before == (dict(vars(driver)), vars(driver.CudaUtils).get("instance"), triton.knobs.build.impl, triton.knobs.cache.dir)
    names = {name for path in Path(driver.__file__).parent.glob("*.[cp]*") for name in re.findall(r"\bcu[A-Z]\w+", path.read_text())}
    (folder / "stub.c").write_text("".join(f"int {name}{version}(void) {{ return 0; }}\n" for name in sorted(names) for version in ("", "_v2", "_v3")))
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", folder / "libcuda.so.1", folder / "stub.c"], check=True)
    return folder


def load(built: Path, offered: str, scratch: Path) -> tuple[subprocess.CompletedProcess[str], bool]:
    """Run the child with compilers that fail; whether one ran."""
    for name in ("gcc", "clang", "cc"):
        (scratch / name).write_text(f'#!/bin/sh\ntouch "{scratch}/ran"\nexit 1\n')
        (scratch / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "TRITON_INTERPRET")}
    environment |= {
        "PATH": f"{scratch}:{os.environ['PATH']}", "TRITON_CACHE_DIR": str(scratch / "cache"), "LD_LIBRARY_PATH": str(built),
        "TRITON_LIBCUDA_PATH": str(built), "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", CHILD, offered], env=environment, capture_output=True, text=True, check=False)
    return done, (scratch / "ran").exists()


def test_offered_modules_are_loaded_and_nothing_is_compiled(built: Path, tmp_path: Path) -> None:
    done, compiled = load(built, str(built / "modules"), tmp_path)
    assert done.stdout.strip() == "loaded", done.stderr
    assert not compiled


def test_without_them_triton_compiles(built: Path, tmp_path: Path) -> None:
    done, compiled = load(built, "", tmp_path)
    assert done.returncode and compiled


def test_without_a_compiler_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    (problem,) = cmodules.make([], tmp_path / "modules")
    assert "C modules of Triton" in problem and "the first launch" in problem


def test_other_builds_go_on_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(triton.knobs.build, "impl", lambda name, *_: asked.append(name) or "elsewhere.so", raising=False)
    (tmp_path / "modules").mkdir()
    (tmp_path / "other.c").write_text("int x;")
    cmodules.offer(tmp_path / "modules")
    cmodules.offer(tmp_path / "modules")  # once is enough
    offered = triton.knobs.build.impl
    assert offered.before is not None and not isinstance(offered.before, cmodules.Offer)
    assert offered("other", str(tmp_path / "other.c"), "", [], [], []) == "elsewhere.so" and asked == ["other"]
