"""Decisions made by the server, for clients that hold no model."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import grpc
import numpy as np

from rl4sys.client.fragments import Layout
from rl4sys.client.link import Link
from rl4sys.client.model import ENDLESS, Model
from rl4sys.errors import SpecError
from rl4sys.policy.draws import Draws
from rl4sys.spec import MASK, Array, Box, Discrete, Spec, in_range, permitted
from rl4sys.trajectory import OBSERVATION
from rl4sys.wire.columns import decode_column, encode_column
from rl4sys.wire.messages import ActReply, ActRequest, Hello


@dataclass(frozen=True)
class Answer:
    """A decision of the server."""

    action: int | Array
    log_prob: float
    model: Model


class RemotePolicy:
    """Asks the server over the link. One question at a time, since each goes on where the draws of the last ended."""

    def __init__(self, link: Link, hello: Hello, spec: Spec, timeout_seconds: float) -> None:
        self._link, self._spec, self._layout = link, spec, Layout(spec)
        self._client_id, self._policy_id = hello.client_id, hello.policy_id
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()

    def ask(self, row: Array, mask: Array | None, draws: Draws) -> Answer:
        """Raises `ConnectionError` with the reason if there is no answer."""
        with self._lock:
            request = self._request(row, mask, draws)
            try:
                reply = self._link.act(request, self._timeout_seconds)
            except grpc.RpcError as problem:
                raise ConnectionError(f"the server did not decide: {_reason(problem)}") from problem
            draws.restore({"key": request.draws_key, "counter": reply.draws_counter})
        return self._answer(reply, mask)

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

    def _answer(self, reply: ActReply, mask: Array | None) -> Answer:
        try:
            drawn = decode_column(reply.action).reshape(self._spec.action.shape)
        except (SpecError, ValueError) as problem:
            raise ConnectionError(f"the server's decision cannot be read: {problem}") from problem
        self._check(drawn, reply.log_prob, mask)
        action = int(drawn) if isinstance(self._spec.action, Discrete) else drawn.reshape(-1)
        model = Model(reply.lineage, reply.version, wants=reply.wants or ENDLESS, taken=ENDLESS)
        return Answer(action, reply.log_prob, model)

    def _check(self, drawn: Array, log_prob: float, mask: Array | None) -> None:
        """A system is given legal actions only, whatever the server answers."""
        action = self._spec.action
        if drawn.dtype != np.dtype(action.dtype):
            raise ConnectionError(f"the server decided on {drawn.dtype}; an action is of {action.dtype}")
        if not (np.isfinite(drawn).all() and math.isfinite(log_prob)):
            raise ConnectionError("the server's decision has a NaN or an infinity")
        if isinstance(action, Box):
            return
        if not in_range(action, drawn[None]) or not (
            mask is None or permitted(action, drawn[None], mask.reshape(1, -1))
        ):
            raise ConnectionError(f"the server decided on {drawn}, which is not legal here")


def _reason(problem: grpc.RpcError) -> str:
    # What calls raise is both an error and a call; the type of the former alone is documented.
    call = problem if isinstance(problem, grpc.Call) else None
    return f"{call.details()} ({call.code().name})" if call is not None else repr(problem)
