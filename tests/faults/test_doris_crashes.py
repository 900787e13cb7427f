"""The eighteen rows of the crash table at the head of doris/loader.py, in one phase and in two, on the stand-in (tests/servers/doris).

A crash is an error that nothing catches, at a named point; processes are killed at such points in tests/flows/test_doris_loader.py.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from headrace.doris import loader as loader_module
from headrace.doris.loader import Loader, UndecidedError
from headrace.errors import ConfigError, DataError, FatalError, FencedError, RetryableError
from headrace.sinks.doris import delivery as delivery_module
from tests.doris_loading import DUPLICATE, TABLE, Loading
from tests.servers.doris import Doris

ENDS = {"t/0": 20, "t/1": 12}
HOUR = 3600.0
LABEL = "^hr-load_er-t-[0-9a-f]{8}-0"
"""Of loads, not of probes."""


class KilledError(BaseException):
    """The process would be dead."""


Crash = Callable[..., None]


@pytest.fixture(params=[False, True], ids=["one phase", "two phases"])
def two_phase(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def doris() -> Iterator[Doris]:
    with Doris(backends=2) as server:
        server.sql(DUPLICATE)
        yield server


@pytest.fixture
def loading(doris: Doris, tmp_path: Path, two_phase: bool) -> Loading:
    return Loading(doris, tmp_path, ENDS, two_phase=two_phase, in_flight=1)


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch, loading: Loading) -> Crash:
    """Runs the loader to a named point, where it dies."""

    def to(point: str, nth: int = 1) -> None:
        passed = count(1)

        def die(name: str) -> None:
            if name == point and next(passed) == nth:
                raise KilledError(name)

        with monkeypatch.context() as patched:
            patched.setattr(loader_module, "crash_point", die)
            patched.setattr(delivery_module, "crash_point", die)
            with pytest.raises(KilledError):
                loading.run()

    return to


def test_01_nothing_is_durable(loading: Loading, crash: Crash) -> None:
    crash("doris.before_send")  # of the probe: no row is there
    loading.run()
    loading.check()


@pytest.mark.parametrize("point", ["doris.before_send", "doris.begun"])
def test_01_the_newest_messages_and_nothing_is_durable(loading: Loading, crash: Crash, point: str) -> None:
    loading.settings["kafka"] = {"brokers": "nobody:1", "topics": ["t"], "start": "latest"}
    crash(point)
    first = {"t/0": 20, "t/1": 12} if point == "doris.begun" else {"t/0": 30, "t/1": 12}
    loading.source.ends = {"t/0": 30, "t/1": 12}
    crash("doris.row_durable" if point == "doris.begun" else "doris.begun")
    loading.source.ends = {"t/0": 40, "t/1": 22}
    loading.run()
    found = sorted(loading.doris.rows("t", "place, off"))
    assert found == [(place, n) for place, end in loading.source.ends.items() for n in range(first[place], end)]


@pytest.mark.parametrize("nth", [1, 3])
def test_02_row_durable_nothing_sent(loading: Loading, crash: Crash, nth: int) -> None:
    crash("doris.row_durable", nth)
    loading.run()
    loading.check()


@pytest.mark.parametrize("fault", ["be_cut_headers", "be_cut_body", "be_500"])
def test_03_while_the_body_is_going(loading: Loading, fault: str) -> None:
    loading.doris.faults.add(fault, LABEL, times=3)
    loading.run()
    assert len(loading.doris.faults.struck) == 3
    loading.check()


def test_04_the_request_of_a_dead_loader_still_runs(loading: Loading) -> None:
    doris = loading.doris
    doris.faults.add("be_detach", LABEL)
    with pytest.raises(RetryableError):
        _dies_waiting(loading)
    waited = count()
    loading.slept = lambda: doris.finish_detached() if next(waited) == 5 else None
    loading.run()
    loading.check()
    assert len([one for one in doris.transactions.begun if re.match(f"{LABEL}00001", one.label)]) == 1


def _dies_waiting(loading: Loading) -> None:
    def dead() -> None:
        raise RetryableError("the loader is dead", fix="")

    loading.slept = dead
    loading.run()


def test_04_a_request_that_never_ends_is_aborted(loading: Loading) -> None:
    loading.doris.faults.add("be_detach", LABEL)
    loading.slept = lambda: loading.doris.clock.advance(10)
    loading.run()
    loading.check()
    loading.doris.finish_detached()  # too late: its transaction is aborted
    loading.check()


@pytest.mark.parametrize("fault", ["be_cut_committed", "be_html_committed", "be_json_committed"])
def test_05_committed_and_the_answer_lost(loading: Loading, fault: str) -> None:
    loading.doris.faults.add(fault, LABEL, times=4)
    loading.run()
    assert len(loading.doris.faults.struck) == 4
    loading.check()


def test_05_committed_and_the_loader_dead(loading: Loading, crash: Crash) -> None:
    crash("doris.before_loaded", 2)
    loading.run()
    loading.check()


def test_06_publish_timeout(loading: Loading) -> None:
    kind = "2pc_publish_timeout" if loading.settings["two_phase"] else "be_publish_timeout"
    loading.doris.faults.add(kind, times=3, seconds=60)
    loading.run()
    assert len(loading.doris.faults.struck) == 3
    loading.check()


def test_07_some_of_several_loads_are_done(loading: Loading, crash: Crash) -> None:
    loading.settings["in_flight"] = 4
    loading.doris.faults.add("be_fail", "-000002-|-000003-", times=2, text="tablet writer write failed, err=-235")
    crash("doris.loaded", 2)
    loading.run()
    loading.check()


def test_08_pre_committed_and_no_number_is_kept(loading: Loading, crash: Crash) -> None:
    crash("doris.after_send", 3)
    loading.run()
    loading.check()


@pytest.mark.parametrize("two_phase", [True], indirect=True)
@pytest.mark.parametrize("point", ["doris.decided", "doris.committed", "doris.before_loaded"])
@pytest.mark.parametrize("hours", [0, 2], ids=["at once", "two hours later"])
def test_09_to_12_behind_the_decision(loading: Loading, crash: Crash, point: str, hours: int) -> None:
    crash(point, 2)
    loading.doris.clock.advance(hours * HOUR)
    loading.run()
    loading.check()


@pytest.mark.parametrize("two_phase", [True], indirect=True)
@pytest.mark.parametrize("fault", ["2pc_cut_before", "2pc_cut_after"])
def test_10_the_answer_to_a_commit_is_lost(loading: Loading, fault: str) -> None:
    loading.doris.faults.add(fault, times=3)
    loading.run()
    loading.check()


@pytest.mark.parametrize("two_phase", [True], indirect=True)
def test_12_aborted_under_way(loading: Loading, crash: Crash) -> None:
    crash("doris.after_send", 2)
    loading.doris.clock.advance(2 * HOUR)  # aborted, and no number is kept
    loading.run()
    loading.check()


def too_late(doris: Doris) -> None:
    doris.clock.advance(13 * HOUR)


def too_many(doris: Doris) -> None:
    first = len(doris.transactions.begun)
    for number in range(first, first + 2001):
        doris.transactions.commit(doris.transactions.begin("db", "other", f"other-{number}"))


FORGET = {"13 hours later": too_late, "2001 loads later": too_many}


@pytest.fixture(params=FORGET, ids=list(FORGET))
def forget(request: pytest.FixtureRequest) -> Callable[[Doris], None]:
    return FORGET[request.param]


@pytest.mark.parametrize("point", ["doris.row_durable", "doris.before_loaded"])
def test_13_labels_are_forgotten_and_the_loader_stops(
    loading: Loading, crash: Crash, point: str, forget: Callable[[Doris], None]
) -> None:
    crash(point, 2)
    forget(loading.doris)
    before = loading.doris.rows("t")
    for _ in range(2):
        with pytest.raises(UndecidedError, match=r"may have forgotten the load 2 .*t/\d \d+\.\.\d+"):
            loading.run()
        assert loading.doris.rows("t") == before
    verdict = "load" if point == "doris.row_durable" else "accept"
    with closing(loading.store()) as store:
        assert store.judge("load_er", 2, verdict)
        assert not store.judge("load_er", 1, verdict)
    loading.run()
    loading.check()


@pytest.mark.parametrize("point", ["doris.begun_again", "doris.before_loaded"])
def test_13_what_an_operator_says_counts_once(
    loading: Loading, crash: Crash, point: str, forget: Callable[[Doris], None]
) -> None:
    crash("doris.row_durable", 2)
    for died_at, verdict in ((point, "load"), (None, "load" if point == "doris.begun_again" else "accept")):
        forget(loading.doris)
        with pytest.raises(UndecidedError):
            loading.run()
        with closing(loading.store()) as store:
            assert store.judge("load_er", 2, verdict)
        if died_at is not None:
            crash(died_at)
    loading.run()
    loading.check()


@pytest.mark.parametrize("point", ["doris.row_durable", "doris.before_loaded", "doris.decided"])
def test_13_an_audit_column_decides(
    loading: Loading, crash: Crash, point: str, forget: Callable[[Doris], None], two_phase: bool
) -> None:
    if point == "doris.decided" and not two_phase:
        point = "doris.after_send"
    loading.doris.sql("ALTER TABLE t ADD COLUMN `loaded_by` STRING NULL")
    loading.settings["audit_column"] = "loaded_by"
    crash(point, 2)
    forget(loading.doris)
    loading.run()
    loading.check()


@pytest.mark.parametrize("point", ["doris.row_durable", "doris.before_loaded"])
def test_13_a_table_that_takes_repeats(
    loading: Loading, crash: Crash, point: str, forget: Callable[[Doris], None]
) -> None:
    props = ' PROPERTIES ("function_column.sequence_col" = "off")'
    loading.doris.sql("DROP TABLE t")
    loading.doris.sql(
        TABLE.format(more="", key="UNIQUE KEY(place, off)", props="").replace("BUCKETS 1", "BUCKETS 1" + props)
    )
    crash(point, 2)
    forget(loading.doris)
    loading.run()
    found = sorted(loading.doris.rows("t", "place, off"))
    assert found == loading.expected()


def test_13_a_younger_label_of_few_loads_ago_is_believed(loading: Loading, crash: Crash) -> None:
    crash("doris.row_durable", 2)
    loading.doris.clock.advance(5 * HOUR)
    for number in range(1500):
        loading.doris.transactions.commit(loading.doris.transactions.begin("db", "other", f"other-{number}"))
    loading.run()
    loading.check()


def test_14_the_backend_dies_with_the_load(loading: Loading) -> None:
    doris = loading.doris
    doris.faults.add("be_cut_body", LABEL, times=2)
    passed = count()

    def slept() -> None:
        number = next(passed)
        if number == 0:
            doris.stop_backend(0)
        if number == 3:
            doris.stop_backend(1)
        if number == 8:
            doris.start_backend(0)

    loading.slept = slept
    loading.run()
    loading.check()


@pytest.mark.parametrize("fault", ["fe_cut", "fe_500", "fe_html", "fe_no_backend", "state_500"])
def test_15_frontends_change(loading: Loading, fault: str) -> None:
    loading.doris.faults.add(fault, times=5)
    loading.doris.faults.add("be_cut_committed", LABEL, times=2)
    loading.run()
    loading.check()


def test_16_kafka_has_removed_the_offsets(loading: Loading, crash: Crash) -> None:
    crash("doris.row_durable", 2)
    loading.source.starts = {"t/0": 15, "t/1": 10}
    with pytest.raises(FatalError, match=r"t/\d"):
        loading.run()


def test_17_columns_have_changed_between_tries(loading: Loading, crash: Crash) -> None:
    crash("doris.row_durable", 2)
    loading.doris.sql("ALTER TABLE t ADD COLUMN `more` STRING NULL DEFAULT 'before'")
    loading.run()
    loading.check()
    assert {row[0] for row in loading.doris.rows("t", "more")} == {"before", "x" * 20}


def test_17_a_column_is_gone(loading: Loading, crash: Crash) -> None:
    loading.doris.sql("ALTER TABLE t ADD COLUMN `more` STRING NULL")
    crash("doris.before_send", 3)
    loading.doris.sql("ALTER TABLE t DROP COLUMN `more`")
    loading.run()
    loading.check()


def test_18_the_store_is_put_back(loading: Loading, crash: Crash, tmp_path: Path) -> None:
    crash("doris.row_durable", 2)
    files = [path for path in tmp_path.iterdir() if path.name.startswith("loads.db")]
    (tmp_path / "copy").mkdir()
    for path in files:
        shutil.copy(path, tmp_path / "copy")
    crash("doris.before_loaded", 1)  # of row 2, which the copy has as not loaded
    for path in tmp_path.glob("loads.db*"):
        path.unlink()
    for path in (tmp_path / "copy").iterdir():
        shutil.copy(path, tmp_path)
    loading.run()
    loading.check()


def test_18_doris_has_loads_that_the_store_does_not_know(loading: Loading, crash: Crash, tmp_path: Path) -> None:
    loading.run()
    before = loading.doris.rows("t")
    for path in tmp_path.glob("loads.db*"):
        path.unlink()
    with closing(loading.store()) as store:
        store.open()
    with pytest.raises(FatalError, match="older copy, or another one"):
        loading.run()
    assert loading.doris.rows("t") == before


def test_who_is_to_stop_waits_no_longer_for_a_doris_that_is_away(loading: Loading) -> None:
    loading.doris.stop_frontend()
    loading.settings["give_up_after"] = 600
    passed = count()
    with closing(loading.store()) as store:
        clock, sleep = (lambda: loading.doris.clock.now), (lambda _: None)
        Loader(loading.config(), store, loading.source, clock=clock, sleep=sleep).run(lambda: next(passed) >= 3)
    loading.doris.start_frontend()
    loading.run()
    loading.check()


@pytest.mark.parametrize("two_phase", [False], indirect=True)
def test_a_loader_of_a_name_that_begins_alike_is_none_of_ours(loading: Loading) -> None:
    for number in (1, 2):
        loading.settings["name"] = f"load_er_of_a_team_in_a_country_{number}"
        loading.run()
    assert sorted(loading.doris.rows("t", "place, off")) == sorted(loading.expected() * 2)


@pytest.mark.parametrize("two_phase", [False], indirect=True)
def test_another_table_in_the_file_of_a_loader_is_told(loading: Loading) -> None:
    loading.run()
    loading.doris.sql(DUPLICATE.replace("TABLE t", "TABLE other"))
    loading.settings["table"] = "other"
    with pytest.raises(ConfigError, match=r"has loaded into another table so far than db\.other"):
        loading.run()
    assert loading.doris.rows("other") == []


@pytest.mark.parametrize("two_phase", [False], indirect=True)
def test_a_topic_that_is_taken_out_for_a_while_goes_on_where_it_was(loading: Loading) -> None:
    loading.run()
    loading.source.ends = {"t/0": 30}
    loading.run()
    loading.source.ends = {"t/0": 40, "t/1": 20}
    loading.run()
    loading.check()


def test_a_loader_that_was_taken_over_stops(loading: Loading) -> None:
    def taken_over() -> None:
        with closing(loading.store()) as store:
            store.take("load_er")

    loading.doris.faults.add("be_cut_body", LABEL)
    loading.slept = taken_over
    with pytest.raises(FencedError, match="taken over the loader"):
        loading.run()
    loading.slept = lambda: None
    loading.run()
    loading.check()


def test_rows_that_doris_refuses_stop_the_loader_with_the_reasons(loading: Loading) -> None:
    loading.doris.sql("DROP TABLE t")
    loading.doris.sql(DUPLICATE.replace("note STRING", "note VARCHAR(6)"))
    with pytest.raises(DataError, match=r"refuses .* rows for db\.t .*too many filtered rows\n.*too long"):
        loading.run()


def test_a_table_that_is_not_there_is_told(loading: Loading) -> None:
    loading.doris.sql("DROP TABLE t")
    with pytest.raises(ConfigError, match=r"no table db\.t"):
        loading.run()
