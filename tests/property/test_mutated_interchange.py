"""Damaged and hostile files of other tools: read, or refused by name; never run, never a crash."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.importers import import_kernel_tuner, import_t4
from tilewright.interchange.config_files import read_configs
from tilewright.interchange.names import Names
from tilewright.interchange.suggested import match_configs
from tilewright.space import Cfg, Space

PYTHON = """
import triton
configs = [
    triton.Config({"BLOCK_M": 32, "mode": "a"}, num_warps=4, num_stages=3),
    triton.Config(kwargs={"BLOCK_M": 64, "order": ("m", "n")}, num_warps=8),
] + [triton.Config({"BLOCK_M": m, "mode": "b"}, num_warps=w) for m in [16, 64] for w in (2, 4)]
"""
HOSTILE = [
    "__import__('os')",
    "open('x', 'w')",
    "{{ 7 * 7 }}",
    "../../etc/passwd",
    "1e999",
    "-1",
    "None",
    "True",
    "[[[[",
    "**{}",
    "lambda: 0",
    "\0",
    '"',
    "}",
    "NaN",
    "Infinity",
]
CONFIGURATION = {"block": 16, "parts": [4, 16], "mode": "a"}
T4 = {
    "schema_version": "1.0.0",
    "metadata": {"device": "NVIDIA RTX A4000", "timeunit": "milliseconds"},
    "results": [
        {
            "configuration": {**CONFIGURATION, "block": block},
            "times": {"compilation": 1.0, "runtimes": [1.0, 2.0]},
            "invalidity": word,
            "correctness": 1,
            "objectives": ["time"],
            "measurements": [{"name": "time", "value": 1.5, "unit": "ms"}],
        }
        for block, word in ((16, "correct"), (32, "correct"), (64, "compile"))
    ],
}
CACHE = {
    "device_name": "NVIDIA RTX A4000",
    "kernel_name": "k",
    "problem_size": [64, 64],
    "tune_params_keys": ["block"],
    "tune_params": {"block": [16, 32]},
    "cache": {"16": {"block": 16, "time": 1.5, "times": [1.0, 2.0], "compile_time": 1.0}, "32": {"block": 32, "time": "InvalidConfig"}},
}


def declared(cfg: Cfg) -> None:
    cfg.define_split("tile_m", 64, num_outputs=2, policy="power2", min_factor=16, max_factor=64)
    cfg.define_knob("num_warps", [2, 4, 8])
    cfg.define_knob("mode", ["a", "b"])
    cfg.define_reorder("order", ["m", "n"], policy="all")


def mutated(text: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice((0, 0, 1, 3, 20)))
        text = text[:start] + rng.choice(("", chr(rng.randrange(32, 256)), rng.choice(HOSTILE))) + text[end:]
    return text


def test_mutated_files_are_read_or_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(20261129)
    space = Space({"s": declared})
    names = Names.parse(["tile_m=BLOCK_M"])
    outcomes = {"python": [0, 0], "t4": [0, 0], "cache": [0, 0]}
    for kind, text in (("python", PYTHON), ("t4", json.dumps(T4)), ("cache", json.dumps(CACHE))):
        path = tmp_path / ("file.py" if kind == "python" else "file.json")
        for _ in range(700):
            path.write_text(mutated(text, rng), encoding="utf-8")
            try:
                if kind == "python":
                    found = match_configs(read_configs(path), space, names)
                    assert all(space.validate(config) == config for config in found.configs)
                    assert len(found.configs) + len(found.refused) <= found.given
                else:
                    (import_t4 if kind == "t4" else import_kernel_tuner)(path)
                outcomes[kind][0] += 1
            except TilewrightError as error:
                assert str(path) in str(error)
                outcomes[kind][1] += 1
        path.unlink()
    assert all(min(counts) > 50 for counts in outcomes.values()), outcomes
    assert list(tmp_path.iterdir()) == []
