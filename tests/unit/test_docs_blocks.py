"""Every block of code in the docs: commands are of headrace's command line, flow files fit their model, programs compile and import what is there.

Blocks that are run as they stand have tests of their own (add-a-sink.md, hbase-wal.md, upgrade.md).
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
import sqlglot
import yaml

from headrace.cli.main import cli
from headrace.doris.config import LoaderConfig
from headrace.errors import ConfigError
from headrace.flow.load import parse_as
from headrace.flow.spec import PipelineSpec

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_FOLLOWED_ELSEWHERE = {"add-a-sink.md"}
"""Pages whose flow files name what only their own test installs."""
_BASE: dict[str, Any] = {
    "source": {"type": "mysql", "name": "db1", "host": "h", "user": "u", "password": "p", "tables": ["shop.*"]},
    "log": {"type": "directory", "path": "./log"},
    "state": "./state",
    "flows": [{"name": "raw", "from": "mysql.db1.*", "to": {"type": "memory"}}],
}
"""What a block leaves out."""


class _Anything(Mapping[str, str]):
    """An environment that has every name."""

    def __getitem__(self, name: str) -> str:
        return "postgresql://me@db/shop" if name.endswith("_URL") else f"what {name} stands for"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        if page.parent.name == "reference":  # made of the code
            continue
        text = page.read_text()
        for match in _BLOCK.finditer(text):
            lines = [line.removeprefix(match[1]) for line in match[3].splitlines()]
            found.append(Block(page, text.count("\n", 0, match.start()) + 1, match[2], "\n".join(lines)))
    return found


def _shell(block: Block) -> None:
    text = re.sub(r"\$\(([^()]*)\)", lambda found: f"x; {found[1]};", block.text).replace("\\\n", " ")
    read = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True, check=False)
    assert read.returncode == 0, read.stderr
    for line in text.splitlines():
        for part in re.split(r"[;|]|&&", line.partition(" #")[0]):
            words = shlex.split(part) if part.count('"') % 2 == 0 and part.count("'") % 2 == 0 else []
            if "headrace" in words and words[0] in {"headrace", "sudo"}:
                _known(words[words.index("headrace") + 1 :])


def _known(words: list[str]) -> None:
    """Verbs and options that headrace has."""
    command: click.Command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0].partition("|")[0])
        assert found is not None, words
        command, words = found, words[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in words if re.match(r"--\w", word)} <= known | {"--help"}, words


def _flow_file(block: Block) -> None:
    for text in re.split(r"^# or.*$", block.text, flags=re.MULTILINE):
        # `on` is a word in flow files, and what is left out is no matter of ours.
        written = (
            yaml.safe_load(re.sub(r"\bon:", '"on":', re.sub(r", …|…, |\.\.\.", "", text)))
            if not text.startswith("messages:")
            else {}
        )
        if block.page.name in _FOLLOWED_ELSEWHERE or "[...]" in text or "replicas" in written.get("server", {}):
            continue
        if written.keys() >= {"kafka", "doris"}:
            _read(block, written, LoaderConfig)
        elif written.keys() <= PipelineSpec.model_fields.keys():
            _read(block, _completed(written), PipelineSpec)
        elif "to" in written:
            flow = {**_BASE["flows"][0], **written}
            if flow["to"] != {"type": "memory"}:
                _read(block, {**_BASE, "flows": [flow]}, PipelineSpec)


def _completed(written: dict[str, Any]) -> dict[str, Any]:
    whole = {**_BASE, **written}
    if "source" not in written:  # its flows are of a source that another block has
        whole["flows"] = [{**flow, "from": "mysql.db1.*"} for flow in whole["flows"]]
    sources = whole["source"] if isinstance(whole["source"], list) else [whole["source"]]
    for number, source in enumerate(sources):
        if source["type"] == "mysql" and not source.keys() & {"host", "files"}:
            sources[number] = {**_BASE["source"], **source}
    if "flows" not in written:
        first = sources[0]
        whole["flows"] = [{**_BASE["flows"][0], "from": f"{first['type']}.{first['name']}.*"}]
    return {**whole, "source": sources}


def _read(block: Block, written: dict[str, Any], model: type[Any]) -> None:
    try:
        parse_as(yaml.safe_dump(written), block.page, model, _Anything())
    except ConfigError as error:
        raise AssertionError(f"{block.page.name}:{block.line}: {error}") from error


def _program(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and re.match(r"headrace\b(?!_)", node.module or ""):
            module = importlib.import_module(str(node.module))
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def _sql(block: Block) -> None:
    read = sqlglot.tokenize if "USING" in block.text else sqlglot.parse  # the options of Spark's formats it cannot read
    read(block.text, read="spark")


_CHECKS: dict[str, Callable[[Block], object]] = {
    "": lambda _: None,  # drawings, and what is printed
    "text": lambda _: None,
    "sh": _shell,
    "yaml": _flow_file,
    "python": _program,
    "json": lambda block: json.loads(block.text.replace(", …", "").replace("…", "")),
    "sql": _sql,
    "toml": lambda block: tomllib.loads(block.text),
}


@pytest.mark.parametrize("language", [language for language in _CHECKS if language not in {"", "text"}])
def test_blocks_of_code_are_right(language: str) -> None:
    found = [block for block in blocks() if block.language == language]
    assert found
    for block in found:
        try:
            _CHECKS[language](block)
        except Exception as error:
            error.add_note(f"{block.page.relative_to(ROOT)}:{block.line}")
            raise


def test_every_block_says_what_it_is_in() -> None:
    assert [block for block in blocks() if block.language not in _CHECKS] == []
