"""Real-time marketing, live: ``make marketing``, or ``python -m examples.marketing.run DIRECTORY [--applicants N]`` where the servers are installed.

Starts a MySQL server with the web site's database and a PostgreSQL server with the CRM's and the call centre's, runs flow.yaml between them, and plays
applicants who fill in a form step by step. Some submit it, others stop half-way; customers who are new come into the CRM a moment after they have begun. What the
call centre sees is held against what it should see, and how long that took is told. Exit code 1 when it is not the same.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from examples.live import begun, ended, quantiles, running, said, until
from tests.servers.mysql import MySql
from tests.servers.postgresql import PostgreSql

STEPS, WORTH_A_CALL = 5, 40
SITE = """CREATE TABLE applications (id INT PRIMARY KEY, customer_id INT NOT NULL, step TINYINT NOT NULL, phone VARCHAR(20), amount INT,
    years_employed INT, submitted TINYINT NOT NULL DEFAULT 0)"""
CRM = "CREATE TABLE customers (id INT PRIMARY KEY, segment TEXT NOT NULL, factor DOUBLE PRECISION NOT NULL)"
SEGMENTS = {"gold": 1.5, "silver": 1.0, "bronze": 0.5}
LATEST_S = 1.5
"""So long after an applicant has begun the CRM knows of him."""
Lead = tuple[int, int]
"""An application and the step that it is at."""


@dataclass
class Form:
    """What somebody has filled in so far."""

    id: int
    segment: str | None
    """Of the customer; None when the CRM never hears of him."""
    step: int = 1
    phone: str | None = None
    amount: int | None = None
    years_employed: int | None = None
    submitted: bool = False

    @property
    def score(self) -> int | None:
        """What it is worth to the call centre; None when that is not to call."""
        if self.segment is None or self.phone is None or self.submitted:
            return None
        points = 10 * self.step + (self.amount or 0) / 1000 + 2 * (self.years_employed or 0)
        score = math.floor(SEGMENTS[self.segment] * points + 0.5)
        return score if score >= WORTH_A_CALL else None


@dataclass
class Seen:
    """Since when the call centre has each lead."""

    url: str
    at: dict[Lead, float] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def look(self) -> dict[int, tuple[int, int, str, str]]:
        """The leads as they are now: step, score, segment and phone by application."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return self._leads(connection)

    def follow(self) -> None:
        """In a thread of its own: looks all the time."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            while not self.over.wait(0.02):
                for id_, (step, *_) in self._leads(connection).items():
                    self.at.setdefault((id_, step), time.monotonic())

    def _leads(self, connection: psycopg.Connection[Any]) -> dict[int, tuple[int, int, str, str]]:
        if connection.execute("SELECT to_regclass('leads')").fetchone() == (None,):
            return {}
        found = connection.execute("SELECT id, step, score, segment, phone FROM leads").fetchall()
        return {id_: (step, score, segment, phone) for id_, step, score, segment, phone in found}


class Applicants:
    """Fill in forms, some at a time."""

    def __init__(self, site: Any, crm: psycopg.Connection[Any], seed: int) -> None:
        self._site, self._crm = site, crm
        self._draw = random.Random(seed)
        self._arriving: list[tuple[float, Form]] = []
        self.forms: dict[int, Form] = {}
        self.committed: dict[Lead, float] = {}
        """When all that a lead takes was there: the form's step, and the customer in the CRM."""

    def begin(self) -> None:
        """Somebody opens the form."""
        id_ = len(self.forms) + 1
        known = None if id_ % 12 == 0 else self._draw.choice([*SEGMENTS])
        form = self.forms[id_] = Form(id_, known)
        new = id_ > 1 and self._draw.random() < 0.4
        if known is not None:
            self._arriving.append((time.monotonic() + (self._draw.uniform(0.3, LATEST_S) if new else 0), form))
        self.arrive()
        self.store(form)

    def go_on(self) -> bool:
        """Somebody fills in one thing more, or gives up without a word; False when everybody has."""
        self.arrive()
        forms = [form for form in self.forms.values() if form.step < STEPS and not form.submitted]
        if not forms:
            return False
        form = self._draw.choice(forms)
        form.step += 1
        form.phone = form.phone or f"+49 30 {form.id:05}"
        form.amount = self._draw.randrange(1, 50) * 1000 if form.step == 3 else form.amount
        form.years_employed = self._draw.randrange(20) if form.step == 4 else form.years_employed
        form.submitted = form.step == STEPS and self._draw.random() < 0.5
        self.store(form)
        return True

    def arrive(self, *, everybody: bool = False) -> None:
        """The CRM hears of those whose time has come."""
        now = time.monotonic()
        for due in [due for due in self._arriving if everybody or due[0] <= now]:
            self._arriving.remove(due)
            form = due[1]
            assert form.segment is not None
            values = (form.id, form.segment, SEGMENTS[form.segment])
            self._crm.execute("INSERT INTO customers VALUES (%s, %s, %s)", values)
            self._note(form)

    def store(self, form: Form) -> None:
        values = (form.id, form.id, form.step, form.phone, form.amount, form.years_employed, form.submitted)
        with self._site.cursor() as cursor:
            cursor.execute("REPLACE INTO applications VALUES (%s, %s, %s, %s, %s, %s, %s)", values)
        self._note(form)

    def _note(self, form: Form) -> None:
        is_known = all(each is not form for _, each in self._arriving)
        if form.score is not None and is_known:
            self.committed[form.id, form.step] = time.monotonic()

    def leads(self) -> dict[int, tuple[int, int, str, str]]:
        """What the call centre is to have in the end."""
        return {
            form.id: (form.step, form.score, form.segment or "", form.phone or "")
            for form in self.forms.values()
            if form.score is not None
        }


