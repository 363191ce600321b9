"""Queries over the tables of `random_queries`, one per line, that are difficult to parse.

ONE and TWO stand for the tables. Those of the first part were read wrongly once.
"""

# ruff: noqa: E501

ONCE_WRONG = r"""
SELECT a.id, a.n FROM ONE a ANTI JOIN TWO b ON a.n=b.n AND a.id>3
SELECT any(n = 3) FROM ONE LIMIT 1
SELECT x.* FROM (ONE) AS x WHERE x.id = 3
(SELECT id FROM ONE) ORDER BY n, id LIMIT 3
SELECT id FROM ONE WHERE name = 'lancelet_0' OR name = 'b'
SELECT 'lancelet_0', count(*) FROM ONE lancelet_1 WHERE n = 1
SELECT lancelet_0.id FROM TWO AS lancelet_0, ONE AS lancelet_1 WHERE lancelet_0.id = lancelet_1.id AND lancelet_1.n = 1
SELECT count(*) FROM ONE WHERE local NOT IN ('2024-02-29 12:00:00.0', '2024-02-29 11:00:00.500')
SELECT id FROM ONE TABLESAMPLE (100 PERCENT) WHERE n = 1
"""

ALL = r"""
SELECT a.id, a.n FROM ONE a SEMI JOIN TWO b ON a.n=b.n AND a.id>3
SELECT any(ok) FROM ONE LIMIT 1
SELECT x.id FROM (ONE) AS x WHERE x.id = 3
SELECT q.id FROM (ONE a) AS q WHERE q.id = 3
SELECT id FROM (SELECT id, n FROM ONE) ORDER BY n
SELECT id FROM ONE WHERE name = 'a' 'bc'
SELECT id FROM ONE WHERE name = "b"
SELECT id FROM ONE WHERE name = r'b'
SELECT id IS DISTINCT FROM n FROM ONE
SELECT extract(year FROM Day) y, count(*) FROM ONE GROUP BY 1
SELECT * EXCEPT (items, s) FROM ONE WHERE id < 3
SELECT a.* EXCEPT (items, s), b.id FROM ONE a JOIN TWO b USING (n)
SELECT * FROM ONE a NATURAL JOIN (SELECT id, n FROM TWO) b
SELECT id, t.i FROM ONE LATERAL VIEW explode(items) t AS i WHERE id > 2
SELECT id, t.i FROM ONE LATERAL VIEW OUTER explode(items) t AS i WHERE i IS NULL AND id > 2
SELECT id, t.i FROM ONE, LATERAL explode(items) AS t(i) WHERE n = 1
SELECT id, t.i FROM ONE LEFT JOIN LATERAL explode(items) AS t(i) ON true WHERE n = 1
SELECT a.id, l.m FROM ONE a, LATERAL (SELECT max(b.id) m FROM TWO b WHERE b.n = a.n) l
SELECT a.id, l.m FROM ONE a LEFT JOIN LATERAL (SELECT b.id m FROM TWO b WHERE b.n = a.n AND b.id > 3) l ON l.m > 4 WHERE a.id < 5
SELECT * FROM (SELECT id, n, tiny FROM ONE) PIVOT (sum(id) FOR n IN (0, 1, 2))
SELECT * FROM (SELECT id, n, tiny FROM ONE) UNPIVOT (v FOR k IN (n, tiny))
SELECT k, v, id FROM (SELECT id, n, tiny FROM ONE) UNPIVOT INCLUDE NULLS (v FOR k IN (n AS u, tiny AS w)) WHERE id > 3
SELECT * FROM ONE PIVOT (count(price) FOR n IN (0, 1, 2)) WHERE id = 3
SELECT n, tiny, grouping(n), grouping_id(n, tiny), sum(id) FROM ONE GROUP BY ROLLUP (n, tiny)
SELECT n, tiny, sum(id) FROM ONE GROUP BY CUBE (n, tiny) HAVING sum(id) > 3
SELECT n, tiny, sum(id) FROM ONE GROUP BY GROUPING SETS ((n), (tiny), ())
SELECT n, tiny, sum(id) FROM ONE GROUP BY n, tiny WITH ROLLUP
SELECT n, tiny, sum(id) FROM ONE GROUP BY ALL
SELECT n AS k, count(*) c FROM ONE GROUP BY k ORDER BY ALL
SELECT n tiny, count(*) id FROM ONE GROUP BY n HAVING id > 3 ORDER BY tiny
SELECT n tiny, max(id) id FROM ONE GROUP BY n ORDER BY id
SELECT n, count(*) FROM ONE GROUP BY n HAVING max(id) > 5 ORDER BY min(id), n
SELECT n + 1, count(*) FROM ONE GROUP BY n + 1
SELECT n + 1, count(*) FROM ONE GROUP BY n
SELECT count(*) FROM ONE HAVING count(*) > 100
SELECT 1 FROM ONE HAVING count(*) > 10
SELECT count(*), count(1), count(NULL), count('x'), count(n, id), count(DISTINCT n, id) FROM ONE
SELECT sum(DISTINCT n), avg(DISTINCT id), count(DISTINCT name) FROM ONE
SELECT max(s), min(s.a), max(items) FROM ONE
SELECT try_sum(n), try_avg(price), mean(id), sum(n) OVER () FROM ONE GROUP BY n
SELECT id, rank() OVER (PARTITION BY n ORDER BY id) r, sum(id) OVER (PARTITION BY n ORDER BY id, tiny ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM ONE WHERE n < 3 AND tiny IS NOT NULL
SELECT id, n FROM ONE QUALIFY row_number() OVER (PARTITION BY n ORDER BY id DESC, name, x) = 1
SELECT sum(count(*)) OVER () FROM ONE GROUP BY n
SELECT n, sum(sum(id)) OVER (ORDER BY n) FROM ONE GROUP BY n
SELECT n, rank() OVER w FROM ONE WHERE id > 1 WINDOW w AS (PARTITION BY tiny ORDER BY n)
SELECT id FROM ONE INTERSECT SELECT id FROM TWO WHERE n = 1
SELECT id FROM ONE EXCEPT SELECT id FROM TWO WHERE n = 1
SELECT id FROM ONE MINUS ALL SELECT id FROM TWO
SELECT id FROM ONE WHERE id > 3 UNION SELECT n FROM TWO WHERE n > 1 ORDER BY id LIMIT 3
WITH n AS (SELECT id AS n FROM ONE), id AS (SELECT n FROM n WHERE n > 3) SELECT id.n FROM id
WITH c AS (SELECT n, count(*) k FROM ONE GROUP BY n) SELECT x.n, y.k FROM c x JOIN c y ON x.n = y.n WHERE x.k > 2
WITH c(u, v) AS (SELECT n, id FROM ONE) SELECT u FROM c WHERE v = 3
WITH RECURSIVE r(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM r WHERE k < 3) SELECT r.k, a.id FROM r JOIN ONE a ON a.n = r.k
WITH RECURSIVE r(k) AS (SELECT min(id) FROM ONE UNION ALL SELECT r.k + 1 FROM r JOIN TWO b ON b.id = r.k AND b.n = 1 WHERE r.k < 3) SELECT count(*) > 0 FROM r
SELECT u.q FROM ONE AS u(q, w) WHERE w = 1
SELECT q FROM ONE AS u(q, w, e, r, t, y, i, o, p, aa, bb, cc, dd, ee) WHERE w = 1
SELECT (SELECT max(id) FROM TWO b WHERE b.n = a.n) m, a.id FROM ONE a WHERE a.id > (SELECT avg(id) FROM TWO)
SELECT id FROM ONE WHERE (id, n) IN (SELECT id, n FROM TWO)
SELECT id FROM ONE WHERE id NOT IN (SELECT n FROM TWO WHERE n IS NOT NULL)
SELECT id FROM ONE WHERE id NOT IN (SELECT n FROM TWO)
SELECT id FROM ONE o WHERE EXISTS (SELECT 1 FROM TWO WHERE n = o.n AND id = 3)
SELECT id FROM ONE o WHERE EXISTS (SELECT * FROM TWO o WHERE o.n = 1)
SELECT id FROM ONE id WHERE id.id = 3 AND EXISTS (SELECT 1 FROM TWO n WHERE n.n = id.n)
SELECT s.a, s.b FROM ONE s WHERE s.a = 1
SELECT s.s.a FROM ONE s WHERE s.s.a = 1 AND s.id > 2
SELECT n.id FROM ONE n WHERE n = 1
SELECT id FROM ONE WHERE s.a = 1 AND s.b = 'x'
SELECT named_struct('p', id).p, map('k', n)['k'], items[0], s['a'] FROM ONE WHERE n = 1
SELECT transform(items, id -> id + 1), filter(items, n -> n > 1), exists(items, i -> i = id) FROM ONE WHERE exists(items, id -> id = 1)
SELECT aggregate(items, 0, (acc, n) -> acc + coalesce(n, 0)) FROM ONE WHERE tiny = 1
SELECT CASE WHEN n > 1 THEN 'x' WHEN n IS NULL THEN name ELSE cast(Day AS STRING) END FROM ONE WHERE CASE WHEN n = 1 THEN true ELSE ok END
SELECT CASE n WHEN 1 THEN id ELSE tiny END, if(n = 1, id, NULL), nvl(n, id), nullif(n, 1), decode(n, 1, 'a', 'b') FROM ONE
SELECT name || '-' || n, Day + INTERVAL 1 DAY, date_add(Day, 3), at - INTERVAL '1' HOUR, Day - DATE '2024-01-01', datediff(Day, DATE '2024-01-01') FROM ONE
SELECT count(*) FROM ONE WHERE Day BETWEEN DATE '2024-02-28' AND DATE '2024-02-28' + INTERVAL 30 DAYS
SELECT count(*) FROM ONE WHERE Day BETWEEN cast('2024-02-28' AS DATE) AND (cast('2024-02-28' AS DATE) + INTERVAL 30 days)
SELECT count(*) FROM ONE WHERE Day > date_sub(DATE '2024-03-01', 1)
SELECT count(*) FROM ONE WHERE at NOT IN ('2024-02-29 12:00:00.0')
SELECT count(*) FROM ONE WHERE Day NOT IN ('2024-02-29', '2024-2-28')
SELECT count(*) FROM ONE WHERE name NOT IN ('b', NULL)
SELECT count(*) FROM ONE WHERE name IN ('b', NULL) OR n IN (1, 2.0)
SELECT count(*) FROM ONE WHERE NOT (n = 1 OR name LIKE 'a%')
SELECT count(*) FROM ONE WHERE name LIKE 'a\%' OR name LIKE '%\''
SELECT count(*) FROM ONE WHERE name LIKE 'a!%' ESCAPE '!'
SELECT count(*) FROM ONE WHERE name ILIKE 'B%' OR name RLIKE '^a' OR name LIKE ANY ('a%', 'b%')
SELECT count(*) FROM ONE WHERE name NOT LIKE ALL ('a%', 'b%')
SELECT count(*) FROM ONE WHERE name LIKE '%'
SELECT count(*) FROM ONE WHERE n = 1 AND rand() >= 0
SELECT /*+ BROADCAST(b) */ a.id FROM ONE a JOIN TWO b ON a.n = b.n -- a comment; with 'quote
SELECT a.id /* nested /* comment */ FROM */ FROM ONE a WHERE a.n = 1
SELECT count(*) FROM (SELECT id FROM ONE WHERE n = 1 LIMIT 3)
SELECT count(*) FROM (SELECT explode(items) FROM ONE LIMIT 20)
SELECT count(*) FROM (SELECT stack(2, id, n) FROM ONE LIMIT 20)
SELECT count(*) FROM (SELECT id FROM ONE LIMIT 100 OFFSET 60)
SELECT count(*) FROM (SELECT id FROM ONE OFFSET 60)
SELECT count(*) FROM (SELECT DISTINCT n FROM ONE LIMIT 3)
SELECT count(*) FROM (SELECT n FROM ONE WHERE n IS NULL LIMIT 1 + 1)
FROM ONE SELECT id WHERE n = 1
FROM ONE |> WHERE n = 1 |> AGGREGATE count(*) AS c GROUP BY tiny
TABLE TWO
SELECT * FROM VALUES (1, 'x'), (2, 'y') AS v(id, name) JOIN ONE a USING (id)
SELECT v.id, a.n FROM (VALUES (1), (2)) v(id) LEFT JOIN ONE a ON a.id = v.id AND a.n = 1
SELECT a.id, b.id FROM ONE a LEFT JOIN TWO b ON a.n = b.n WHERE b.id IS NULL AND a.id = 3
SELECT a.id, b.id FROM ONE a FULL OUTER JOIN TWO b USING (n) WHERE n = 1
SELECT n, a.id, b.id FROM ONE a RIGHT JOIN TWO b USING (n) WHERE n = 1 AND a.id IS NULL
SELECT a.id FROM ONE a LEFT JOIN TWO b ON a.n = b.n LEFT JOIN TWO c ON b.tiny = c.tiny AND b.id = 3 WHERE a.id > 3
SELECT a.id, c.id FROM ONE a LEFT JOIN (TWO b JOIN TWO c ON b.n = c.n AND c.id = 3) ON a.n = b.n
SELECT a.id, q.m FROM ONE a LEFT JOIN (SELECT n, max(id) m FROM TWO WHERE id < 5 GROUP BY n) q ON a.n = q.n WHERE a.tiny = 1
SELECT a.id FROM ONE a, TWO b, TWO c WHERE a.id = b.id AND b.n = c.n AND c.tiny = 1 AND a.n = 1
SELECT a.id FROM ONE a CROSS JOIN TWO b WHERE a.id = 1 AND b.id = 2
SELECT `odd name`, `ODD NAME` FROM ONE WHERE `odd name` = 1
SELECT A.ID, a.NaMe FROM ONE A WHERE a.N = 1
SELECT id AS `select`, n AS `a.b` FROM ONE WHERE n = 1 ORDER BY `select`, `a.b`
SELECT `select` FROM (SELECT id `select` FROM ONE) WHERE `select` = 3
SELECT id x, x + 1 y, y FROM ONE WHERE n = 1
SELECT id AS k1, k1 + 1 AS k2 FROM ONE WHERE n = 1
SELECT -n AS n FROM ONE WHERE n > 0 ORDER BY n
SELECT DISTINCT n, ok FROM ONE WHERE tiny IS NOT NULL
SELECT collect_set(n), array_agg(tiny), max_by(id, x), first(n) FROM (SELECT * FROM ONE ORDER BY id) WHERE id = -1
SELECT listagg(name, ',') WITHIN GROUP (ORDER BY name) FROM ONE WHERE n = 1
SELECT count(*) FILTER (WHERE n = 1), sum(id) FILTER (WHERE ok) FROM ONE WHERE tiny > 0
SELECT count_if(n = 1), bool_and(ok), every(ok), some(ok), bit_or(n) FROM ONE
SELECT avg(price), sum(price * (1 - price)), sum(price) / count(*), avg(price * 2), round(sum(price), 1) FROM ONE
SELECT sum(price + 1), sum(2 * price), sum(-price), sum(price - n), avg(n), avg(tiny) FROM ONE WHERE id > 2
SELECT n, sum(cast(price AS double)) > 0 FROM ONE GROUP BY n
SELECT sum(id * 2), sum(n + 1L), sum(cast(n AS bigint)) FROM ONE
SELECT max(at), min(local), max(Day), min(name), max(ok) FROM ONE WHERE id IS NOT NULL
SELECT hour(at), date_trunc('HOUR', at), to_date(at), count(*) FROM ONE GROUP BY ALL
SELECT at, count(*) FROM ONE WHERE at > TIMESTAMP '2024-02-29 00:00:00' GROUP BY at
SELECT at, cast(at AS STRING), cast(local AS STRING) FROM ONE WHERE at = TIMESTAMP '2024-02-29 12:00:00 America/New_York'
SELECT id FROM ONE WHERE local > TIMESTAMP '2024-02-29 12:00:00'
SELECT id FROM ONE WHERE Day = TIMESTAMP '2024-02-29 00:00:00'
SELECT id FROM ONE WHERE Day > '2024-02-28 12:00:00'
SELECT id FROM ONE WHERE n = '1'
SELECT id FROM ONE WHERE name = 1
SELECT id FROM ONE WHERE name > 'a' AND name <= 'b'
SELECT id FROM ONE WHERE n / 0 = 1
SELECT id FROM ONE WHERE id = 3 AND 1 / n > 0
SELECT cast(name AS INT) FROM ONE WHERE name = 'x9'
SELECT a.id FROM ONE a JOIN TWO b ON a.n = b.n WHERE id = 3
SELECT count(*) FROM ONE WHERE sum(n) > 1
SELECT * FROM ONE JOIN TWO
SELECT id FROM ONE GROUP BY n
SELECT * FROM range(5) r JOIN ONE a ON r.id = a.id
SELECT a.id, count(*) OVER (PARTITION BY b.n) FROM ONE a LEFT JOIN TWO b ON a.id = b.id AND b.n > 1 WHERE a.n > 0 OR b.n > 2
SELECT * FROM (SELECT n, id FROM ONE WHERE id = 3) x FULL JOIN (SELECT n m FROM TWO WHERE n = 1) y ON x.n = y.m
SELECT current_date() > Day, date_format(Day, 'yyyy'), user IS NOT NULL FROM ONE WHERE n = 1
SELECT sum(n), n FROM ONE GROUP BY n ORDER BY sum(n), n LIMIT 2
SELECT sum(n) AS n FROM ONE GROUP BY n
SELECT sum(n) AS n, max(tiny) FROM ONE HAVING sum(n) > 1
SELECT 1 AS c FROM ONE WHERE EXISTS (SELECT count(*) FROM TWO WHERE id = 12345)
SELECT id FROM ONE WHERE n = (SELECT max(n) FROM TWO WHERE tiny = 2)
SELECT id FROM ONE WHERE n IN (SELECT max(n) FROM TWO GROUP BY tiny)
SELECT t.id FROM ONE AS t WHERE t.id IN (SELECT t.id FROM TWO AS t WHERE t.n = 1)
SELECT count(*) c FROM ONE GROUP BY n ORDER BY c DESC, n LIMIT 1
SELECT n, count(*) FROM ONE WHERE ok GROUP BY n
SELECT n, count(*) FROM ONE WHERE NOT ok AND x > 0 GROUP BY n
SELECT n, count(*) FROM ONE WHERE x = double('NaN') GROUP BY n
SELECT count(*) FROM ONE WHERE x <> 0.5 AND f <= 2
SELECT count(*) FROM ONE WHERE x IN (0.5, 2) OR f = cast(1.1 AS FLOAT)
SELECT count(*) FROM ONE WHERE x = -0.0
SELECT x, count(*) FROM ONE GROUP BY x
SELECT f, max(x), min(f) FROM ONE GROUP BY f
"""
