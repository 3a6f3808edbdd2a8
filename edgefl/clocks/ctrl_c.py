"""What Ctrl-C and requests to end do. Every command imports this file, so it imports little."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LIKE_CTRL_C = [  # Windows has no SIGHUP
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
]


@contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C: the run stops cleanly and prints that.

    Signals that the caller's parent has set to be ignored stay ignored.
    """
    former = {
        number: signal.signal(number, interrupt)
        for number in LIKE_CTRL_C
        if signal.getsignal(number) is signal.SIG_DFL
    }
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def interrupt(number: int, frame: Any) -> None:
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, frame)
    else:
        raise KeyboardInterrupt


@contextmanager
def ctrl_c_held_back() -> Iterator[None]:
    """Handle a Ctrl-C that comes during the block after it. For a short block, in the main thread.

    In another thread there is nothing to do: Python handles signals in the main thread.
    """
    former = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(former):
        yield
        return
    pressed: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
        for number in pressed:  # a second one may mean more than the first
            former(number, None)
