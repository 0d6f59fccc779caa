"""How objects are closed: by `with`, by `async with`, and by garbage collection."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from typing_extensions import Self


class Closing:
    """Adds `with` to a class that has `close`."""

    def close(self) -> None:
        """Closes the object."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class AsyncClosing:
    """Adds `async with` to a class whose `close` is a coroutine function."""

    async def close(self) -> None:
        """Closes the object."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()


def when_collected(owner: object, work: Callable[..., object], *arguments: Any) -> None:
    """Calls `work` when `owner` is garbage-collected, but not at exit.

    `work` must not refer to `owner`, and takes no lock: it may run at any point of any thread.
    """
    weakref.finalize(owner, work, *arguments).atexit = False
