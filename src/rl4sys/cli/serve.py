"""``rl4sys serve``."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from rl4sys.server.server import Server


def serve(
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 takes a free one.", show_default="50051")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Where to listen; 0.0.0.0 for all networks.", show_default="localhost")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A YAML or JSON file with the server's settings.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="Directory with a run directory per policy.", show_default="live")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="Tokens that clients must show, one a line.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="The server's certificate, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's private key, PEM.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="Accept only clients with a certificate of this authority.")
    ] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Serve Prometheus metrics here.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Log everything, and show tracebacks.")] = False,
) -> None:
    """Run a training server: one learner per policy, fed by clients in running systems.

    - `rl4sys serve` listens on localhost:50051 and keeps everything under `live/`.

    - `rl4sys serve --host 0.0.0.0 --token-file tokens --tls-cert server.pem --tls-key server.key` serves a network.

    - `rl4sys status` shows what it is doing. Stop it with Ctrl-C or SIGTERM: it saves first.
    """
    from rl4sys import config as files
    from rl4sys.registry import find_plugin
    from rl4sys.server.config import ServerConfig
    from rl4sys.server.logs import set_up_logging
    from rl4sys.server.server import serve as run_server

    settings = _read(config) if config else {}
    given: dict[str, Any] = {
        "port": port,
        "host": host,
        "root": root,
        "token_file": token_file,
        "metrics_port": metrics_port,
        "tls": _tls(tls_cert, tls_key, tls_client_ca),
    }
    settings |= {name: value for name, value in given.items() if value is not None}
    parsed = files.parse(ServerConfig, settings)
    # Found now, by what is here and beside the file; learners load them.
    beside = config.parent if config else Path()
    parsed = parsed.model_copy(update={"plugins": [find_plugin(plugin, beside) for plugin in parsed.plugins]})
    set_up_logging(parsed.root, debug=debug)
    console = Console()
    asyncio.run(run_server(parsed, lambda server: _announce(console, parsed, server)))
    logging.shutdown()


def _read(config: Path) -> dict[str, Any]:
    from rl4sys import config as files
    from rl4sys.config import VERSION
    from rl4sys.migration import read_version

    settings = files.load(config)
    read_version(settings, VERSION)
    return _beside(settings, config.parent)


def _beside(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Relative paths in a config file start where the file is."""

    def resolved(block: dict[str, Any]) -> dict[str, Any]:
        return {
            name: str(folder / value) if name in _PATHS and isinstance(value, str) else value
            for name, value in block.items()
        }

    tls = settings.get("tls")
    return resolved(settings) | ({"tls": resolved(tls)} if isinstance(tls, dict) else {})


_PATHS = ("root", "token_file", "cert", "key", "client_ca")


def _tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> dict[str, Path] | None:
    given = {"cert": cert, "key": key, "client_ca": client_ca}
    return {name: path for name, path in given.items() if path is not None} or None


def _announce(console: Console, config: Any, server: Server) -> None:
    how = "TLS" if config.tls else "no TLS"
    who = "tokens" if config.token_file else "no tokens"
    console.print(f"rl4sys serves on [bold]{escape(config.host)}:{server.port}[/bold] ({how}, {who})", highlight=False)
    console.print(
        f"policies and their data: [bold]{escape(str(config.root.resolve()))}[/bold]", highlight=False, soft_wrap=True
    )
    if server.metrics_port is not None:
        console.print(f"metrics: http://{config.host}:{server.metrics_port}/metrics", highlight=False)
    if config.host in ("localhost", "127.0.0.1", "::1"):
        return
    if not config.token_file:
        console.print("[yellow]anyone who reaches this address can use the server: give it a --token-file[/yellow]")
    elif not config.tls:
        console.print("[yellow]tokens cross the network unencrypted: give the server a --tls-cert[/yellow]")
