"""Rendered modules as children import them: the end of a kernel's text is found once, and bytecode is kept."""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.children.modules import _Blocks, load_rendered, source_file, unload

KERNEL = "@jit\ndef kernel(\n    a,\n    b,\n):\n    text = '''\nx = 1\n'''\n    return a, b, text\n    # of the kernel\n"
AFTER = {
    "launch": "\n\ndef launch(a):\n    return kernel(a, 1)\n",
    "comment, then launch": "\n# of the module\n\ndef launch(a):\n    return 2\n",
    "more of the kernel": "    return None\n\n\ndef launch(a):\n    return 3\n",
    "nothing": "",
    "blank lines": "\n\n",
    "a line that goes on": "x = (1,\n  2)\n",
    "a backslash, then the module": "\\\nx = 1\n",
    "a backslash, then more of the kernel": "\\\n    return 4\n",
}


class Counting:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, lines: Any) -> Any:
        self.calls += 1
        return GETBLOCK(lines)


GETBLOCK: Any = inspect.getblock


@pytest.mark.parametrize("first", AFTER)
@pytest.mark.parametrize("second", AFTER)
def test_remembered_blocks_are_those_that_python_finds(first: str, second: str) -> None:
    blocks = _Blocks(GETBLOCK)
    for name in (first, second, first):
        lines = (KERNEL + AFTER[name]).splitlines(keepends=True)
        assert blocks(lines) == GETBLOCK(lines)


def test_a_block_is_found_once_whatever_comes_after_it() -> None:
    count = Counting()
    blocks = _Blocks(count)
    for knob in range(5):
        lines = f"{KERNEL}\n\ndef launch(a):\n    return kernel(a, {knob})\n".splitlines(keepends=True)
        assert blocks(lines) == GETBLOCK(lines)
    assert count.calls == 1
    changed = KERNEL.replace("return a", "return -a").splitlines(keepends=True)
    assert blocks([*changed, "x = 1\n"]) == changed
    assert count.calls == 2


def test_no_more_blocks_are_kept_than_a_few_operators_have() -> None:
    count = Counting()
    blocks = _Blocks(count)
    for number in range(100):
        blocks([f"def f{number}():\n", "    return 1\n", "x = 1\n"])
    assert len(blocks._known) == 64
    blocks(["def f99():\n", "    return 1\n", "x = 1\n"])
    assert count.calls == 100


def test_bytecode_is_kept_also_where_the_interpreter_writes_none(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from tilewright.children.modules import load_rendered
sys.path.insert(0, {str(tmp_path)!r})
assert sys.dont_write_bytecode
module = load_rendered(Path({str(tmp_path)!r}) / "rendered.py")
assert module.launch() == 7 and module.__name__ == "rendered" and sys.modules["rendered"] is module
assert sys.dont_write_bytecode
"""
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    (tmp_path / "rendered.py").write_text("import beside\n\n\ndef launch():\n    return beside.VALUE\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], check=True, env={**environment, "PYTHONDONTWRITEBYTECODE": "1"}, timeout=120)
    assert [file.name.partition(".")[0] for file in (tmp_path / "__pycache__").iterdir()] == ["rendered"]


@pytest.mark.parametrize(
    "damaged", [lambda good: good[: len(good) // 2], lambda good: good[:16] + bytes(len(good) - 16), lambda good: b""], ids=["half", "zeros", "empty"]
)
def test_bytecode_that_a_full_disk_cut_short_is_no_fault_of_the_module(tmp_path: Path, damaged: Callable[[bytes], bytes]) -> None:
    path = source_file(tmp_path, "def launch():\n    return 7\n", "0" * 64)
    unload(load_rendered(path))
    bytecode = Path(importlib.util.cache_from_source(str(path)))
    good = bytecode.read_bytes()
    bytecode.write_bytes(damaged(good))
    for _ in range(2):
        module = load_rendered(path)
        assert module.launch() == 7
        unload(module)
    assert bytecode.read_bytes() == good


def test_a_module_whose_text_is_wrong_says_so_every_time(tmp_path: Path) -> None:
    path = source_file(tmp_path, "def launch(:\n", "0" * 64)
    for _ in range(2):
        with pytest.raises(SyntaxError, match=path.name):
            load_rendered(path)
    assert path.stem not in sys.modules


def test_a_rendered_module_reads_as_its_text(tmp_path: Path) -> None:
    texts = [f"def kernel(a):\n    return a\n\n\ndef launch(a):\n    return kernel(a) + {knob}\n" for knob in range(3)]
    for place, text in enumerate(texts):
        module = load_rendered(source_file(tmp_path, text, f"{place}" * 64))
        assert inspect.getsource(module.kernel) == "def kernel(a):\n    return a\n"
        assert inspect.getsource(module.launch) == f"def launch(a):\n    return kernel(a) + {place}\n"
        assert module.launch(1) == 1 + place
        unload(module)
        assert module.__name__ not in sys.modules
