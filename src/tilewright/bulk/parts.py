"""Parts of log files, each folded in a process of its own into a small result."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from tilewright.errors import HostError, TilewrightError
from tilewright.logfile import is_packed, stable_size

P = TypeVar("P")
# Larger logs are folded in parts: 11 MB (10,000 records) take 0.2 CPU-seconds to read whole, and 0.08 in parts (AMD EPYC, 2026-11).
LARGE_BYTES: Final = 4 * 2**20
# Blocks decode fastest where they stay in the core's cache: 2.6 µs a record at 2**18 and 2**20, 3.8 at 2**22 (AMD EPYC, 2026-11). From 2**18 on, malloc
# asks the kernel for each anew: 0.2 page faults a record, 0.5 µs (decision 0019).
BLOCK_BYTES: Final = 2**17
_MOST_PROCESSES: Final = 8  # guess: beyond, the disk or memory is the limit
# Of each process, so that where other work slows a core down the others take more of them, and all are done within a sixty-fourth of the time
_PARTS: Final = 64
_PART_BYTES: Final = 2**24  # guess: reading that takes 50 ms, and whatever a part does anew far less
_TURNS: Final = 4096  # at taking parts: a pipe holds the numbers of 16,384
_NUMBER_BYTES: Final = 4
_OPENING, _CLOSING = b"[]"  # as numbers
_PIPE_BYTES: Final = 2**20  # Linux's limit for users. An answer of 9 MB took 70 ms through a pipe of the usual 2**16 (AMD EPYC, 2026-11)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Whole lines of a file: bytes from `start` up to `stop`."""

    file: int
    path: Path
    start: int
    stop: int


def is_large(paths: Sequence[Path]) -> bool:
    """Whether logs are so large that folding them in parts pays. Compressed ones, whatever their names, cannot be read in parts."""
    try:
        if not all(path.is_file() for path in paths) or sum(path.stat().st_size for path in paths) < LARGE_BYTES:
            return False
        return not any(map(is_packed, paths))
    except (OSError, TilewrightError):  # who reads it whole says why it cannot be read
        return False


def processes() -> int:
    """How many to use: the cores that this process may run on."""
    return min(_MOST_PROCESSES, len(os.sched_getaffinity(0)))


