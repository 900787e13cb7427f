"""A table that SQL computes from tables that change, as a source: what is told of it goes onto the log as the changes of every source do.

::

    topics of the inputs --whole transactions--> state (newest rows) --SQL--> answer --difference to what was told--> changes, mark
                                                                                      \\_ one unit on the topic of the table _/

A round takes in what is there, answers the SQL, and tells the difference. Its mark is the offsets of the inputs::

    position = {"offsets": {"db1/0": …}, "began": {"db1/0": …}, "sql": fingerprint of what is computed}

With `windows` it says also up to where they are final, and by which commit times: {…, "passed": µs, "passed_by": {"db1/0": µs}}.

Ids count up from the mark's, times are the newest commit time of the inputs. Each round ends at marks of the inputs, so what is told is the
answer for whole transactions of each of them.

Why repeats never count twice: an input's row has the change with the largest id of its key, however often and in whatever order changes come, so
the answer is that of the newest rows; and of it only what differs from what was told is told. Why nothing is told twice or lost: what is told and where
the inputs have been read to are one unit of the log.

Crash story (points of `headrace.crash`):

* ``sql.computed`` the round is not on the log: it is computed again, from the mark before. Ids may then stand for other rows, of which nobody has heard.
* ``sql.told`` it is on the log, the state is older (head of state.py): it takes the same offsets once more, and what was told from the log.
* ``sql.kept`` both agree.

How much work a backlog is: a round takes in as many rows as the state has before it answers, 65,536 at least. So with a whole answer that costs as much as
the state has rows, all answers on the way through a backlog cost about as much as the last one and the rows together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from headrace.capture.base import Event, Upstream
from headrace.compute.changing.answer import Answers
from headrace.compute.changing.config import SqlSourceConfig
from headrace.compute.changing.reading import Reading, lost
from headrace.compute.changing.rounds import Rounds
from headrace.compute.changing.state import State
from headrace.errors import ConfigError, Finding, HeadraceError
from headrace.ums.change import Mark
from headrace.ums.schema import TableSchema


class SqlSource:
    """A `Source` over the topics of others on the same log. `state` is the directory of its own."""

    Config = SqlSourceConfig

    def __init__(self, config: SqlSourceConfig, state: Path) -> None:
        self._config = config
        self._directory = state
        self._from: Upstream | None = None
        self._rounds: Rounds | None = None

    def read_from(self, upstream: Upstream) -> None:
        self._from = upstream

    def check(self, newest: Mark | None) -> Iterator[Finding]:
        try:
            Answers(self._config)
            with closing(self._reading()) as reading:
                self._began(reading, newest)
        except HeadraceError as error:
            yield Finding.of(error)

    def tables(self) -> Sequence[TableSchema]:
        with closing(self._state(answers := Answers(self._config))) as state:
            if not state.is_kept():
                return []
            state.open()
            return [] if state.told.table is None else [state.told.table, *answers.besides()]

    def tables_now(self) -> Iterator[TableSchema | Finding]:
        try:
            with closing(self._outlined(answers := Answers(self._config))) as state:
                yield answers.prepare(state)
                yield from answers.besides()
        except HeadraceError as error:
            yield Finding.of(error)

    def explained(self) -> str:
        with closing(self._outlined(answers := Answers(self._config))) as state:
            return answers.explained(state)

    def follow(self, start: Mark | None) -> Iterator[Event]:
        answers = Answers(self._config)
        with closing(self._reading()) as reading, closing(self._state(answers)) as state:
            began = self._began(reading, start)
            state.open()
            self._rounds = Rounds(self._config, answers, self._upstream, reading, state)
            yield from self._rounds.events(self._rounds.begin(start, began))

    def skip(self, newest: Mark, to: str) -> Mark:
        raise ConfigError("a computed table has no gap to skip", fix="name another source of the flow file")

    def confirm(self, mark: Mark) -> None:
        if self._rounds is not None:
            self._rounds.keep(mark)

    def close(self) -> None:
        """Everything is closed when `follow` ends."""

    def _state(self, answers: Answers) -> State:
        return State(self._directory, self._config.memory, answers)

    def _outlined(self, answers: Answers) -> State:
        """A state in memory, of the tables as they are now, without a row."""
        state = State(None, "", answers)
        state.open()
        for table in self._upstream.tables_now():
            if isinstance(table, TableSchema) and answers.takes(table):
                state.meet(table)
        answers.require_known(state)
        return state

    def _reading(self) -> Reading:
        return Reading(self._upstream, self._config.reads_from_log, self._config.keys)

    def _began(self, reading: Reading, start: Mark | None) -> dict[str, int]:
        """Where the table began on the log, by partition. ConfigError when it has been computed otherwise; FatalError as of `lost`."""
        if start is None:
            begins = reading.begins()
            gone = [at for at, offset in begins.items() if offset > 0]
            if gone and self._config.start == "all":
                raise lost(gone[0])
            return begins
        if start.position["sql"] != self._config.fingerprint:
            raise ConfigError(
                f"source {self._config.name} has been computed by other `sql`, `from` or `key`: what was told before would stay there",
                fix="give the changed source a new name, and it computes everything on the log",
            )
        began: dict[str, int] = start.position["began"]
        return began

    @property
    def _upstream(self) -> Upstream:
        assert self._from is not None, "whoever opens a source that reads the log says where it is"
        return self._from
