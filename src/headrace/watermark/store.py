"""What a Watermark Server must not forget, in a database that several servers may share: SQLite on one machine, PostgreSQL or MySQL for more.

::

    watermark_topologies   name, spec (JSON), registered: how often
    watermark_stages       id, topology, name, version (of its membership), published_us
    watermark_members      stage, id, name, state, since_us, weight, changed_us
    watermark_leases       name, holder, until_us: which server looks after something

Two rules keep watermarks true. A watermark is *committed before it is published*, and committing keeps the larger one: so it never goes
back, whichever server dies at whichever moment. And it is committed only *under the version of the membership that it was reckoned with*:
a server that has not heard of a new member cannot pass it. Who joins gets `since_us`, the watermark in the same transaction that raises
the version. The progress of members is not kept: each one reports again within a second, and until then the watermark stands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    func,
    select,
)

from headrace.own_database import OwnDatabase
from headrace.watermark.topology import Topology
from headrace.watermark.tracker import Members
from headrace.watermark.wire import NEVER

_PIECE = 1000
"""So many members are read at a time: while a database gives its rows, no other thread of the process works."""

State = Literal["expected", "drained", "abandoned"]

_meta = MetaData()
_topologies = Table(
    "watermark_topologies",
    _meta,
    Column("name", String(200), primary_key=True),
    Column("spec", Text, nullable=False),
    Column("registered", Integer, nullable=False),
)
_stages = Table(
    "watermark_stages",
    _meta,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("topology", ForeignKey("watermark_topologies.name"), nullable=False),
    Column("name", String(200), nullable=False),
    Column("version", BigInteger, nullable=False, default=0),
    Column("published_us", BigInteger, nullable=False, default=NEVER),
    UniqueConstraint("topology", "name"),
)
_members = Table(
    "watermark_members",
    _meta,
    Column("stage", ForeignKey("watermark_stages.id"), primary_key=True),
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", String(255), nullable=False),
    Column("state", String(10), nullable=False),
    Column("since_us", BigInteger, nullable=False),
    Column("weight", Float, nullable=False, default=0.0),
    Column("changed_us", BigInteger, nullable=False),
    UniqueConstraint("stage", "name"),
)
_leases = Table(
    "watermark_leases",
    _meta,
    Column("name", String(255), primary_key=True),
    Column("holder", String(64), nullable=False),
    Column("until_us", BigInteger, nullable=False),
)

# Asked ten times a second: made once, and one question.
_PUBLISHED = select(
    _stages.c.id,
    _stages.c.topology,
    _stages.c.name,
    _stages.c.version,
    _stages.c.published_us,
    select(func.sum(_topologies.c.registered)).scalar_subquery().label("registered"),
).order_by(_stages.c.id)


@dataclass(frozen=True, slots=True)
class StageState:
    """What the store has of a stage."""

    id: int
    topology: str
    name: str
    version: int
    published_us: int


@dataclass(frozen=True, slots=True)
class Published:
    """All that a server looks at again and again. `registered` grows with each registration."""

    stages: list[StageState]
    registered: int


@dataclass(frozen=True, slots=True)
class Gone:
    """A member that is expected no more. `since_us`: when it left, in µs since 1970."""

    name: str
    state: State
    since_us: int


class WatermarkStore(OwnDatabase):
    """One database. Every method is a transaction. RetryableError when it cannot be reached."""

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        super().__init__(url, _meta, "store of watermarks")
        self._clock = clock

    def register(self, topology: Topology) -> None:
        """Keeps a topology, in place of one of the same name. Stages that stay keep their watermarks and members."""
        spec = topology.model_dump_json()
        with self._transaction() as connection:
            name = _topologies.c.name == topology.name
            again = _topologies.update().where(name).values(spec=spec, registered=_topologies.c.registered + 1)
            if connection.execute(again).rowcount == 0:
                connection.execute(_topologies.insert().values(name=topology.name, spec=spec, registered=1))
            there = set(connection.scalars(select(_stages.c.name).where(_stages.c.topology == topology.name)))
            for stage in topology.stages:
                if stage.name not in there:
                    connection.execute(
                        _stages.insert().values(topology=topology.name, name=stage.name, version=0, published_us=NEVER)
                    )

    def topologies(self) -> list[Topology]:
        with self._transaction() as connection:
            specs = connection.scalars(select(_topologies.c.spec).order_by(_topologies.c.name)).all()
        return [Topology.model_validate_json(spec) for spec in specs]

    def publish(self, lows: Iterable[tuple[StageState, int]]) -> Published:
        """Commits low watermarks, each under the version that it was reckoned with, and returns what all stages have now."""
        with self._transaction() as connection:
            for stage, low_us in lows:
                connection.execute(
                    _stages.update()
                    .where(
                        _stages.c.id == stage.id, _stages.c.version == stage.version, _stages.c.published_us < low_us
                    )
                    .values(published_us=low_us)
                )
            rows = connection.execute(_PUBLISHED).all()
            return Published([StageState(*state) for *state, _ in rows], int(rows[0].registered) if rows else 0)

    def membership(self, stage_id: int) -> tuple[int, Members]:
        """The expected members of a stage, by their ids, and a version that is not newer than them."""
        with self._transaction() as connection:
            version = connection.execute(select(_stages.c.version).where(_stages.c.id == stage_id)).scalar_one()
            columns = (_members.c.id, _members.c.name, _members.c.since_us, _members.c.weight)
            wanted = (_members.c.stage == stage_id, _members.c.state == "expected")
            rows = connection.execute(select(*columns).where(*wanted).order_by(_members.c.id))
            return version, Members.of(rows.partitions(_PIECE))

    def gone(self, stage_id: int) -> list[Gone]:
        """Members that are expected no more, those that left last first."""
        with self._transaction() as connection:
            rows = connection.execute(
                select(_members.c.name, _members.c.state, _members.c.changed_us)
                .where(_members.c.stage == stage_id, _members.c.state != "expected")
                .order_by(_members.c.changed_us.desc(), _members.c.id)
            )
            return [Gone(name, state, changed_us) for name, state, changed_us in rows]

    def join(self, stage_id: int, names: Sequence[str]) -> dict[str, int]:
        """Expects members; the ids of all that were named. The version grows when any of them is new or had left."""
        with self._transaction() as connection:
            of_stage = _members.c.stage == stage_id
            published_us = self._lock(connection, stage_id)
            known = {
                name: (member, state)
                for name, member, state in connection.execute(
                    select(_members.c.name, _members.c.id, _members.c.state).where(of_stage)
                )
            }
            state = {"state": "expected", "since_us": published_us, "changed_us": self._now_us()}
            back = [name for name in names if name in known and known[name][1] != "expected"]
            for name in back:
                connection.execute(_members.update().where(of_stage, _members.c.name == name).values(**state))
            new = [name for name in dict.fromkeys(names) if name not in known]
            ids = {name: len(known) + at for at, name in enumerate(new)}
            if new:
                rows = [{"stage": stage_id, "id": ids[name], "name": name, "weight": 0.0, **state} for name in new]
                connection.execute(_members.insert(), rows)
            if new or back:
                self._raise_version(connection, stage_id)
            return {name: ids[name] if name in ids else known[name][0] for name in names}

    def take_back(self, stage_id: int, ids: Sequence[int]) -> None:
        """Expects members again that were abandoned and have been heard of."""
        with self._transaction() as connection:
            values = {"state": "expected", "since_us": self._lock(connection, stage_id), "changed_us": self._now_us()}
            returned = (_members.c.stage == stage_id, _members.c.id.in_(ids), _members.c.state == "abandoned")
            if connection.execute(_members.update().where(*returned).values(**values)).rowcount:
                self._raise_version(connection, stage_id)

    def leave(self, stage_id: int, names: Sequence[str], state: State) -> None:
        """Expects members no more: `drained` when they have said that nothing will come, `abandoned` when they fell silent."""
        with self._transaction() as connection:
            self._lock(connection, stage_id)
            gone = 0
            for name in names:
                member = (_members.c.stage == stage_id, _members.c.name == name, _members.c.state == "expected")
                values = {"state": state, "changed_us": self._now_us()}
                gone += connection.execute(_members.update().where(*member).values(**values)).rowcount
            if gone:
                self._raise_version(connection, stage_id)

    def weigh(self, stage: StageState, weights: Mapping[int, float]) -> None:
        """Sets the members' weights, unless the membership has changed meanwhile."""
        with self._transaction() as connection:
            self._lock(connection, stage.id)
            current = connection.scalar(select(_stages.c.version).where(_stages.c.id == stage.id))
            if current != stage.version:
                return
            of = (_members.c.stage == stage.id, _members.c.id == bindparam("member"))
            rows = [{"member": member, "new_weight": weight} for member, weight in weights.items()]
            connection.execute(_members.update().where(*of).values(weight=bindparam("new_weight")), rows)
            self._raise_version(connection, stage.id)

    def lease(self, name: str, holder: str, seconds: float) -> bool:
        """Whether `holder` looks after something now: nobody else does, or did for too long."""
        now_us = self._now_us()
        until_us = now_us + round(seconds * 1e6)
        with self._transaction() as connection:
            mine_or_free = (_leases.c.holder == holder) | (_leases.c.until_us < now_us)
            taken = _leases.update().where(_leases.c.name == name, mine_or_free)
            if connection.execute(taken.values(holder=holder, until_us=until_us)).rowcount:
                return True
            if connection.scalar(select(func.count()).select_from(_leases).where(_leases.c.name == name)):
                return False
            connection.execute(_leases.insert().values(name=name, holder=holder, until_us=until_us))
            return True

    def _lock(self, connection: Connection, stage_id: int) -> int:
        """The published watermark of a stage, which nobody else changes until the transaction ends."""
        row = select(_stages.c.published_us).where(_stages.c.id == stage_id).with_for_update()
        return int(connection.execute(row).scalar_one())

    @staticmethod
    def _raise_version(connection: Connection, stage_id: int) -> None:
        stage = _stages.update().where(_stages.c.id == stage_id)
        connection.execute(stage.values(version=_stages.c.version + 1))

    def _now_us(self) -> int:
        return round(self._clock() * 1e6)
