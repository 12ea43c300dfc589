"""The socket and uvicorn around the application. Knows no routes.

A stop signal ends it cleanly: no new connections, running requests finish within the drain
time, then the application closes the engine.
"""

from __future__ import annotations

import contextlib
import errno
import math
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from octavo.core.errors import ConfigError
from octavo.server.guard import LOOPBACK
from octavo.server.limits import ServerLimits
from octavo.server.protocol import protocol_class

BACKLOG = 512  # connections that the kernel holds until they are accepted
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


def make_server(app: ASGIApp, limits: ServerLimits) -> uvicorn.Server:
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
    return AnnouncedStop(config)


class AnnouncedStop(uvicorn.Server):
    """Says what it waits for when told to stop: half a minute of silence looks like a hang."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            seconds = self.config.timeout_graceful_shutdown
            print(
                f"Stopping: running requests have {seconds} s to finish; once more ends them now.",
                file=sys.stderr,
                flush=True,
            )
        super().handle_exit(sig, frame)


def serve(
    app: ASGIApp, listener: socket.socket, *, limits: ServerLimits, started: Callable[[], None]
) -> None:
    """Serve until SIGINT or SIGTERM; a second signal does not wait for running requests."""
    server = make_server(app, limits)
    with quiet_signals():
        started()
        server.run(sockets=[listener])


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
