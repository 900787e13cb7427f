"""The command line's entry: verbs are imported when they are used, so that every command starts at once."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from headrace import __version__
from headrace.errors import HeadraceError

_COMMANDS = {
    "capture": ("headrace.cli.run:capture", "Run one file's captures alone, without Spark."),
    "check": ("headrace.cli.run:check", "Validate a flow file and test its connections and source settings."),
    "decode": ("headrace.cli.decode:decode", "Print the changes in binlog files or in a live server's log."),
    "demo": ("headrace.cli.demo:demo", "Run the main job on a recorded shop and verify it."),
    "lake": ("headrace.cli.lake:lake", "Look into a lake: tables, and a table as of any moment."),
    "list": ("headrace.cli.listing:list_", "List what can be named in a flow file."),
    "log": ("headrace.cli.log:log_group", "Look into a log: topics, entries, figures."),
    "run": ("headrace.cli.run:run", "Run the captures and flows of flow files on Spark."),
}
"""Name -> where it is, and its line in --help."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in sorted(_COMMANDS.items())])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headrace")
def cli() -> None:
    """Log-based, real-time data integration: capture -> log -> Spark -> lake, databases, stores.

    Exit codes: 0 fine, 1 a difference or a failure, 2 wrong use or configuration.
    """


def main() -> None:
    """Runs the command line; every HeadraceError becomes a message without a traceback."""
    try:
        # Not `cli.main`: it ends with 1 when the reader of our output has gone.
        with cli.make_context("headrace", sys.argv[1:]) as context:
            cli.invoke(context)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output (head, less) has seen enough; what is still buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except HeadraceError as error:
        for message in (str(error), *getattr(error, "__notes__", [])):
            click.echo(f"headrace: {message}", err=True)
        sys.exit(error.exit_code)
