"""TPC-H for the tests and benchmarks of Spark: rows made here, queries by the published templates.

tables(scale) yields each table's name and rows. The columns, types and ranges are those of the
specification, the values are drawn by NumPy; texts are of few words, with those that queries look
for among them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NATIONS = [
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4),
    ("ETHIOPIA", 0), ("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2),
    ("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0), ("MOROCCO", 0),
    ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3), ("SAUDI ARABIA", 4),
    ("VIETNAM", 2), ("RUSSIA", 3), ("UNITED KINGDOM", 3), ("UNITED STATES", 1),
]  # fmt: skip
REGIONS = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]
SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"]
PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
MODES = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"]
INSTRUCTIONS = ["COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN"]
TYPES = [
    f"{one} {two} {three}"
    for one in ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
    for two in ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
    for three in ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
]
CONTAINERS = [
    f"{one} {two}"
    for one in ("SM", "LG", "MED", "JUMBO", "WRAP")
    for two in ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM")
]
COLORS = ["almond", "azure", "forest", "green", "indian", "linen", "navy", "plum", "red", "snow"]
WORDS = ["carefully", "special", "quickly", "requests", "final", "deposits", "packages", "even"]
START, END = np.datetime64("1992-01-01"), np.datetime64("1998-08-02")


class _Draw:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def whole(self, low, high, rows):
        return self.random.integers(low, high, rows, endpoint=True)

    def of(self, values, rows):
        return pa.array(values).take(pa.array(self.random.integers(0, len(values), rows)))

    def money(self, low, high, rows):
        return cents(self.whole(low * 100, high * 100, rows))

    def text(self, rows, words=4):
        parts = [self.of(WORDS, rows) for _ in range(words)]
        return pc.binary_join_element_wise(*parts, " ")


def cents(values):
    """Return whole cents as DECIMAL(12, 2)."""
    wide = np.empty((len(values), 2), np.int64)
    wide[:, 0] = values
    wide[:, 1] = np.where(values < 0, -1, 0)
    buffer = pa.py_buffer(np.ascontiguousarray(wide))
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(values), [None, buffer])


def numbered(prefix, numbers):
    texts = pa.array(numbers).cast(pa.string())
    return pc.binary_join_element_wise(prefix, pc.utf8_lpad(texts, 9, "0"), "#")


def days(values):
    return pa.array(values.astype("datetime64[D]"))


def tables(scale: float, seed: int = 7) -> Iterator[tuple[str, pa.Table]]:
    """Yield the eight tables at a scale; 1 is six million lines."""
    draw = _Draw(seed)
    parts, suppliers = max(200, int(200_000 * scale)), max(25, int(10_000 * scale))
    customers, orders = max(150, int(150_000 * scale)), max(1500, int(1_500_000 * scale))
    yield (
        "region",
        pa.table(
            {
                "r_regionkey": pa.array(range(5), pa.int64()),
                "r_name": REGIONS,
                "r_comment": draw.text(5),
            }
        ),
    )
    yield (
        "nation",
        pa.table(
            {
                "n_nationkey": pa.array(range(25), pa.int64()),
                "n_name": [name for name, _ in NATIONS],
                "n_regionkey": pa.array([region for _, region in NATIONS], pa.int64()),
                "n_comment": draw.text(25),
            }
        ),
    )
    keys = np.arange(1, suppliers + 1)
    complaint = pa.scalar("odd Customer again Complaints")
    odd = pa.array(keys % 50 == 3)
    yield (
        "supplier",
        pa.table(
            {
                "s_suppkey": keys,
                "s_name": numbered("Supplier", keys),
                "s_address": draw.text(suppliers, 2),
                "s_nationkey": draw.whole(0, 24, suppliers),
                "s_phone": _phones(draw, suppliers),
                "s_acctbal": draw.money(-999, 9999, suppliers),
                "s_comment": pc.if_else(odd, complaint, draw.text(suppliers)),
            }
        ),
    )
    keys = np.arange(1, parts + 1)
    colors = [draw.of(COLORS, parts) for _ in range(3)]
    yield (
        "part",
        pa.table(
            {
                "p_partkey": keys,
                "p_name": pc.binary_join_element_wise(*colors, " "),
                "p_mfgr": numbered("Manufacturer", draw.whole(1, 5, parts)),
                "p_brand": draw.of(
                    [f"Brand#{a}{b}" for a in range(1, 6) for b in range(1, 6)], parts
                ),
                "p_type": draw.of(TYPES, parts),
                "p_size": pa.array(draw.whole(1, 50, parts), pa.int32()),
                "p_container": draw.of(CONTAINERS, parts),
                "p_retailprice": cents(90000 + (keys // 10) % 20001 + 100 * (keys % 1000)),
                "p_comment": draw.text(parts, 2),
            }
        ),
    )
    yield (
        "partsupp",
        pa.table(
            {
                "ps_partkey": np.repeat(keys, 4),
                "ps_suppkey": _suppliers_of(
                    np.repeat(keys, 4), np.tile(np.arange(4), parts), suppliers
                ),
                "ps_availqty": pa.array(draw.whole(1, 9999, parts * 4), pa.int32()),
                "ps_supplycost": draw.money(1, 1000, parts * 4),
                "ps_comment": draw.text(parts * 4, 6),
            }
        ),
    )
    keys = np.arange(1, customers + 1)
    yield (
        "customer",
        pa.table(
            {
                "c_custkey": keys,
                "c_name": numbered("Customer", keys),
                "c_address": draw.text(customers, 2),
                "c_nationkey": draw.whole(0, 24, customers),
                "c_phone": _phones(draw, customers),
                "c_acctbal": draw.money(-999, 9999, customers),
                "c_mktsegment": draw.of(SEGMENTS, customers),
                "c_comment": draw.text(customers, 6),
            }
        ),
    )
    span = int((END - START).astype(int))
    keys = np.arange(1, orders + 1)
    ordered = START + draw.whole(0, span, orders).astype("timedelta64[D]")
    # As in the specification, a third of the customers have no orders.
    buyers = draw.whole(1, customers, orders)
    buyers -= (buyers % 3 == 0) & (buyers > 1)
    lines = draw.whole(1, 7, orders)
    of_order = np.repeat(np.arange(orders), lines)
    count = len(of_order)
    first = np.repeat(np.cumsum(lines) - lines, lines)
    bought = draw.whole(1, parts, count)
    quantity = draw.whole(1, 50, count)
    price = 90000 + (bought // 10) % 20001 + 100 * (bought % 1000)
    shipped = ordered[of_order] + draw.whole(1, 121, count).astype("timedelta64[D]")
    committed = ordered[of_order] + draw.whole(30, 90, count).astype("timedelta64[D]")
    received = shipped + draw.whole(1, 30, count).astype("timedelta64[D]")
    today = np.datetime64("1995-06-17")
    returned = pc.if_else(pa.array(received <= today), draw.of(["R", "A"], count), "N")
    is_open = shipped > today
    totals = np.zeros(orders, np.int64)
    np.add.at(totals, of_order, quantity * price)
    opened = np.zeros(orders, np.int64)
    np.add.at(opened, of_order, is_open)
    status = np.where(opened == 0, "F", np.where(opened == lines, "O", "P"))
    yield (
        "orders",
        pa.table(
            {
                "o_orderkey": keys,
                "o_custkey": buyers,
                "o_orderstatus": pa.array(status.astype(object), pa.string()),
                "o_totalprice": cents(totals),
                "o_orderdate": days(ordered),
                "o_orderpriority": draw.of(PRIORITIES, orders),
                "o_clerk": numbered("Clerk", draw.whole(1, max(10, orders // 1500), orders)),
                "o_shippriority": pa.array(np.zeros(orders, np.int32)),
                "o_comment": draw.text(orders, 5),
            }
        ),
    )
    yield (
        "lineitem",
        pa.table(
            {
                "l_orderkey": of_order + 1,
                "l_partkey": bought,
                "l_suppkey": _suppliers_of(bought, draw.whole(0, 3, count), suppliers),
                "l_linenumber": pa.array(np.arange(count) - first + 1, pa.int32()),
                "l_quantity": cents(quantity * 100),
                "l_extendedprice": cents(quantity * price),
                "l_discount": cents(draw.whole(0, 10, count)),
                "l_tax": cents(draw.whole(0, 8, count)),
                "l_returnflag": returned,
                "l_linestatus": pc.if_else(pa.array(is_open), "O", "F"),
                "l_shipdate": days(shipped),
                "l_commitdate": days(committed),
                "l_receiptdate": days(received),
                "l_shipinstruct": draw.of(INSTRUCTIONS, count),
                "l_shipmode": draw.of(MODES, count),
                "l_comment": draw.text(count, 3),
            }
        ),
    )


def _phones(draw, rows):
    parts = [draw.whole(low, high, rows) for low, high in ((10, 34), (100, 999), (1000, 9999))]
    return pc.binary_join_element_wise(*(pa.array(each).cast(pa.string()) for each in parts), "-")


def _suppliers_of(part, number, suppliers):
    """Return one of the four suppliers of a part."""
    return (part + number * (suppliers // 4 + (part - 1) // suppliers)) % suppliers + 1


# fmt: off
QUERIES: dict[int, str] = {
    1: """
