"""`headrace user`, `backup` and `restore`, as an operator types them."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from headrace.cli.main import cli
from tests.control import PASSWORD


def test_a_store_is_moved_to_another_place(tmp_path: Path) -> None:
    runner = CliRunner()
    before, after, file = str(tmp_path / "before"), str(tmp_path / "after"), str(tmp_path / "backup.gz")
    (tmp_path / "password").write_text(PASSWORD + "\n")
    password = ["--password-file", str(tmp_path / "password")]
    added = runner.invoke(cli, ["user", "add", "ada", "--role", "admin", *password, "--dir", before])
    assert added.exit_code == 0, added.output
    token = runner.invoke(cli, ["user", "token", "ada", "--role", "operator", "--dir", before])
    assert token.output.startswith("hr_")
    assert "4 rows" in runner.invoke(cli, ["backup", file, "--dir", before]).output
    assert "4 rows restored" in runner.invoke(cli, ["restore", file, "--dir", after]).output
    again = runner.invoke(cli, ["restore", file, "--dir", after])
    assert "not empty" in str(again.exception)
    changed = runner.invoke(cli, ["user", "change", "ada", *password, "--dir", after])
    assert changed.exit_code == 0, changed.output
    no_admin = runner.invoke(cli, ["user", "change", "ada", "--role", "viewer", "--dir", after])
    assert "admin" in str(no_admin.exception)


def test_a_short_password_is_refused(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("short")
    asked = ["user", "add", "ada", "--password-file", str(tmp_path / "password"), "--dir", str(tmp_path / "d")]
    assert "at least 12" in str(CliRunner().invoke(cli, asked).exception)
