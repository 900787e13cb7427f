"""Makes headrace.json, the dashboard for Grafana, of the table below: ``python deploy/grafana/make.py``."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

_FLOW = 'source=~"$source",flow=~"$flow"'
_PANELS: list[tuple[str, str, str, str]] = [
    ("Captured", "rowsps", 'sum by (source) (rate(headrace_rows_total{stage="captured",source=~"$source"}[$__rate_interval]))', "{{source}}"),
    ("Delivered", "rowsps", f'sum by (flow) (rate(headrace_rows_total{{stage="delivered",{_FLOW}}}[$__rate_interval]))', "{{flow}}"),
    ("Behind the source", "s", f"max by (source, stage, flow) (headrace_lag_seconds{{{_FLOW}}})", "{{source}} {{stage}} {{flow}}"),
    ("From commit to target, p99", "s", f'histogram_quantile(0.99, sum by (flow, le) (rate(headrace_latency_seconds_bucket{{stage="delivered",{_FLOW}}}[$__rate_interval])))', "{{flow}}"),
    ("From commit to target, p50", "s", f'histogram_quantile(0.5, sum by (flow, le) (rate(headrace_latency_seconds_bucket{{stage="delivered",{_FLOW}}}[$__rate_interval])))', "{{flow}}"),
    ("Bytes", "Bps", f"sum by (source, stage) (rate(headrace_bytes_total{{{_FLOW}}}[$__rate_interval]))", "{{source}} {{stage}}"),
    ("Rows in error ledgers", "short", f"sum by (flow, table) (increase(headrace_failed_rows_total{{{_FLOW}}}[$__rate_interval]))", "{{flow}} {{table}}"),
    ("Rows that wait to become valid", "short", f"sum by (flow) (headrace_waiting_rows{{{_FLOW}}})", "{{flow}}"),
    ("Rows whose time to become valid was over", "short", f"sum by (flow, table) (increase(headrace_overdue_rows_total{{{_FLOW}}}[$__rate_interval]))", "{{flow}} {{table}}"),
    ("Attempts that failed", "short", f"sum by (source, stage, flow) (increase(headrace_errors_total{{{_FLOW}}}[$__rate_interval]))", "{{source}} {{stage}} {{flow}}"),
    ("Silent", "bool", f"headrace_silent{{{_FLOW}}}", "{{source}} {{stage}} {{flow}}"),
    ("Age of the newest heartbeat", "s", f"time() - headrace_heartbeat_timestamp_seconds{{{_FLOW}}}", "{{source}} {{stage}} {{flow}} {{table}}"),
    ("Time of a heartbeat on its way", "s", f"headrace_heartbeat_latency_seconds{{{_FLOW}}}", "{{source}} {{stage}} {{flow}} {{table}}"),
    ("Pipelines by state", "short", "sum by (state) (headrace_pipeline_state)", "{{state}}"),
    ("Attempts to keep pipelines running", "short", "headrace_pipeline_attempt", "{{pipeline}}"),
    ("Servers that lead", "short", "sum(headrace_leader)", "leaders"),
    ("Doris: rows loaded", "rowsps", "sum by (load) (rate(headrace_doris_rows_loaded_total[$__rate_interval]))", "{{load}}"),
    ("Doris: messages behind", "short", "sum by (load) (headrace_doris_lag_messages)", "{{load}}"),
    ("Doris: age of the oldest open load", "s", "headrace_doris_oldest_open_load_seconds", "{{load}}"),
    ("Age of watermarks", "s", "time() - headrace_watermark_output_seconds", "{{topology}} {{stage}}"),
    ("Members given up", "short", "headrace_watermark_abandoned_members", "{{topology}} {{stage}}"),
]  # fmt: skip
"""Title, unit, query, legend."""
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    numbers = count(1)
    return {
        "title": "headrace",
        "uid": "headrace",
        "tags": ["headrace"],
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                _variable("source"),
                _variable("flow"),
            ]
        },
        "panels": [
            _panel(next(numbers), at, title, unit=unit, query=query, legend=legend)
            for at, (title, unit, query, legend) in enumerate(_PANELS)
        ],
    }


def _variable(label: str) -> dict[str, Any]:
    query = f"label_values(headrace_rows_total, {label})"
    return {
        "name": label,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": label},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, at: int, title: str, *, unit: str, query: str, legend: str) -> dict[str, Any]:
    return {
        "id": number,
        "title": title,
        "type": "timeseries",
        "datasource": _DATASOURCE,
        "gridPos": {"h": 8, "w": 12, "x": 12 * (at % 2), "y": 8 * (at // 2)},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"spanNulls": False}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [{"refId": "A", "datasource": _DATASOURCE, "expr": query, "legendFormat": legend}],
    }


if __name__ == "__main__":
    text = json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"
    (Path(__file__).parent / "headrace.json").write_text(text, encoding="utf-8")
