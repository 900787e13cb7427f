"""``headrace prepare``: what makes later starts faster."""

from __future__ import annotations

import click

from headrace.stream.class_archive import make_archive


@click.command()
def prepare() -> None:
    """Make later starts faster: archive the Java classes that Spark loads, in this Python environment (some 150 MB).

    Once after headrace, Spark or Java was installed. An archive that does not fit any more is left alone by Java.
    """
    path = make_archive()
    click.echo(f"{path}: {path.stat().st_size / 1e6:,.0f} MB")
