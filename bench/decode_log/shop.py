"""A shop after TPC-C: small transactions over three tables, a table without a key, and one big transaction."""

from __future__ import annotations

from random import Random
from string import ascii_lowercase, digits
from typing import Any

import pymysql

CUSTOMERS, ORDERS, BIG_ROWS = 30_000, 60_000, 200_000
"""At scale 1."""

_WAREHOUSES = 20
_DELIVERED_ORDERS = 200
"""Every tenth order the newest of its warehouse's are delivered."""

_TABLES = (
    """CREATE TABLE customer (c_id INT, c_d_id TINYINT, c_w_id SMALLINT, c_first VARCHAR(16), c_last VARCHAR(16),
    c_street VARCHAR(40), c_city VARCHAR(20), c_state CHAR(2), c_zip CHAR(9), c_phone CHAR(16), c_since DATETIME, c_credit CHAR(2),
    c_credit_lim DECIMAL(12,2), c_discount DECIMAL(4,4), c_balance DECIMAL(12,2), c_ytd DECIMAL(12,2), c_cnt SMALLINT, c_data TEXT,
    PRIMARY KEY (c_w_id, c_d_id, c_id))""",
    """CREATE TABLE orders (o_id BIGINT, o_w_id SMALLINT, o_c_id INT, o_entry DATETIME(3), o_carrier TINYINT, o_cnt TINYINT,
    o_all TINYINT, PRIMARY KEY (o_w_id, o_id))""",
    """CREATE TABLE order_line (ol_o_id BIGINT, ol_w_id SMALLINT, ol_n TINYINT, ol_i_id INT, ol_supply SMALLINT, ol_deliv DATETIME,
    ol_qty TINYINT, ol_amount DECIMAL(6,2), ol_dist CHAR(24), PRIMARY KEY (ol_w_id, ol_o_id, ol_n))""",
    "CREATE TABLE no_key (a INT, b VARCHAR(30), c DECIMAL(12,4)) CHARACTER SET latin1",
    "CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(100), n BIGINT)",
)


def load(connection: pymysql.Connection[Any], scale: float) -> None:
    """Creates the tables in the connection's database and changes them; the connection does not commit by itself."""
    random = Random(43)
    customers = int(CUSTOMERS * scale)
    with connection.cursor() as cursor:
        for table in _TABLES:
            cursor.execute(table)
        _without_key(cursor)
        for first in range(0, customers, 500):
            rows = ",".join(_customer(random, number) for number in range(first, min(first + 500, customers)))
            cursor.execute(f"INSERT INTO customer VALUES {rows}")
            connection.commit()
        for number in range(int(ORDERS * scale)):
            _order(cursor, random, number, random.randrange(customers))
        _big_transaction(cursor, random, int(BIG_ROWS * scale))


def _text(random: Random, length: int) -> str:
    return "".join(random.choices(ascii_lowercase + digits, k=length))


def _customer(random: Random, number: int) -> str:
    names = ",".join(f"'{_text(random, length)}'" for length in (10, 12, 20, 12))
    return (
        f"({number},{number % 10},{number % _WAREHOUSES},{names},'CA','123456789','0123456789012345',NOW(),'GC',50000,"
        f"0.0{random.randint(1, 999)},-10.00,10,1,'{_text(random, 200)}')"
    )


def _order(cursor: Any, random: Random, number: int, customer: int) -> None:
    warehouse = number % _WAREHOUSES
    lines = random.randint(5, 15)
    cursor.execute(f"INSERT INTO orders VALUES ({number},{warehouse},{customer},NOW(3),NULL,{lines},1)")
    rows = ",".join(
        f"({number},{warehouse},{line},{random.randint(1, 100_000)},{warehouse},NULL,5,{random.randint(1, 9999) / 100},"
        f"'{_text(random, 24)}')"
        for line in range(lines)
    )
    cursor.execute(f"INSERT INTO order_line VALUES {rows}")
    cursor.execute(
        f"UPDATE customer SET c_balance = c_balance - {random.randint(1, 5000) / 100}, c_ytd = c_ytd + 1, c_cnt = c_cnt + 1 "
        f"WHERE c_w_id = {customer % _WAREHOUSES} AND c_d_id = {customer % 10} AND c_id = {customer}"
    )
    cursor.connection.commit()
    if number % 10 == 9:
        low = number - _DELIVERED_ORDERS
        carrier = random.randint(1, 10)
        cursor.execute(
            f"UPDATE orders SET o_carrier = {carrier} WHERE o_w_id = {warehouse} AND o_id BETWEEN {low} AND {number}"
        )
        cursor.execute(
            f"UPDATE order_line SET ol_deliv = '2026-03-02' + INTERVAL {number} SECOND "
            f"WHERE ol_w_id = {warehouse} AND ol_o_id BETWEEN {low} AND {number}"
        )
        cursor.connection.commit()


def _without_key(cursor: Any) -> None:
    rows = ",".join(f"({number % 7 if number % 5 else 'NULL'},'café{number}',{number}.5)" for number in range(500))
    cursor.execute(f"INSERT INTO no_key VALUES {rows}")
    cursor.execute("DELETE FROM no_key WHERE a = 3")
    cursor.connection.commit()
    cursor.execute("TRUNCATE TABLE no_key")


def _big_transaction(cursor: Any, random: Random, rows: int) -> None:
    for first in range(0, rows, 2000):
        numbers = range(first, min(first + 2000, rows))
        values = ",".join(f"({number},'{_text(random, 30)}',{number * 7})" for number in numbers)
        cursor.execute(f"INSERT INTO big VALUES {values}")
    cursor.connection.commit()
    cursor.execute("UPDATE big SET n = n + 1")
    cursor.connection.commit()
    cursor.execute("DELETE FROM big WHERE id % 2 = 0")
    cursor.connection.commit()
