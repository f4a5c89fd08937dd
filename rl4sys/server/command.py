"""Command ``rl4sys serve``: reads options and config, sets up logging and runs a training server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from rl4sys.extras import check_installed

if TYPE_CHECKING:
    from rl4sys.server.config import ServerConfig
    from rl4sys.server.training_server import Server

_PATHS = ("root", "token_file", "cert", "key", "client_ca")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command ``serve`` as a standalone program, without the other commands of ``rl4sys``."""
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="markdown", add_completion=False)
    app.command()(serve)
    app(arguments)


def serve(
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 selects a free port.", show_default="50051")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; 0.0.0.0 selects all interfaces.", show_default="localhost")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Config file of the server (YAML or JSON).")] = None,
    root: Annotated[
        Path | None, typer.Option(help="Directory with one run directory per policy.", show_default="live")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the accepted tokens, one per line.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM file with the certificate of the server.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file with the private key of the certificate.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="PEM file with a CA certificate; clients need a certificate signed by this CA.")
    ] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Port for Prometheus metrics.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Log debug messages and show tracebacks.")] = False,
) -> None:
    """Run a training server: one learner per policy, trained on data from clients in running systems.

    - `rl4sys serve` listens on localhost:50051 and stores everything under `live/`.

    - `rl4sys serve --host 0.0.0.0 --token-file tokens --tls-cert server.pem --tls-key server.key` accepts clients from
      other machines.

    - `rl4sys status` shows policies and clients. Ctrl-C or SIGTERM saves all policies and stops the server.
    """
    from rl4sys.server.logs import set_up_logging
    from rl4sys.server.training_server import run_server

    # Only the learner processes import torch, but a missing package should be reported now.
    check_installed("a training server", "torch")

    options: dict[str, Any] = {
        "port": port,
        "host": host,
        "root": root,
        "token_file": token_file,
        "metrics_port": metrics_port,
        "tls": _tls_options(tls_cert, tls_key, tls_client_ca),
    }
    parsed = _parse_config(config, options)
    set_up_logging(parsed.root, debug=debug)
    console = Console()
    asyncio.run(run_server(parsed, lambda server: _announce(console, parsed, server)))
    logging.shutdown()


def _parse_config(file: Path | None, options: dict[str, Any]) -> ServerConfig:
    """Return the config from the file and the command line. Plugins are only located; learner processes load them."""
    from rl4sys.config import parse
    from rl4sys.registry import find_plugin
    from rl4sys.server.config import ServerConfig

    settings = read_server_file(file) if file else {}
    settings |= {name: value for name, value in options.items() if value is not None}
    parsed = parse(ServerConfig, settings)
    folder = file.parent if file else Path()
    return parsed.model_copy(update={"plugins": [find_plugin(plugin, folder) for plugin in parsed.plugins]})


def read_server_file(file: Path) -> dict[str, Any]:
    """Read a server config file. Relative paths in the file are resolved against the directory of the file."""
    from rl4sys.config import VERSION, load
    from rl4sys.config.migration import read_version

    settings = load(file)
    read_version(settings, VERSION)
    tls = settings.get("tls")
    resolved = _resolve_paths(settings, file.parent)
    return resolved | ({"tls": _resolve_paths(tls, file.parent)} if isinstance(tls, dict) else {})


def _resolve_paths(block: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {
        name: str(folder / value) if name in _PATHS and isinstance(value, str) else value
        for name, value in block.items()
    }


def _tls_options(cert: Path | None, key: Path | None, client_ca: Path | None) -> dict[str, Path] | None:
    options = {"cert": cert, "key": key, "client_ca": client_ca}
    return {name: path for name, path in options.items() if path is not None} or None


def _announce(console: Console, config: ServerConfig, server: Server) -> None:
    tls = "TLS" if config.tls else "no TLS"
    tokens = "tokens" if config.token_file else "no tokens"
    console.print(
        f"rl4sys serves on [bold]{escape(config.host)}:{server.port}[/bold] ({tls}, {tokens})", highlight=False
    )
    console.print(
        f"policies and their data: [bold]{escape(str(config.root.resolve()))}[/bold]", highlight=False, soft_wrap=True
    )
    if server.metrics_port is not None:
        console.print(f"metrics: http://{config.host}:{server.metrics_port}/metrics", highlight=False)
    if config.host in ("localhost", "127.0.0.1", "::1"):
        return
    if not config.token_file:
        console.print("[yellow]anyone with access to this address can use the server; set --token-file[/yellow]")
    elif not config.tls:
        console.print("[yellow]tokens are sent unencrypted; set --tls-cert and --tls-key[/yellow]")