def parts_of(paths: Sequence[Path], count: int) -> list[Part]:
    """The files cut at line ends into about equal parts, in order: `count` of them, or more where they are large.

    Raises:
        LogError, HostError: a file is not there or cannot be read.
    """
    found: list[Part] = []
    sizes = [stable_size(path) for path in paths]
    total = sum(sizes)
    share = max(1, -(-total // (count * max(1, min(_PARTS, total // (count * _PART_BYTES))))))
    for number, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        with path.open("rb") as file:
            start = 0
            while start < size:
                stop = size
                if size - start > share:
                    file.seek(start + share - 1)
                    file.readline()
                    stop = min(size, file.tell())
                found.append(Part(file=number, path=path, start=start, stop=stop))
                start = stop
    return found


def blocks_of(part: Part) -> Iterator[tuple[int, bytes]]:
    """Whole lines, many at a time, with the offset of the first; without the last one's newline."""
    for offset, buffer, end in _read(part):
        yield offset, bytes(memoryview(buffer)[1:end])


def views_of(part: Part) -> Iterator[tuple[int, memoryview, memoryview, int]]:
    """As `blocks_of`, each where it was read to, until the next is asked for; then the same as one JSON list, and how many lines it has, blank ones too.

    As a list, two objects in one line are no JSON, nor is a blank line between two commas: a block that decodes to as many objects as it has lines has
    one in each. It costs nothing: to put commas in takes as long as to leave newlines out, by which lines were counted before (0.22 and 0.24 µs a
    record, CPython 3.11, 2026-11). To copy each block takes 0.1 µs a record, to look for two newlines in a row 2.
    """
    for offset, buffer, end in _read(part):
        buffer[0], buffer[end] = _OPENING, _CLOSING  # nobody reads what stood there
        listed = buffer.replace(b"\n", b",\n")
        after = len(buffer) - end - 1
        length = len(listed) - after - buffer.count(b"\n", end)
        yield offset, memoryview(buffer)[1:end], memoryview(listed)[:length], length - end


def _read(part: Part) -> Iterator[tuple[int, bytearray, int]]:
    """Blocks of whole lines, each with its offset, in a buffer from its second byte up to where the last one's newline stands or would."""
    with part.path.open("rb", buffering=0) as file:
        # One buffer for all reads: 0.2 µs a record against 1.1 with a fresh one for each (AMD EPYC, CPython 3.11, 2026-11).
        usual = buffer = bytearray(BLOCK_BYTES + 2)
        offset = part.start
        while offset < part.stop:
            read = 1 + os.preadv(file.fileno(), [memoryview(buffer)[1:-1][: part.stop - offset]], offset)
            if read == 1:
                break
            # After a line longer than a block, the next ones may be so short that a buffer of its size holds more of them than places can be told of.
            end = buffer.rfind(b"\n", 1, read) if buffer is usual else buffer.find(b"\n", 1, read)
            if end < 0:
                if read == len(buffer) - 1:
                    buffer = bytearray(2 * len(buffer))
                    continue
                end = read
            yield offset, buffer, end
            offset += end
            buffer = usual


def filled_lines(block: bytes) -> list[bytes]:
    """The lines of a block that are not blank, as msgspec counts them."""
    return [line for line in block.split(b"\n") if line and not line.isspace()]


def nth_line(block: bytes, wanted: int) -> bytes:
    """One of a block's lines, counted as `filled_lines` does; empty where there are not so many."""
    start = 0
    while start <= len(block):
        end = block.find(b"\n", start)
        end = len(block) if end < 0 else end
        if block[start : start + 1] > b" " or (start < end and not block[start:end].isspace()):
            if not wanted:
                return block[start:end]
            wanted -= 1
        start = end + 1
    return b""


def fold_parts(parts: Sequence[P], fold: Callable[[P], Any], count: int) -> list[Any]:
    """The fold of each part, in order, by this process and forked ones: each takes the next part when it is done with one.

    Args:
        parts: as of `parts_of`, or other things.
        fold: gives plain values, which msgpack can hold.
        count: processes, this one among them.

    Raises:
        HostError: a process died, as of too little memory.
        LogError: a fold raised one.
    """
    results: dict[int, Any] = {}
    for answer in share_out(parts, lambda taken: [(number, fold(part)) for number, part in taken], count):
        results.update(answer)
    return [results[number] for number in range(len(parts))]


def share_out(parts: Sequence[P], fold: Callable[[Iterator[tuple[int, P]]], Any], count: int, before: Callable[[], object] = lambda: None) -> list[Any]:
    """What each process makes of the parts that it takes, this one and forked ones; in no order.

    Args:
        parts: as of `parts_of`, or other things.
        fold: is given parts with their places among all, the next when it asks for one; gives plain values, which msgpack can hold.
        count: processes, this one among them.
        before: what this process does before it takes any, when the others have begun; what it raises is raised.

    Raises:
        HostError: a process died, as of too little memory.
        LogError: a fold raised one.
    """
    parent = os.getpid()
    try:
        taking, offering = os.pipe()
    except OSError as error:
        raise HostError(f"cannot share out the reading of a log: {error.strerror or error}; raise the limit of open files (ulimit -n)") from error
    step = 1 + len(parts) // _TURNS
    os.write(offering, b"".join(first.to_bytes(_NUMBER_BYTES, "big") for first in range(0, len(parts), step)))
    os.close(offering)

    def next_ones() -> Iterator[tuple[int, P]]:
        while turn := os.read(taking, _NUMBER_BYTES):
            first = int.from_bytes(turn, "big")
            for place, part in enumerate(parts[first : first + step], first):
                if os.getpid() != parent and os.getppid() != parent:
                    os._exit(1)  # it was killed, and nobody is left to take the answer
                yield place, part

    children: list[tuple[int, int]] = []
    answers: list[Any] = []
    failure: BaseException | None = None
    try:
        while len(children) < min(count, len(parts)) - 1:
            child = _forked(lambda: fold(next_ones()), [reading for _, reading in children])
            if child is None:
                break  # those that there are take all parts
            children.append(child)
        before()
        answers.append(fold(next_ones()))
    except BaseException as error:
        failure = error
        for _ in next_ones():  # nobody need take more
            pass
    os.close(taking)
    for pid, reading in children:
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            answer = b"".join(iter(partial(pipe.read, _PIPE_BYTES), b""))
        _, status = os.waitpid(pid, 0)
        if failure is None:
            failure = _take(answer, status, answers)
    if failure is not None:
        raise failure
    return answers


def _forked(folded: Callable[[], Any], others: Sequence[int]) -> tuple[int, int] | None:
    """A process that folds, and where its answer is read; None where the machine has no room for one, or for its pipe.

    Args:
        folded: what it does.
        others: where the answers of earlier ones are read, which is nothing to this one.
    """
    try:
        reading, writing = os.pipe()
    except OSError:
        return None
    with suppress(OSError):  # more than a process of this user may have
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        return None
    if pid == 0:
        for end in (reading, *others):
            os.close(end)
        _child(writing, folded)
    os.close(writing)
    return pid, reading


def _child(writing: int, folded: Callable[[], Any]) -> None:
    """Fold, write, and end, without running anything that the parent registered for its own end."""
    code = 1
    try:
        try:
            answer = msgspec.msgpack.encode({"answer": folded()})
        except (TilewrightError, OSError) as error:
            kind = "HostError" if isinstance(error, OSError) else type(error).__name__
            answer = msgspec.msgpack.encode({"error": str(error), "kind": kind})
        except Exception as error:
            answer = msgspec.msgpack.encode({"error": f"a process that read a part of the log failed: {error!r}", "kind": "HostError"})
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(answer)
        code = 0
    finally:
        os._exit(code)


def _take(answer: bytes, status: int, answers: list[Any]) -> BaseException | None:
    from tilewright import errors

    if status or not answer:
        return HostError(f"a process that read a part of the log ended with status {status}; is there enough memory?")
    said = msgspec.msgpack.decode(answer)
    if "error" in said:
        error: BaseException = getattr(errors, said["kind"])(said["error"])
        return error
    answers.append(said["answer"])
    return None
