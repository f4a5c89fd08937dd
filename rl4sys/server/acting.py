"""Decisions on the server, for clients without a local model."""

from __future__ import annotations

from rl4sys.errors import SpecError
from rl4sys.policy.base import Policy
from rl4sys.policy.draws import Draws
from rl4sys.spec import Array, Columns
from rl4sys.wire.columns import decode_column, encode_column
from rl4sys.wire.messages import ActReply, ActRequest


def decide_without_memory(policy: Policy, version: int, observation: Columns, draws: Draws) -> ActReply:
    """Return the policy's decision for one observation.

    Raises `SpecError` if the policy is recurrent, because the server stores no recurrent state.
    """
    decision = policy.act(observation, {}, draws)
    if decision.memory:
        raise SpecError(
            "the policy is recurrent, but the server stores no recurrent state for clients; set 'inference' to 'local'"
        )
    return ActReply(
        action=encode_column("action", decision.action),
        log_prob=float(decision.log_prob[0]),
        version=version,
        draws_counter=draws.counter,
    )


def encode_request(observation: Columns, draws: Draws) -> bytes:
    """Encode a decision request for the learner process. Only a learner process can run policies that need torch."""
    columns = [encode_column(name, column) for name, column in observation.items()]
    return ActRequest(observation=columns, draws_key=draws.key, draws_counter=draws.counter).SerializeToString()


def decode_request(content: bytes) -> tuple[dict[str, Array], Draws]:
    request = ActRequest.FromString(content)
    # The columns are copied because torch requires writable arrays.
    observation = {column.name: decode_column(column).copy() for column in request.observation}
    return observation, Draws(request.draws_key, request.draws_counter)
