"""Times and configs as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.knobs import Value


def format_us(us: float | None) -> str:
    """A time in µs with four significant digits, `-` for none."""
    if us is None:
        return "-"
    return f"{us:,.1f}" if us >= 1000 else f"{us:.4g}"


def format_config(config: Mapping[str, Value]) -> str:
    """A config in one line."""
    return " ".join(f"{name}={format_value(value)}" for name, value in config.items())


def format_value(value: Value) -> str:
    """A knob's value in one word: parts, axes or annotations joined by `x`."""
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)