SELECT l_returnflag, l_linestatus,
       sum(l_quantity) AS sum_qty,
       sum(l_extendedprice) AS sum_base_price,
       sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
       sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
       avg(l_quantity) AS avg_qty,
       avg(l_extendedprice) AS avg_price,
       avg(l_discount) AS avg_disc,
       count(*) AS count_order
FROM {lineitem}
WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY
GROUP BY l_returnflag, l_linestatus
ORDER BY l_returnflag, l_linestatus""",
    2: """
SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
FROM {part}, {supplier}, {partsupp}, {nation}, {region}
WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size > 15 AND p_size < 30
  AND p_type LIKE '%BRASS' AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
  AND r_name = 'EUROPE'
  AND ps_supplycost = (
    SELECT min(ps_supplycost) FROM {partsupp}, {supplier}, {nation}, {region}
    WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND s_nationkey = n_nationkey
      AND n_regionkey = r_regionkey AND r_name = 'EUROPE')
ORDER BY s_acctbal DESC, n_name, s_name, p_partkey
LIMIT 100""",
    3: """
SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
FROM {customer}, {orders}, {lineitem}
WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
  AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
GROUP BY l_orderkey, o_orderdate, o_shippriority
ORDER BY revenue DESC, o_orderdate, l_orderkey
LIMIT 10""",
    4: """
