"""The command line's parser: an option that it does not know is refused with the nearest one that it does."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from typing import Any


class Parser(argparse.ArgumentParser):
    """argparse's parser, whose commands refuse unknown options themselves: the parser above them does not know what they take."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        """As argparse's, but that nothing is left over."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}; {self._instead(unknown)}")
        return known, unknown

    def _instead(self, unknown: Sequence[str]) -> str:
        for given in unknown:
            if given.startswith("-"):
                option = given.partition("=")[0]
                close = difflib.get_close_matches(f"--{option.lstrip('-')}", self._option_string_actions, n=1)
                if close:
                    return f"did you mean {close[0]}?"
        return f"`{self.prog} --help` lists what it takes"
