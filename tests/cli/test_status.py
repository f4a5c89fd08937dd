"""Tests of the tables of ``rl4sys status``."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rl4sys.cli.commands.status import _show
from rl4sys.wire.messages import ClientStatus, PolicyStatus, StatusReply


@pytest.fixture
def reply() -> StatusReply:
    policy = PolicyStatus(
        policy_id="lunar_lander",
        state="learning",
        version=1234,
        episode_return=-123.5,
        steps_per_second=98765,
        steps_used=11_111_111,
        steps_refused=22_222_222,
        steps_waiting=33_333_333,
        algorithm="ppo",
        steps_received=44_444_444,
        staleness=5.5,
        snapshot_bytes=66_600,
        journal_bytes=77 * 2**20,
        memory_bytes=888 * 2**20,
    )
    policy.clients.append(ClientStatus(client_id="machine-with-a-long-name-1234", connected_seconds=3723))
    return StatusReply(release="0.1.0", root="live", policies=[policy])


@pytest.mark.parametrize("columns", [200, 80, 30])
def test_narrow_terminal_truncates_no_column(reply: StatusReply, columns: int) -> None:
    written = io.StringIO()
    _show(Console(file=written, width=columns), reply, "localhost:50051", wide=True)
    shown = written.getvalue().split()
    figures = "1234 -123.5 98,765 11,111,111 22,222,222 33,333,333 ppo 44,444,444 5.5 66.6 77.0 888 1:02:03"
    headings = "used refused waiting algorithm received staleness model journal memory fallbacks dropped connected"
    assert set(f"{figures} {headings} lunar_lander machine-with-a-long-name-1234".split()) <= set(shown)
