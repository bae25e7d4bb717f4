"""A candidate's rendered module, loaded: what it launches, and what it declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright.children.buffers import Guarded, torch_dtype
from tilewright.children.failure import HostFault, classify
from tilewright.children.modules import load_rendered, source_file, unload
from tilewright.children.operands import Operands


class Candidate:
    """A rendered module that was imported.

    Attributes:
        launch: the module's.
        atomics: whether it declares `ATOMICS = True`: then two runs need not agree to the bit, as floating-point sums by atomics
            come in any order.
    """

    def __init__(self, module: Any, device: Any) -> None:
        self.launch: Callable[..., Any] = module.launch
        self.atomics = getattr(module, "ATOMICS", False) is True
        self._workspace = getattr(module, "workspace", None)
        self._device = device

    def scratch(self, operands: Operands) -> list[Guarded]:
        """Guarded tensors of what its `workspace` asks for.

        Raises:
            CandidateFailed: `workspace` raised, or there is not so much memory.
        """
        if self._workspace is None:
            return []
        try:
            wanted = list(self._workspace(*operands.arguments) or [])
            return [
                Guarded(f"scratch {index}", tuple(int(extent) for extent in shape), torch_dtype(dtype), None, self._device)
                for index, (shape, dtype) in enumerate(wanted)
            ]
        except BaseException as error:
            raise classify(error, "workspace", operands.synchronize) from error

    def checked_call(self, operands: Operands, scratch: Sequence[Guarded]) -> Callable[[], None]:
        """What launches it once on the operands' arguments, those of the latest draw."""

        def call() -> None:
            self.launch(*operands.arguments, *(buffer.tensor for buffer in scratch))

        return call

    def call(self, arguments: Sequence[Any], scratch: Sequence[Guarded]) -> Callable[[], None]:
        """What launches it once."""
        everything = [*arguments, *(buffer.tensor for buffer in scratch)]

        def call() -> None:
            self.launch(*everything)

        return call


@contextmanager
def loaded(
    source: Mapping[str, Any], folder: Path, device: Any, synchronize: Callable[[], Any], ahead: Callable[[str], ModuleType | None] = lambda _: None
) -> Iterator[Candidate]:
    """Import a module from its text; forget it afterwards, so that what it holds can be freed.

    Args:
        source: its `text` and `hash`.
        folder: where rendered modules are kept.
        device: torch's.
        synchronize: waits for the device.
        ahead: gives the module of a hash where it was imported before.

    Raises:
        CandidateFailed: it does not import, or has no `launch`.
        HostFault: its file cannot be written.
    """
    try:
        path = source_file(folder, source["text"], source["hash"])
    except OSError as error:
        raise HostFault(f"cannot write a rendered module below {folder}: {error}; free it, or name another cache folder in TILEWRIGHT_CACHE") from error
    try:
        module = ahead(source["hash"]) or load_rendered(path)
    except BaseException as error:
        raise classify(error, "importing the rendered module", synchronize) from error
    try:
        try:
            candidate = Candidate(module, device)
        except AttributeError as error:
            raise classify(error, "importing the rendered module", synchronize) from error
        yield candidate
    finally:
        unload(module)
