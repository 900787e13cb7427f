"""Alert rules and the dashboard, by Prometheus' own tool: what they ask for exists, is documented, and fires on what it must."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.grafana.make import dashboard

from tests.servers.install import find_program

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "headrace.rules.yaml"
_METRIC = re.compile(r"headrace_[a-z_]+[a-z]")
_SUFFIXES = ("_total", "_bucket", "_sum", "_count")
_MADE_IN = ("stream/metrics.py", "control/api/metrics.py", "watermark/api.py", "doris/metrics.py")


def promtool(*arguments: object, cwd: Path | None = None) -> str:
    command = [find_program("promtool"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def plain(name: str) -> str:
    """A metric's name without what its type adds."""
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def made() -> set[str]:
    """The names of all metrics in the code."""
    texts = {module: (ROOT / "src" / "headrace" / module).read_text() for module in _MADE_IN}
    names = {name for text in texts.values() for name in re.findall(r'"(headrace_[a-z_]+)"', text)}
    for module, prefix in (("watermark/api.py", "headrace_watermark_"), ("doris/metrics.py", "headrace_doris_")):
        names |= {f"{prefix}{name}" for name in re.findall(r'gauge\("([a-z_]+)"', texts[module])}
    return {plain(name) for name in names}


def documented() -> set[str]:
    pages = (ROOT / "docs" / "how-to" / name for name in ("monitoring.md", "doris.md"))
    tables = [line for page in pages for line in re.findall(r"^\| `.*$", page.read_text(), re.MULTILINE)]
    return {plain(name) for line in tables for name in _METRIC.findall(line.split("|")[1])}


def test_every_metric_is_in_the_table_and_no_other() -> None:
    assert len(made()) > 14
    assert documented() == made()


def test_rules_and_dashboard_ask_for_metrics_that_exist() -> None:
    rules = yaml.safe_load(RULES.read_text())
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    asked += [panel["targets"][0]["expr"] for panel in dashboard()["panels"]]
    for query in asked:
        names = _METRIC.findall(query)
        assert names
        assert {plain(name) for name in names} <= made(), query


def test_the_dashboard_is_what_its_table_makes() -> None:
    assert json.loads((ROOT / "deploy" / "grafana" / "headrace.json").read_text()) == dashboard()


def test_prometheus_understands_all_queries(tmp_path: Path) -> None:
    promtool("check", "rules", RULES)
    queries = [panel["targets"][0]["expr"] for panel in dashboard()["panels"]]
    filled = [re.sub(r"\$(source|flow)", ".*", query).replace("$__rate_interval", "5m") for query in queries]
    rules = [{"record": f"panel_{number}", "expr": query} for number, query in enumerate(filled)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "panels.yaml")


_FLOW = '{source="db1",stage="delivered",flow="mart"}'
_TABLE = '{source="db1",stage="delivered",flow="mart",table="mysql.db1.shop.orders"}'
_LOAD_ALIVE = 'headrace_doris_alive_timestamp_seconds{load="clicks"}'
_LOAD_RUNS, _LOAD_STOPPED = (
    f'headrace_doris_state{{load="clicks",state="{state}"}}' for state in ("running", "stopped")
)
_LOAD_LAG, _LOAD_LAG_TOO = (f'headrace_doris_lag_messages{{load="clicks",topic="t",partition="{n}"}}' for n in (0, 1))
_LOADS = 'headrace_doris_loads_total{load="clicks"}'