SELECT o_orderpriority, count(*) AS order_count
FROM {orders}
WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-07-01' + INTERVAL '3' MONTH
  AND EXISTS (SELECT * FROM {lineitem}
              WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority
ORDER BY o_orderpriority""",
    5: """
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM {customer}, {orders}, {lineitem}, {supplier}, {nation}, {region}
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
  AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
  AND r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01'
  AND o_orderdate < DATE '1994-01-01' + INTERVAL '1' YEAR
GROUP BY n_name
ORDER BY revenue DESC""",
    6: """
SELECT sum(l_extendedprice * l_discount) AS revenue
FROM {lineitem}
WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1994-01-01' + INTERVAL '1' YEAR
  AND l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND l_quantity < 24""",
    7: """
SELECT supp_nation, cust_nation, l_year, sum(volume) AS revenue
FROM (
  SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation,
         extract(year FROM l_shipdate) AS l_year, l_extendedprice * (1 - l_discount) AS volume
  FROM {supplier}, {lineitem}, {orders}, {customer}, {nation} n1, {nation} n2
  WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
    AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
    AND ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY')
      OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE'))
    AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31') AS shipping
GROUP BY supp_nation, cust_nation, l_year
ORDER BY supp_nation, cust_nation, l_year""",
    8: """
SELECT o_year, sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) AS mkt_share
FROM (
  SELECT extract(year FROM o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume,
         n2.n_name AS nation
  FROM {part}, {supplier}, {lineitem}, {orders}, {customer}, {nation} n1, {nation} n2, {region}
  WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey
    AND o_custkey = c_custkey AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey
    AND r_name = 'AMERICA' AND s_nationkey = n2.n_nationkey
    AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
    AND p_type LIKE 'ECONOMY%') AS all_nations
GROUP BY o_year
ORDER BY o_year""",
    9: """
SELECT nation, o_year, sum(amount) AS sum_profit
FROM (
  SELECT n_name AS nation, extract(year FROM o_orderdate) AS o_year,
         l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
  FROM {part}, {supplier}, {lineitem}, {partsupp}, {orders}, {nation}
  WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey
    AND p_partkey = l_partkey AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey
    AND p_name LIKE '%green%') AS profit
GROUP BY nation, o_year
ORDER BY nation, o_year DESC""",
    10: """
SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name,
       c_address, c_phone, c_comment
FROM {customer}, {orders}, {lineitem}, {nation}
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= DATE '1993-10-01'
  AND o_orderdate < DATE '1993-10-01' + INTERVAL '3' MONTH AND l_returnflag = 'R'
  AND c_nationkey = n_nationkey
GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
ORDER BY revenue DESC, c_custkey
LIMIT 20""",
    11: """
SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value
FROM {partsupp}, {supplier}, {nation}
WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY'
GROUP BY ps_partkey
HAVING sum(ps_supplycost * ps_availqty) > (
  SELECT sum(ps_supplycost * ps_availqty) * 0.0001
  FROM {partsupp}, {supplier}, {nation}
  WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY')
ORDER BY value DESC, ps_partkey""",
    12: """
SELECT l_shipmode,
       sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH'
                THEN 1 ELSE 0 END) AS high_line_count,
       sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH'
                THEN 1 ELSE 0 END) AS low_line_count
FROM {orders}, {lineitem}
WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate
  AND l_shipdate < l_commitdate AND l_receiptdate >= DATE '1994-01-01'
  AND l_receiptdate < DATE '1994-01-01' + INTERVAL '1' YEAR
GROUP BY l_shipmode
ORDER BY l_shipmode""",
    13: """
SELECT c_count, count(*) AS custdist
FROM (
  SELECT c_custkey, count(o_orderkey)
  FROM {customer} LEFT OUTER JOIN {orders}
    ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%'
  GROUP BY c_custkey) AS c_orders (c_custkey, c_count)
GROUP BY c_count
ORDER BY custdist DESC, c_count DESC""",
    14: """
SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount)
                         ELSE 0 END) / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue
