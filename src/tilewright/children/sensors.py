"""Clocks, power and throttling of the device, by NVML."""

from __future__ import annotations

import time
from typing import Any, Final

import torch

from tilewright.children.device import nvml_handle
from tilewright.record import DeviceState

# NVML's bits (nvml.h, nvmlClocksEventReasons), bar the one that says that the device is idle.
REASONS: Final = {
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
_SLOW_S: Final = 0.001  # guess: some drivers take milliseconds to answer; then every candidate cannot ask
_KEPT_S: Final = 0.25  # guess: clocks and power follow load within some tenths of a second


class Sensors:
    """Reads the state of a device; without NVML it knows nothing.

    Args:
        device: torch's.
    """

    def __init__(self, device: Any) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        self._last: DeviceState | None = None
        self._read_at = 0.0
        self._cost_s = 0.0
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml, self._handle = pynvml, nvml_handle(pynvml, torch.cuda.get_device_properties(device))
        except Exception:
            self._handle = None  # no NVML here, or one that will not speak of this device

    def read(self) -> DeviceState | None:
        """The state now; where reading is slow, one of the last quarter of a second."""
        if self._handle is None:
            return None
        now = time.monotonic()
        if self._last is None or self._cost_s < _SLOW_S or now - self._read_at > _KEPT_S:
            self._last = self._ask()
            self._read_at = time.monotonic()
            self._cost_s = self._read_at - now
        return self._last

    def _ask(self) -> DeviceState:
        nvml = self._nvml
        milliwatts = self._one("nvmlDeviceGetPowerUsage")
        reasons = self._one("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:
            reasons = self._one("nvmlDeviceGetCurrentClocksThrottleReasons")  # the name until driver 535
        return DeviceState(
            sm_mhz=self._one("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            memory_mhz=self._one("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            power_w=None if milliwatts is None else round(milliwatts / 1000, 1),
            temperature_c=self._one("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            throttle=throttle_names(reasons or 0),
        )

    def _one(self, name: str, *arguments: Any) -> int | None:
        try:
            return int(getattr(self._nvml, name)(self._handle, *arguments))
        except (self._nvml.NVMLError, AttributeError):
            return None


def throttle_names(bits: int) -> list[str]:
    """What holds the clocks down, from NVML's bit mask; bits it does not name go by their number."""
    names = [name for bit, name in REASONS.items() if bits & bit]
    rest = bits & ~sum(REASONS) & ~0x1
    return [*names, f"other_{rest:#x}"] if rest else names
