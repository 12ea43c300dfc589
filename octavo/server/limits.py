"""How much one client may send and for how long the server waits. Values only."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Bounds that hold before a request reaches the engine.

    header_bytes, header_fields  request line and headers together; beyond: 431.
    body_bytes      declared or streamed; beyond: 413.
    inline_bytes    bodies up to this size are parsed on the event loop, larger ones in a thread.
    prompts, choices  prompts of one completion request, and prompts · n, or · beams.
    clamp_max_tokens  a max_tokens beyond the room behind the prompt is cut to it; False refuses it.
    header_seconds, body_seconds  time for the whole header or body to arrive; beyond: 408.
    stall_seconds   a reader that takes nothing for this long is cut off and its request cancelled.
    waiting_tokens  prompt tokens that the cache does not have, of all requests without an answer
                    yet; beyond: 503, unless nothing else waits.
    key_share       the part of all places, and of those tokens, that one key may take if there are
                    several; beyond: 429.
    queue_seconds   how long a request may wait until it begins to run; then: 503.
    request_seconds the same until its end, 0 for no bound; then: 504, or an error event.
    pre_stop_seconds  how long work is still taken after the server was told to stop, though it says
                    that it is not ready: balancers take a while to notice.
    drain_seconds   how long running requests may go on after that.
    watchdog_seconds  without any progress for this long the engine is given up; 0: never.
    """

    header_bytes: int = 32 * KIB
    header_fields: int = 100
    body_bytes: int = 8 * MIB
    inline_bytes: int = 64 * KIB
    prompts: int = 256
    choices: int = 512
    clamp_max_tokens: bool = True
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    stall_seconds: float = 30.0
    waiting_tokens: int = 1 << 18
    key_share: float = 0.5
    queue_seconds: float = 60.0
    request_seconds: float = 0.0
    pre_stop_seconds: float = 0.0
    drain_seconds: float = 30.0
    watchdog_seconds: float = 300.0