def play(site: Any, crm: psycopg.Connection[Any], seen: Seen, process: subprocess.Popen[bytes], count: int) -> bool:
    """Lets applicants come, and tells what the call centre has seen; whether that is right."""
    people = Applicants(site, crm, seed=7)
    people.begin()
    first = people.forms[1]
    first.segment, first.step, first.phone, first.amount = "gold", 3, "+49 30 00001", 40_000
    crm.execute("UPDATE customers SET segment = 'gold', factor = 1.5")
    people.store(first)
    if not until(lambda: seen.look() == people.leads(), process, every_s=0.1):
        return False
    said("The first lead is there. Others come: ")
    people.committed.clear()
    watcher = threading.Thread(target=seen.follow)
    watcher.start()
    try:
        while people.go_on() or len(people.forms) < count:
            if len(people.forms) < count:
                people.begin()
            time.sleep(0.03)
        people.arrive(everybody=True)
        is_right = until(lambda: seen.look() == people.leads(), process, every_s=0.1)
    finally:
        seen.over.set()
        watcher.join()
    tell(people, seen)
    return is_right


def tell(people: Applicants, seen: Seen) -> None:
    """The best leads, and how fast they came."""
    said(f"{'score':>6} {'segment':8} {'step':>4}  phone")
    for step, score, segment, phone in sorted(seen.look().values(), key=lambda lead: -lead[1])[:10]:
        said(f"{score:6} {segment:8} {step:4}  {phone}")
    taken = [seen.at[lead] - at for lead, at in people.committed.items() if lead in seen.at]
    if taken:
        said(f"{len(taken)} leads and changes of leads, from commit to the call centre: {quantiles(taken)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="examples.marketing.run")
    parser.add_argument("directory", type=Path, nargs="?", default=Path("headrace-demo/marketing"))
    parser.add_argument("--applicants", type=int, default=100)
    options = parser.parse_args()
    flow = begun(options.directory, __file__)
    with ExitStack() as stack:
        site, centre = stack.enter_context(MySql()), stack.enter_context(PostgreSql())
        database = stack.enter_context(site.database())
        crm_name, leads_name = (stack.enter_context(centre.database()) for _ in range(2))
        site.execute(SITE, database=database)
        centre.execute(CRM, database=crm_name)
        environment = {
            **os.environ,
            "SITE_HOST": site.host,
            "SITE_PORT": str(site.port),
            "SITE_USER": site.user,
            "SITE_PASSWORD": site.password,
            "SITE_DATABASE": database,
            "CRM_URL": centre.url(crm_name),
            "CALL_CENTRE_URL": centre.url(leads_name),
        }
        process = stack.enter_context(running(flow, environment))
        connection = stack.enter_context(closing(site.connect(database, autocommit=True)))
        crm = stack.enter_context(centre.connect(crm_name))
        is_right = play(connection, crm, Seen(centre.url(leads_name)), process, options.applicants)
    if not is_right:
        said(f"the call centre does not have what it should; see {options.directory / 'run.log'}")
        return 1
    said("The call centre has exactly those who stopped half-way and are worth a call.")
    return 0


if __name__ == "__main__":
    ended(main)
