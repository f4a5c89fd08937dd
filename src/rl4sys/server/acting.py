"""Decisions made on the server's side, for clients that hold no model."""

from __future__ import annotations

from rl4sys.errors import SpecError
from rl4sys.policy.base import Policy
from rl4sys.policy.draws import Draws
from rl4sys.spec import Array, Columns
from rl4sys.wire.columns import decode_column, encode_column
from rl4sys.wire.messages import ActReply, ActRequest


def decide_alone(policy: Policy, version: int, observation: Columns, draws: Draws) -> ActReply:
    """A decision that depends on this observation only: nothing is kept for the client until its next."""
    decision = policy.act(observation, {}, draws)
    if decision.memory:
        raise SpecError(
            "the policy remembers what it saw, and the server keeps no memory for clients: set inference to local"
        )
    return ActReply(
        action=encode_column("action", decision.action),
        log_prob=float(decision.log_prob[0]),
        version=version,
        draws_counter=draws.counter,
    )


def write_question(observation: Columns, draws: Draws) -> bytes:
    """For a worker, which alone can run a policy that has no form without torch."""
    columns = [encode_column(name, column) for name, column in observation.items()]
    return ActRequest(observation=columns, draws_key=draws.key, draws_counter=draws.counter).SerializeToString()


def read_question(content: bytes) -> tuple[dict[str, Array], Draws]:
    request = ActRequest.FromString(content)
    # Torch wants arrays that it could write to.
    observation = {column.name: decode_column(column).copy() for column in request.observation}
    return observation, Draws(request.draws_key, request.draws_counter)
