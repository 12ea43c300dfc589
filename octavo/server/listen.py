"""The socket and uvicorn around the application. Knows no routes.

A stop signal ends it cleanly: /ready says so at once, new work is refused with an answer, running
requests finish within the drain time, then the application closes the engine.
"""

from __future__ import annotations

import contextlib
import errno
import math
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from octavo.core.errors import ConfigError, EngineClosed
from octavo.server.access.doors import Doors
from octavo.server.access.guard import LOOPBACK
from octavo.server.access.watchdog import Watchdog
from octavo.server.limits import ServerLimits
from octavo.server.protocol import protocol_class

BACKLOG = 512  # connections that the kernel holds until they are accepted
FAILURE_SECONDS = 3.0  # for the answers to get out after the engine was lost
LAST_SECONDS = 1.0  # for connections on which nothing runs
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def own_hosts(host: str) -> frozenset[str] | None:
    """The names to answer to when bound to `host`: loopback names, or any beyond loopback."""
    return LOOPBACK if host in LOOPBACK else None


def bound_socket(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one. Raises ConfigError naming what to change.

    It does not listen yet: until the server runs, clients are refused rather than kept waiting.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, OverflowError, UnicodeError):
        message = f"Cannot listen on {host!r} port {port}: no such address."
        raise ConfigError(message, param="host") from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise bind_error(error, host, port) from None
    return listener


def bind_error(error: OSError, host: str, port: int) -> ConfigError:
    """Why the socket cannot be had, and what to change."""
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"Port {port} is in use; choose another with --port.", param="port")
    if error.errno == errno.EACCES:
        return ConfigError(f"Port {port} needs more rights; choose one from 1024.", param="port")
    return ConfigError(f"Cannot listen on {host!r}: {error.strerror}.", param="host")


def make_server(
    app: ASGIApp, limits: ServerLimits, *, doors: Doors | None = None
) -> uvicorn.Server:
    """uvicorn with our bounds. `server.run(sockets=[…])` serves until it is told to stop."""
    config = uvicorn.Config(
        app,
        http=protocol_class(limits),
        ws="none",
        h11_max_incomplete_event_size=limits.header_bytes,
        timeout_keep_alive=math.ceil(limits.header_seconds),
        timeout_graceful_shutdown=math.ceil(limits.drain_seconds),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        backlog=BACKLOG,
    )
    return DrainingServer(config, limits, doors or Doors())


class DrainingServer(uvicorn.Server):
    """Goes on listening while running requests finish, so that whoever comes is told to leave."""

    def __init__(self, config: uvicorn.Config, limits: ServerLimits, doors: Doors) -> None:
        super().__init__(config)
        self._limits = limits
        self._doors = doors
        self._closing_at = math.inf  # on the monotonic clock: from then on work is refused
        self._ending_at = math.inf  # and then what still runs is cut off

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains, the second one ends. Runs between two bytecodes of the loop."""
        self._captured_signals.append(sig)
        if self._doors.leaving:
            self.should_exit = self.force_exit = True
            return
        self._doors.leave()
        self._closing_at = time.monotonic() + self._limits.pre_stop_seconds
        self._ending_at = self._closing_at + self._limits.drain_seconds
        seconds = self._limits.pre_stop_seconds + self._limits.drain_seconds
        print(
            f"Stopping: running requests have {seconds:g} s to finish; once more ends them now.",
            file=sys.stderr,
            flush=True,
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the engine, too, which is no failure then."""
        self._doors.gone = True
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: close the doors in time, and leave when nothing runs any more."""
        now = time.monotonic()
        if self._doors.failure and self._ending_at == math.inf:
            self._ending_at = now + FAILURE_SECONDS
        if now >= self._closing_at:
            self._doors.close()
        if self._doors.closed and (now >= self._ending_at or not self.server_state.tasks):
            left = max(0.0, self._ending_at - now)
            self.config.timeout_graceful_shutdown = math.ceil(min(left, LAST_SECONDS))
            self.should_exit = True
        return await super().on_tick(counter)


def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    limits: ServerLimits,
    doors: Doors,
    watchdog: Watchdog,
    started: Callable[[], None],
) -> None:
    """Serve until SIGINT or SIGTERM; a second signal does not wait for running requests.

    Raises EngineClosed when the engine was lost: every request has been answered by then.
    """
    server = make_server(app, limits, doors=doors)
    with quiet_signals():
        watchdog.start()
        started()
        server.run(sockets=[listener])
    if doors.failure is not None:
        raise EngineClosed(doors.failure)
    watchdog.stop()


@contextlib.contextmanager
def quiet_signals() -> Iterator[None]:
    """uvicorn raises a signal again once it has shut down; by then it has done its work."""

    def ignore(number: int, frame: FrameType | None) -> None:
        del number, frame

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, ignore) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