@pytest.mark.parametrize(
    ("alert", "bad", "good"),
    [
        ("HeadraceSilent", {f"headrace_silent{_FLOW}": "1x30"}, {f"headrace_silent{_FLOW}": "0x30"}),
        ("HeadraceLagging", {f"headrace_lag_seconds{_FLOW}": "200x30"}, {f"headrace_lag_seconds{_FLOW}": "10+60x2 10+60x2 10+60x2 10x20"}),
        ("HeadraceRowsRefused", {f"headrace_failed_rows_total{_TABLE}": "0x20 1x10"}, {f"headrace_failed_rows_total{_TABLE}": "7x30"}),
        ("HeadraceRowsOverdue", {f"headrace_overdue_rows_total{_TABLE}": "0x20 1x10"}, {f"headrace_overdue_rows_total{_TABLE}": "7x30"}),
        ("HeadraceRetrying", {f"headrace_errors_total{_FLOW}": "0+5x30"}, {f"headrace_errors_total{_FLOW}": "0x10 3x20"}),
        (
            "HeadraceSlow",
            {'headrace_latency_seconds_bucket{source="db1",stage="delivered",flow="mart",le="50"}': "0x30",
             'headrace_latency_seconds_bucket{source="db1",stage="delivered",flow="mart",le="100"}': "0+9x30",
             'headrace_latency_seconds_bucket{source="db1",stage="delivered",flow="mart",le="+Inf"}': "0+9x30"},
            {'headrace_latency_seconds_bucket{source="db1",stage="delivered",flow="mart",le="1"}': "0+9x30",
             'headrace_latency_seconds_bucket{source="db1",stage="delivered",flow="mart",le="+Inf"}': "0+9x30"},
        ),
        ("HeadracePipelineFailed", {'headrace_pipeline_state{pipeline="shop",state="failed"}': "1x30"}, {'headrace_pipeline_state{pipeline="shop",state="running"}': "1x30"}),
        ("HeadracePipelineUnsettled", {'headrace_pipeline_state{pipeline="shop",state="waiting"}': "1x30"}, {'headrace_pipeline_state{pipeline="shop",state="waiting"}': "1x5 0x25"}),
        ("HeadraceNobodyLeads", {'headrace_leader{instance="a"}': "0x30", 'headrace_leader{instance="b"}': "0x30"}, {'headrace_leader{instance="a"}': "1x30", 'headrace_leader{instance="b"}': "0x30"}),
        ("HeadraceNobodyLeads", {}, {'headrace_leader{instance="a"}': "1x30"}),
        ("HeadraceDorisFailed", {'headrace_doris_state{load="clicks",state="failed"}': "1x30"}, {'headrace_doris_state{load="clicks",state="running"}': "1x30", 'headrace_doris_state{load="clicks",state="failed"}': "1x10 0x20"}),
        ("HeadraceDorisWaits", {'headrace_doris_state{load="clicks",state="waiting"}': "1x30"}, {'headrace_doris_state{load="clicks",state="waiting"}': "0x25 1x5"}),
        ("HeadraceDorisSilent", {_LOAD_ALIVE: "0x30", _LOAD_RUNS: "1x30"}, {_LOAD_ALIVE: "0+60x30", _LOAD_RUNS: "1x30"}),
        ("HeadraceDorisSilent", {_LOAD_ALIVE: "0x30", _LOAD_RUNS: "1x30"}, {_LOAD_ALIVE: "0x30", _LOAD_RUNS: "0x30"}),
        ("HeadraceDorisBehind", {_LOAD_LAG: "600000x30", _LOAD_LAG_TOO: "600000x30"}, {_LOAD_LAG: "600000x30", _LOAD_LAG_TOO: "2x30"}),
        ("HeadraceDorisStands", {_LOAD_LAG: "7x30", _LOADS: "3x30"}, {_LOAD_LAG: "7x30", _LOADS: "3+1x30"}),
        ("HeadraceDorisStands", {_LOAD_LAG: "7x30", _LOADS: "3x30", _LOAD_STOPPED: "0x30"}, {_LOAD_LAG: "7x30", _LOADS: "3x30", _LOAD_STOPPED: "1x30"}),
        ("HeadraceDorisStands", {_LOAD_LAG: "2x30", _LOADS: "3x30"}, {_LOAD_LAG: "1x30", _LOAD_LAG_TOO: "1x30", _LOADS: "3x30"}),
        ("HeadraceDorisLoadOpen", {'headrace_doris_oldest_open_load_seconds{load="clicks"}': "10000+60x30"}, {'headrace_doris_oldest_open_load_seconds{load="clicks"}': "0+60x30"}),
        ("HeadraceDorisRowsRefused", {'headrace_doris_rows_refused_total{load="clicks"}': "0x20 2x10"}, {'headrace_doris_rows_refused_total{load="clicks"}': "2x30"}),
        ("HeadraceDorisBlind", {'headrace_doris_looked_timestamp_seconds{load="clicks"}': "0x30"}, {'headrace_doris_looked_timestamp_seconds{load="clicks"}': "0+60x30"}),
        ("HeadraceTargetWrong", {'headrace_verification_ok{pipeline="shop",flow="mart",table="s.t"}': "1x20 0x10"}, {'headrace_verification_ok{pipeline="shop",flow="mart",table="s.t"}': "0x20 1x10"}),
        ("HeadraceWatermarkStands", {'headrace_watermark_output_seconds{topology="t",stage="s"}': "-1000x30"}, {'headrace_watermark_output_seconds{topology="t",stage="s"}': "0+60x30"}),
        ("HeadraceHostsUnlisted", {'headrace_watermark_list_failures{topology="t",stage="s"}': "1x30"}, {'headrace_watermark_list_failures{topology="t",stage="s"}': "1x5 0x25"}),
    ],
)  # fmt: skip
def test_each_alert_fires_when_it_must_and_only_then(
    alert: str, bad: dict[str, str], good: dict[str, str], tmp_path: Path
) -> None:
    """Played by promtool: a minute a value, looked at after half an hour."""
    told = promtool("test", "rules", _played(tmp_path, alert, good))
    assert "SUCCESS" in told
    not_firing = subprocess.run(
        [find_program("promtool"), "test", "rules", str(_played(tmp_path, alert, bad))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not_firing.returncode == 1
    assert f'alertname="{alert}"' in not_firing.stdout + not_firing.stderr


def test_every_alert_is_played() -> None:
    rules = yaml.safe_load(RULES.read_text())
    [mark] = [
        mark for mark in test_each_alert_fires_when_it_must_and_only_then.pytestmark if mark.name == "parametrize"
    ]
    assert {rule["alert"] for group in rules["groups"] for rule in group["rules"]} == {case[0] for case in mark.args[1]}


def _played(directory: Path, alert: str, series: dict[str, str]) -> Path:
    """A file for promtool in which the alert does not fire after 29 minutes."""
    test: dict[str, Any] = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": "29m", "alertname": alert, "exp_alerts": []}],
    }
    path = directory / "played.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    return path
