"""Ctrl-C for the time of a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGINT, Handlers, signal
from threading import current_thread, main_thread
from typing import Any


@contextmanager
def at_interrupt(answer: Callable[..., Any] | Handlers) -> Iterator[None]:
    """Answer Ctrl-C by `answer` while the block runs; in a thread other than the main one, which hears no signals, nothing changes."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal(SIGINT, answer)
    try:
        yield
    finally:
        signal(SIGINT, before)
