"""Remote inference: decisions by the server, for clients without a model."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import grpc
import numpy as np

from rl4sys.client.layout import Layout
from rl4sys.client.link import Link
from rl4sys.client.model import UNLIMITED_STEPS, Model
from rl4sys.errors import SpecError
from rl4sys.policy.draws import Draws
from rl4sys.spec import MASK, Array, Box, Discrete, Spec, in_range, is_allowed
from rl4sys.trajectory import OBSERVATION
from rl4sys.wire.columns import decode_column, encode_column
from rl4sys.wire.messages import ActReply, ActRequest, Hello


@dataclass(frozen=True)
class RemoteDecision:
    """Decision of the server, with the lineage and version of the model that made it."""

    action: int | Array
    log_prob: float
    model: Model


class RemotePolicy:
    """Policy that runs on the server.

    Requests are sent one at a time, because each request continues the random draws of the previous one.
    """

    def __init__(self, link: Link, hello: Hello, spec: Spec, timeout_seconds: float) -> None:
        self._link, self._spec, self._layout = link, spec, Layout(spec)
        self._client_id, self._policy_id = hello.client_id, hello.policy_id
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()

    def decide(self, row: Array, mask: Array | None, draws: Draws) -> RemoteDecision:
        """Request a decision from the server. Raises `ConnectionError` with the reason if there is no valid reply."""
        with self._lock:
            request = self._request(row, mask, draws)
            try:
                reply = self._link.act(request, self._timeout_seconds)
            except grpc.RpcError as problem:
                raise ConnectionError(f"the server returned no action: {_reason(problem)}") from problem
            draws.restore({"key": request.draws_key, "counter": reply.draws_counter})
        return self._read_reply(reply, mask)

    def _request(self, row: Array, mask: Array | None, draws: Draws) -> ActRequest:
        columns = self._layout.observations(row.reshape(1, -1))
        if self._spec.masked:
            columns[MASK] = self._layout.mask(mask)
        return ActRequest(
            client_id=self._client_id,
            policy_id=self._policy_id,
            observation=[encode_column(f"{OBSERVATION}{name}", column) for name, column in columns.items()],
            draws_key=draws.key,
            draws_counter=draws.counter,
        )

    def _read_reply(self, reply: ActReply, mask: Array | None) -> RemoteDecision:
        try:
            drawn = decode_column(reply.action).reshape(self._spec.action.shape)
        except (SpecError, ValueError) as problem:
            raise ConnectionError(f"the action from the server cannot be read: {problem}") from problem
        self._check(drawn, reply.log_prob, mask)
        action = int(drawn) if isinstance(self._spec.action, Discrete) else drawn.reshape(-1)
        model = Model(reply.lineage, reply.version, reply.wants or UNLIMITED_STEPS, UNLIMITED_STEPS)
        return RemoteDecision(action, reply.log_prob, model)

    def _check(self, drawn: Array, log_prob: float, mask: Array | None) -> None:
        """Raise `ConnectionError` if the action is invalid: the host must receive legal actions only."""
        action = self._spec.action
        if drawn.dtype != np.dtype(action.dtype):
            raise ConnectionError(f"the action from the server is {drawn.dtype}; expected {action.dtype}")
        if not (np.isfinite(drawn).all() and math.isfinite(log_prob)):
            raise ConnectionError("the action from the server or its log-probability is not finite")
        if isinstance(action, Box):
            return
        if not in_range(action, drawn[None]) or not (
            mask is None or is_allowed(action, drawn[None], mask.reshape(1, -1))
        ):
            raise ConnectionError(f"the action {drawn} from the server is not legal")


def _reason(problem: grpc.RpcError) -> str:
    # gRPC raises an object that is also a grpc.Call, but documents only the type RpcError.
    call = problem if isinstance(problem, grpc.Call) else None
    return f"{call.details()} ({call.code().name})" if call is not None else repr(problem)
