"""Command ``rl4sys status``: show the policies and clients of a training server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rl4sys.cli.views.console import print_table

if TYPE_CHECKING:
    from rl4sys.wire.messages import ClientStatus, PolicyStatus, StatusReply


def status(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Host and port of the server.")] = "localhost:50051",
    token: Annotated[str | None, typer.Option(envvar="RL4SYS_TOKEN", help="Access token.")] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(help="CA certificate (PEM) that signed the server's certificate; enables TLS.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Client certificate (PEM), if the server requires one.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key (PEM) of the client certificate.")] = None,
    wide: Annotated[bool, typer.Option("--wide", help="Also show algorithm, staleness, sizes and memory.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.")] = False,
) -> None:
    """Show the policies and clients of a training server.

    - `rl4sys status` shows the server on this machine.

    - `rl4sys status learner.example:50051 --tls-ca ca.pem` shows a remote server over TLS.
    """
    from rl4sys.wire.call import Credentials, ask_status

    reply = ask_status(address, Credentials.from_files(token, tls_ca, tls_cert, tls_key))
    if as_json:
        from google.protobuf.json_format import MessageToDict

        fields = MessageToDict(reply, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        typer.echo(json.dumps(fields))
    else:
        _show(Console(), reply, address, wide=wide)


def _show(console: Console, reply: StatusReply, address: str, *, wide: bool) -> None:
    console.print(
        f"rl4sys {reply.release} at {escape(address)}, up {_duration(reply.uptime_seconds)}, "
        f"{reply.memory_bytes / 2**20:.0f} MB; policies in {escape(reply.root)}",
        highlight=False,
        soft_wrap=True,
    )
    if not reply.policies:
        console.print("no policies yet; the first client that connects creates one")
        return
    more = _MORE_POLICY_HEADINGS if wide else ()
    policies, clients = _table("policies", (*_POLICY_HEADINGS, *more)), _table("clients", _CLIENT_HEADINGS)
    for policy in reply.policies:
        policies.add_row(*_policy_row(policy), *(_more_of_policy(policy) if wide else ()))
        for client in policy.clients:
            clients.add_row(*_client_row(client, policy.policy_id))
    print_table(console, policies)
    if clients.row_count:
        print_table(console, clients)
    for policy in reply.policies:
        if policy.problem:
            console.print(f"[red]{escape(policy.policy_id)}: {escape(policy.problem)}[/red]")


_POLICY_HEADINGS = ("policy", "state", "version", "return", "steps/s", "used", "refused", "waiting")
_MORE_POLICY_HEADINGS = ("algorithm", "received", "staleness", "model", "journal", "memory")
_CLIENT_HEADINGS = ("client", "policy", "version", "decisions", "fallbacks", "dropped", "connected")


def _table(title: str, headings: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1), pad_edge=False)
    for heading in headings:
        is_text = heading in ("policy", "state", "client")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=not is_text)
    return table


def _client_row(client: ClientStatus, policy_id: str) -> tuple[str, ...]:
    report = client.report
    figures = (report.decisions, report.fallback_decisions, report.dropped_steps)
    return (
        escape(client.client_id),
        escape(policy_id),
        str(report.adopted_version),
        *(f"{figure:,}" for figure in figures),
        _duration(client.connected_seconds),
    )


def _policy_row(policy: PolicyStatus) -> tuple[str, ...]:
    return (
        escape(policy.policy_id),
        policy.state,
        str(policy.version),
        f"{policy.episode_return:.1f}" if policy.HasField("episode_return") else "",
        f"{policy.steps_per_second:,.0f}",
        f"{policy.steps_used:,}",
        f"{policy.steps_refused:,}",
        f"{policy.steps_waiting:,}",
    )


def _more_of_policy(policy: PolicyStatus) -> tuple[str, ...]:
    return (
        policy.algorithm,
        f"{policy.steps_received:,}",
        f"{policy.staleness:.1f}",
        f"{policy.snapshot_bytes / 1000:.1f} kB",
        f"{policy.journal_bytes / 2**20:.1f} MB",
        f"{policy.memory_bytes / 2**20:.0f} MB",
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
