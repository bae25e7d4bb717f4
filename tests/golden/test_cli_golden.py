"""What the command line offers, as text: others script against it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.cli import main

FOLDER = Path(__file__).parent / "cli"
COMMANDS = [
    "",
    "operators",
    "space",
    "render",
    "check",
    "tune",
    "best",
    "emit",
    "show",
    "verify",
    "log",
    "log lint",
    "log stats",
    "log merge",
    "log import",
    "log export",
    "doctor",
]


def file_of(command: str) -> Path:
    return FOLDER / f"help_{command.replace(' ', '_') or 'tilewright'}.txt"


def normal(text: str) -> str:
    """Without what differs between the versions of argparse: line breaks, and `-o FILE, --output FILE` for `-o, --output FILE`."""
    text = re.sub(r"(-\w) [^\s,\]]+(?:,\.\.\.)?, (--)", r"\1, \2", text)
    return "\n".join(" ".join(block.split()) for block in re.split(r"\n\s*\n", text.strip())) + "\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str, golden: Callable[[Path, str], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main([*command.split(), "--help"]) == 0
    golden(file_of(command), normal(capsys.readouterr().out))


def test_no_golden_file_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {file_of(command).name for command in COMMANDS}
