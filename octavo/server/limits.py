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
    drain_seconds   how long running requests may go on after the server was told to stop.
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
    drain_seconds: float = 30.0
