"""`headrace backup`, `restore`, `user`: the store of the control plane, without its server."""

from __future__ import annotations

import getpass
from contextlib import closing
from pathlib import Path
from typing import TextIO

import click

from headrace.control.backup import backup as back_up
from headrace.control.backup import restore as put_back
from headrace.control.journal import Actor
from headrace.control.people import ROLES, People, Role
from headrace.control.tables import ControlDatabase

STORE = click.option(
    "--store",
    envvar="HEADRACE_STORE",
    metavar="URL",
    help="Database that keeps what must not be lost; a file in --dir when left out. With a password better as HEADRACE_STORE.",
)
DIR = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("headrace-server"),
    show_default=True,
    help="Directory of the pipelines' files; servers on several machines share it.",
)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@DIR
@STORE
def backup(file: Path, directory: Path, store: str | None) -> None:
    """Write the store of the control plane into FILE. Servers may be at work."""
    with closing(opened_store(store, directory)) as database:
        database.open()
        click.echo(f"{file}: {back_up(database, file):,} rows")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@DIR
@STORE
def restore(file: Path, directory: Path, store: str | None) -> None:
    """Fill an empty store from FILE, which `headrace backup` has written, also from another kind of database."""
    with closing(opened_store(store, directory)) as database:
        database.open()
        click.echo(f"{file}: {put_back(database, file):,} rows restored")


@click.group()
def user() -> None:
    """Users of the control plane, without its server: for the first one, and for one who has forgotten the password."""


@user.command("add")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="viewer", show_default=True)
@click.option(
    "--password-file",
    type=click.File(),
    help="Where the password is; asked for when left out (- is the standard input).",
)
@DIR
@STORE
def add_command(name: str, role: Role, password_file: TextIO | None, directory: Path, store: str | None) -> None:
    """Add a user."""
    with closing(opened_store(store, directory)) as database:
        database.open()
        People(database).add(name, role, _password(password_file), _actor())


@user.command("change")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES))
@click.option("--password", "new_password", is_flag=True, help="Ask for a new password.")
@click.option("--password-file", type=click.File(), help="Where the new password is.")
@DIR
@STORE
def change_command(
    name: str,
    *,
    role: Role | None,
    new_password: bool,
    password_file: TextIO | None,
    directory: Path,
    store: str | None,
) -> None:
    """Change a user's role or password; one that was locked or not active may log in again."""
    wanted = new_password or password_file is not None
    with closing(opened_store(store, directory)) as database:
        database.open()
        People(database).change(
            name, _actor(), role=role, active=True, password=_password(password_file) if wanted else None
        )


@user.command("token")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="viewer", show_default=True, help="At most the user's.")
@click.option("--days", type=click.IntRange(1, 3650), default=90, show_default=True, help="How long it is valid.")
@click.option("--label", default="command line", show_default=True, help="What it is called in lists.")
@DIR
@STORE
def token_command(name: str, *, role: Role, days: int, label: str, directory: Path, store: str | None) -> None:
    """Make a token of a user, for a program; it is printed once."""
    with closing(opened_store(store, directory)) as database:
        database.open()
        _, secret = People(database).add_token(name, label, role, days, _actor())
        click.echo(secret)


def opened_store(store: str | None, directory: Path) -> ControlDatabase:
    """The store that the two options name."""
    if store is None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return ControlDatabase(store or f"sqlite:///{directory / 'control.db'}")


def _actor() -> Actor:
    return Actor(f"{getpass.getuser()} (command line)")


def _password(file: TextIO | None) -> str:
    if file is not None:
        return str(file.read()).rstrip("\n")
    text: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    return text
