"""A queue for several workers in which the items of one group are worked on one after another."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class GroupedQueue(Generic[T]):
    """First in, first out, but an item waits while another one of its group is being worked on."""

    def __init__(self) -> None:
        self._state = threading.Condition()
        self._waiting: list[tuple[Hashable, T]] = []
        self._active: set[Hashable] = set()
        self._idle = 0
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def put(self, group: Hashable, item: T) -> bool:
        """Add an item.

        Returns:
            Whether more items wait than workers are idle, so that another worker would help.

        Raises:
            ValueError: the queue is closed.
        """
        with self._state:
            if self._closed:
                raise ValueError("the queue is closed")
            self._waiting.append((group, item))
            self._state.notify()
            return self._idle < len(self._waiting)

    def get(self) -> tuple[Hashable, T] | None:
        """Wait for an item whose group is free, and take the group with it until `done`; None once the queue is closed."""
        with self._state:
            while not self._closed:
                for index, (group, item) in enumerate(self._waiting):
                    if group not in self._active:
                        self._active.add(group)
                        del self._waiting[index]
                        return group, item
                self._idle += 1
                self._state.wait()
                self._idle -= 1
            return None

    def done(self, group: Hashable) -> None:
        """Free a group."""
        with self._state:
            self._active.discard(group)
            self._state.notify_all()

    def close(self) -> list[T]:
        """Let every `get` return None, now and later.

        Returns:
            What was still waiting.
        """
        with self._state:
            self._closed = True
            left, self._waiting = [item for _, item in self._waiting], []
            self._state.notify_all()
            return left
