"""What `launch` launches, taken down instead of launched. With `precompiled.py`, all that leans on Triton's inside; Triton 3.6 to 3.9."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any

import triton
from triton.runtime.jit import JITFunction, KernelInterface

from .standin import Unplannable

_active = threading.local()
_install_lock = threading.Lock()

Compile = Callable[..., Any]


@dataclass(slots=True)
class Compiles:
    """Calls of Triton's compiler, and seconds spent in them; what Triton's own cache on disk answered is counted too."""

    count: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: the kernel, its grid, and the values of its parameters in order, constants among them."""

    kernel: Any
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor map that a launch wants made: Triton's function and its arguments, the address first."""

    make: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A call of the launcher in C: the function, and its arguments with `STREAM` where the stream goes."""

    launch: Callable[..., Any]
    arguments: tuple[Any, ...]


class _Stream:
    """Stands for the stream of a call."""


STREAM = _Stream()


@dataclass(slots=True)
class Recorder:
    """Takes down launches of the kernels of one module, in one thread at a time.

    Attributes:
        compiler: asked in place of Triton's compiler, which it is given besides.
        compiles: what was compiled.
    """

    compiler: Callable[[Compile, Any, Any, Any], Any] | None = None
    compiles: Compiles = field(default_factory=Compiles)

    def record(self, launch: Callable[..., None], arguments: Sequence[Any]) -> list[Launch]:
        """What `launch` would launch for stand-ins. Kernels that it needs are compiled.

        Raises:
            Unplannable: `launch` does more than launch kernels.
            Exception: whatever `launch` or the compiler raises.
        """
        launched: list[Launch] = []
        outer = getattr(_active, "recording", None)
        _active.recording = (self, launched)
        try:
            launch(*arguments)
        finally:
            _active.recording = outer
        return launched

    def launched(self, function: Any, run: Callable[..., Any], arguments: tuple[Any, ...], grid: Any, named: dict[str, Any]) -> Launch:
        """Compile one kernel, unless that was done, in place of a launch."""
        if function.pre_run_hooks:
            raise Unplannable(f"kernel {function.__name__} has hooks that run before it")
        device = triton.runtime.driver.active.get_current_device()
        self._watch(function, device)
        kernel = run(*arguments, grid=grid, warmup=True, **named)
        if kernel is None:
            raise Unplannable("a hook of Triton's forbids compiling")
        kernel = kernel.result() if hasattr(kernel, "result") else kernel
        bound = function.signature.bind(*arguments, **{name: value for name, value in named.items() if name in function.arg_names})
        bound.apply_defaults()
        first, second, third, *_ = (*map(int, grid(bound.arguments) if callable(grid) else grid), 1, 1, 1)
        return Launch(kernel, (first, second, third), tuple(bound.arguments.values()))

    def _watch(self, function: Any, device: int) -> None:
        """Have the function's compiler counted, and ask the store of compiled kernels before it."""
        # Creating the device's cache is what makes Triton look its compiler up, so it has to come first.
        caches = function.device_caches[device]
        assert caches is not None
        if getattr(self.compiler, "writing", False):
            # What Triton holds in memory would not pass through the compiler, and so not be written.
            caches[0].clear()
        really = function.compile
        if isinstance(really, _Watched):
            really = really.really
        function.compile = _Watched(self, really)


@dataclass(frozen=True, slots=True)
class _Watched:
    recorder: Recorder
    really: Compile

    def __call__(self, source: Any, target: Any = None, options: Any = None, **more: Any) -> Any:
        started = time.perf_counter()

        def compile_now() -> Any:
            self.recorder.compiles.count += 1
            return self.really(source, target=target, options=options, **more)

        try:
            if self.recorder.compiler is None:
                return compile_now()
            return self.recorder.compiler(compile_now, source, target, options)
        finally:
            self.recorder.compiles.seconds += time.perf_counter() - started


def prepare(module: ModuleType) -> bool:
    """Have launches of a module's kernels taken down while a recording is on in the thread; otherwise they launch as ever.

    Returns:
        Whether its kernels are compiled ones: those of Triton's interpreter cannot be taken down.
    """
    found = list(_functions(module))
    with _install_lock:
        for function in found:
            if "run" not in vars(function):
                function.run = _listening(function, function.run)
        if found:
            _listen_to_maps()
    return bool(found)


def _functions(module: ModuleType) -> Iterator[Any]:
    for value in list(vars(module).values()):
        while isinstance(value, KernelInterface):
            if isinstance(value, JITFunction):
                yield value
            value = getattr(value, "fn", None)  # Heuristics and the like wrap one another


def _listening(function: Any, run: Callable[..., Any]) -> Callable[..., Any]:
    def listen(*arguments: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        recording = getattr(_active, "recording", None)
        if recording is None or warmup:
            return run(*arguments, grid=grid, warmup=warmup, **named)
        recorder, launched = recording
        launched.append(recorder.launched(function, run, arguments, grid, named))
        return launched[-1].kernel

    return listen


def _listen_to_maps() -> None:
    utils = triton.runtime.driver.active.utils if hasattr(triton.runtime.driver.active, "utils") else None
    for name in [name for name in dir(utils) if name.startswith("fill_tma_descriptor")]:
        make = getattr(utils, name)
        if not isinstance(make, _MapMaker):
            setattr(utils, name, _MapMaker(make))


@dataclass(frozen=True, slots=True)
class _MapMaker:
    make: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return Map(self.make, arguments) if getattr(_active, "lowering", False) else self.make(*arguments)


def lower(launch: Launch) -> Lowered | None:
    """The call of the C launcher that a launch comes down to. None where Triton must be left to make it.

    Triton's own `run` costs some 2 µs more: it allocates scratch where a kernel wants any, makes tensor maps, and reads every pointer from its
    tensor twice.

    Raises:
        OutOfResources: the kernel needs more than the device has.
    """
    launcher = launch.kernel.run
    if not hasattr(launcher, "launch") or any(getattr(launcher, f"{kind}_scratch_size", 0) for kind in ("global", "profile")):
        return None
    if getattr(launcher, "gsan_enabled", False):
        return None
    taken: list[Lowered] = []
    probe = copy.copy(launcher)
    probe.launch = _without_launching(launcher.launch, taken)
    if probe.launch is None:
        return None
    _active.lowering = True
    try:
        probe(*launch.grid, STREAM, launch.kernel.function, launch.kernel.packed_metadata, None, None, None, *launch.arguments)
    finally:
        _active.lowering = False
    return taken[0] if len(taken) == 1 else None


def _without_launching(launch: Any, taken: list[Lowered]) -> Callable[..., None] | None:
    """A launcher that notes the last call instead of making it: the C function itself, or one wrapped once to make tensor maps."""

    def note(function: Callable[..., Any]) -> Callable[..., None]:
        return lambda *arguments: taken.append(Lowered(function, arguments))

    if not isinstance(launch, FunctionType):
        return note(launch)
    inner = [cell.cell_contents for cell in launch.__closure__ or () if isinstance(cell.cell_contents, BuiltinFunctionType)]
    if len(inner) != 1:
        return None
    cells = tuple(CellType(note(cell.cell_contents)) if cell.cell_contents is inner[0] else cell for cell in launch.__closure__ or ())
    return FunctionType(launch.__code__, launch.__globals__, launch.__name__, launch.__defaults__, cells)
