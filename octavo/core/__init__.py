"""The deciding half of Octavo: standard library only, no clock and no I/O of its own.

Read it in this order: `keys` and `spec` (what a block is), `pool`, `table`, `claims` and `pins`
(who holds it), `match`, `publisher` and `cache` (how it is shared), `request`, `receipt` and
`roster` (who asks), `beams` (one who asks for many), `batch` and `policies`, `planner` (who goes
next), `scheduler` (what comes of it), `loop` (the heartbeat); `lookup`, or `draft_gain` and
`draft_model` (who guesses ahead).
"""

from octavo.core.batch import Batch, Delta, Row, RowResult, Runner, StepResult
from octavo.core.beams import BeamGroup, BeamRules, Hypothesis
from octavo.core.cache import KVCache, Refusal
from octavo.core.keys import GivenChain, TokenChain, block_keys, root
from octavo.core.loop import Loop
from octavo.core.policies import Policies
from octavo.core.receipt import Receipt
from octavo.core.request import Finish, Limits, PinWish, Request
from octavo.core.scheduler import Scheduler
from octavo.core.spec import Full, Group, KVSpec, Sliding

__all__ = [
    "Batch",
    "BeamGroup",
    "BeamRules",
    "Delta",
    "Finish",
    "Full",
    "GivenChain",
    "Group",
    "Hypothesis",
    "KVCache",
    "KVSpec",
    "Limits",
    "Loop",
    "PinWish",
    "Policies",
    "Receipt",
    "Refusal",
    "Request",
    "Row",
    "RowResult",
    "Runner",
    "Scheduler",
    "Sliding",
    "StepResult",
    "TokenChain",
    "block_keys",
    "root",
]