FROM {lineitem}, {part}
WHERE l_partkey = p_partkey AND l_shipdate >= DATE '1995-09-01'
  AND l_shipdate < DATE '1995-09-01' + INTERVAL '1' MONTH""",
    15: """
WITH revenue AS (
  SELECT l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total_revenue
  FROM {lineitem}
  WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-01-01' + INTERVAL '3' MONTH
  GROUP BY l_suppkey)
SELECT s_suppkey, s_name, s_address, s_phone, total_revenue
FROM {supplier}, revenue
WHERE s_suppkey = supplier_no
  AND total_revenue = (SELECT max(total_revenue) FROM revenue)
ORDER BY s_suppkey""",
    16: """
SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS supplier_cnt
FROM {partsupp}, {part}
WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%'
  AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
  AND ps_suppkey NOT IN (
    SELECT s_suppkey FROM {supplier} WHERE s_comment LIKE '%Customer%Complaints%')
GROUP BY p_brand, p_type, p_size
ORDER BY supplier_cnt DESC, p_brand, p_type, p_size""",
    17: """
SELECT sum(l_extendedprice) / 7.0 AS avg_yearly
FROM {lineitem}, {part}
WHERE p_partkey = l_partkey AND p_brand LIKE 'Brand#2%' AND p_container LIKE 'MED%'
  AND l_quantity < (SELECT 0.2 * avg(l_quantity) FROM {lineitem} WHERE l_partkey = p_partkey)""",
    18: """
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
FROM {customer}, {orders}, {lineitem}
WHERE o_orderkey IN (
    SELECT l_orderkey FROM {lineitem} GROUP BY l_orderkey HAVING sum(l_quantity) > 240)
  AND c_custkey = o_custkey AND o_orderkey = l_orderkey
GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
ORDER BY o_totalprice DESC, o_orderdate, o_orderkey
LIMIT 100""",
    19: """
SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM {lineitem}, {part}
WHERE (p_partkey = l_partkey AND p_brand LIKE 'Brand#1%'
    AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
    AND l_quantity >= 1 AND l_quantity <= 1 + 10 AND p_size BETWEEN 1 AND 5
    AND l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'DELIVER IN PERSON')
  OR (p_partkey = l_partkey AND p_brand LIKE 'Brand#2%'
    AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
    AND l_quantity >= 10 AND l_quantity <= 10 + 10 AND p_size BETWEEN 1 AND 10
    AND l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'DELIVER IN PERSON')
  OR (p_partkey = l_partkey AND p_brand LIKE 'Brand#3%'
    AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
    AND l_quantity >= 20 AND l_quantity <= 20 + 10 AND p_size BETWEEN 1 AND 15
    AND l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'DELIVER IN PERSON')""",
    20: """
SELECT s_name, s_address
FROM {supplier}, {nation}
WHERE s_suppkey IN (
    SELECT ps_suppkey FROM {partsupp}
    WHERE ps_partkey IN (SELECT p_partkey FROM {part} WHERE p_name LIKE 'forest%')
      AND ps_availqty > (
        SELECT 0.5 * sum(l_quantity) FROM {lineitem}
        WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey
          AND l_shipdate >= DATE '1994-01-01'
          AND l_shipdate < DATE '1994-01-01' + INTERVAL '1' YEAR))
  AND s_nationkey = n_nationkey AND n_name IN ('CANADA', 'FRANCE', 'JAPAN', 'PERU')
ORDER BY s_name""",
    21: """
SELECT s_name, count(*) AS numwait
FROM {supplier}, {lineitem} l1, {orders}, {nation}
WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F'
  AND l1.l_receiptdate > l1.l_commitdate
  AND EXISTS (SELECT * FROM {lineitem} l2
              WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)
  AND NOT EXISTS (SELECT * FROM {lineitem} l3
                  WHERE l3.l_orderkey = l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey
                    AND l3.l_receiptdate > l3.l_commitdate)
  AND s_nationkey = n_nationkey AND n_name IN ('SAUDI ARABIA', 'FRANCE', 'PERU')
GROUP BY s_name
ORDER BY numwait DESC, s_name
LIMIT 100""",
    22: """
SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal
FROM (
  SELECT substring(c_phone, 1, 2) AS cntrycode, c_acctbal
  FROM {customer}
  WHERE substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17')
    AND c_acctbal > (
      SELECT avg(c_acctbal) FROM {customer}
      WHERE c_acctbal > 0.00
        AND substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17'))
    AND NOT EXISTS (SELECT * FROM {orders} WHERE o_custkey = c_custkey)) AS custsale
GROUP BY cntrycode
ORDER BY cntrycode""",
}
# fmt: on
