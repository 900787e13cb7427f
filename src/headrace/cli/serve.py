"""`headrace serve`: the control plane's server."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from headrace.cli.control import DIR, STORE, opened_store
from headrace.control.api.server import Address, Tls, serve_control


@click.command()
@DIR
@STORE
@click.option("--secrets", type=click.Path(path_type=Path), help="Directory of secrets; DIR/secrets when left out.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=9300, show_default=True, help="0 is any that is free.")
@click.option(
    "--tls-cert", type=click.Path(path_type=Path, exists=True), help="Certificate (PEM); with it HTTPS is served."
)
@click.option("--tls-key", type=click.Path(path_type=Path, exists=True), help="Its key (PEM).")
@click.option(
    "--rate", type=click.FloatRange(5), default=50, show_default=True, help="Requests a second of one address."
)
def serve(
    *,
    directory: Path,
    store: str | None,
    secrets: Path | None,
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    rate: float,
) -> None:
    """Serve the REST API, and see to it that what runs is what is wanted. What runs goes on when this ends."""
    tls = Tls(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together")
    with closing(opened_store(store, directory)) as database:
        database.open()
        serve_control(database, directory, secrets or directory / "secrets", Address(host, port, tls, rate))
