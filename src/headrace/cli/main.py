"""The command line's entry: verbs are imported when they are used, so that every command starts at once."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from headrace import __version__
from headrace.errors import ConfigError, HeadraceError

_COMMANDS = {
    "backup": ("headrace.cli.control:backup", "Write the store of the control plane into a file."),
    "beat": ("headrace.cli.beat:beat_command", "Write signs of life into logs that are quiet."),
    "capture": ("headrace.cli.run:capture", "Run one file's captures alone, without Spark."),
    "check": ("headrace.cli.run:check", "Validate a flow file and test its connections and source settings."),
    "decode": (
        "headrace.cli.decode:decode",
        "Print the changes in binlog files, in a live server's log, or in log files.",
    ),
    "demo": ("headrace.cli.demo:demo", "Run the main job on a recorded shop and verify it."),
    "doris": ("headrace.cli.doris:doris", "Load topics of Kafka into tables of Apache Doris, each message once."),
    "errors": ("headrace.cli.error_ledger:errors", "Look into the error ledgers: rows that were not captured."),
    "launched": ("headrace.cli.launched:launched", ""),
    "lake": ("headrace.cli.lake:lake", "A lake: tables, a table as of any moment, its history, care by hand."),
    "list": ("headrace.cli.listing:list_", "List what can be named in a flow file."),
    "load": ("headrace.cli.run:load_tables", "Load tables again, and repair what the targets have of them."),
    "log": ("headrace.cli.log:log_group", "Look into a log: topics, entries, figures."),
    "prepare": ("headrace.cli.prepare:prepare", "Make later starts of Spark faster."),
    "restore": ("headrace.cli.control:restore", "Fill an empty store of the control plane from a backup."),
    "run": ("headrace.cli.run:run", "Run the captures and flows of flow files on Spark."),
    "serve": ("headrace.cli.serve:serve", "The control plane: a REST API, and what keeps pipelines running."),
    "tables": ("headrace.cli.tables:tables", "The versions of captured tables, by position."),
    "user": ("headrace.cli.control:user", "Users of the control plane, without its server."),
    "watermark": ("headrace.cli.watermark:watermark", "The Watermark Server: how far event time is complete."),
    "skip": ("headrace.cli.run:skip", "Let a capture go on behind a gap in its source's log."),
    "verify": ("headrace.cli.verify:verify", "Check what the targets of a flow file hold."),
}
"""Name -> where it is, and its line in --help; one without a line is for headrace itself."""

_EXTRAS = dict.fromkeys(("backup", "launched", "restore", "serve", "user"), "control")
"""Commands that need an extra which is not called as they are."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(name for name, (_, line) in _COMMANDS.items() if line)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        try:
            command: click.Command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if (error.name or "headrace").startswith("headrace"):
                raise
            raise ConfigError(
                f"`headrace {cmd_name}` needs the package {error.name}, which is not installed",
                fix=f"pip install 'headrace[{_EXTRAS.get(cmd_name, cmd_name)}]'",
            ) from error
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in sorted(_COMMANDS.items()) if line])


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
