"""TPC-DS at a scale of tests: rows with many nulls, and queries by the published templates.

Together the queries use what the benchmark uses of SQL: tables of expressions used several times,
correlated and scalar subqueries, ROLLUP, GROUPING SETS, window functions, INTERSECT and EXCEPT,
outer joins, CASE, texts put together, days and intervals.
"""

# ruff: noqa: E501, ISC004

import numpy as np
import pyarrow as pa

SIZES = {
    "date_dim": 1100,
    "time_dim": 200,
    "item": 60,
    "customer": 80,
    "customer_address": 60,
    "customer_demographics": 70,
    "household_demographics": 40,
    "income_band": 20,
    "store": 6,
    "warehouse": 4,
    "promotion": 12,
    "reason": 8,
    "ship_mode": 6,
    "call_center": 4,
    "catalog_page": 8,
    "web_site": 4,
    "web_page": 6,
    "inventory": 3000,
    "store_sales": 2500,
    "store_returns": 500,
    "catalog_sales": 1500,
    "catalog_returns": 300,
    "web_sales": 1200,
    "web_returns": 250,
}
_PRICES = (
    "quantity:0..60 wholesale_cost:$ list_price:$ sales_price:$ ext_discount_amt:$ "
    "ext_sales_price:$ ext_wholesale_cost:$ ext_list_price:$ ext_tax:$ coupon_amt:$ net_paid:$ "
    "net_paid_inc_tax:$ net_profit:$"
)
_RETURNED = (
    "return_quantity:0..20 return_amt:$ return_tax:$ return_amt_inc_tax:$ fee:$ "
    "return_ship_cost:$ refunded_cash:$ reversed_charge:$ net_loss:$"
)
_SHIPPED = "ext_ship_cost:$ net_paid_inc_ship:$"
_WHO = "bill_customer_sk>customer bill_cdemo_sk>customer_demographics bill_addr_sk>customer_address"
COLUMNS = {
    "time_dim": ("t", "hour:0..23 minute:0..59 time:0..86399 meal_time=breakfast,lunch,dinner"),
    "item": (
        "i",
        "item_desc=ab,cd,ef,gh current_price:$ wholesale_cost:$ brand_id:1..9 class_id:1..5 "
        "category_id:1..4 manufact_id:1..9 manager_id:1..6 brand=one,two,three,four "
        "class=pants,rock,shirts category=Books,Music,Sports,Women manufact=m1,m2,m3 "
        "size=small,medium,large,petite color=red,blue,slate,pale units=Oz,Lb,Each,Ton "
        "product_name=pa,pb,pc,pd",
    ),
    "customer": (
        "c",
        "current_cdemo_sk>customer_demographics current_hdemo_sk>household_demographics "
        "current_addr_sk>customer_address first_sales_date_sk>date_dim salutation=Mr.,Ms. "
        "first_name=Ann,Bob,Cid last_name=Low,Ray,Fox preferred_cust_flag=Y,N birth_day:1..28 "
        "birth_month:1..12 birth_year:1930..1990 birth_country=CHILE,PERU,GHANA login=x "
        "email_address=a@b",
    ),
    "customer_address": (
        "ca",
        "street_number=1,2 street_name=Oak,Elm city=Fairview,Midway,Salem county=Ash,Bay,Clay "
        "state=TX,OH,CA,GA,TN zip=85669,86197,24128,76232,11111 country=US "
        "gmt_offset:-6..-5 location_type=condo,apartment",
    ),
    "customer_demographics": (
        "cd",
        "gender=M,F marital_status=M,S,D,W education_status=College,Primary,Unknown "
        "purchase_estimate:1..9 credit_rating=Good,Low dep_count:0..4 dep_employed_count:0..3 "
        "dep_college_count:0..3",
    ),
    "household_demographics": (
        "hd",
        "income_band_sk>income_band buy_potential=>10000,Unknown,0-500 dep_count:0..9 "
        "vehicle_count:-1..4",
    ),
    "income_band": ("ib", "lower_bound:0..40000 upper_bound:20000..70000"),
    "store": (
        "s",
        "store_name=ese,ought,able number_employees:200..300 city=Fairview,Midway county=Ash,Bay "
        "state=TN,OH gmt_offset:-6..-5 zip=85669,24128 market_id:1..9 company_id:1..2 "
        "company_name=U",
    ),
    "warehouse": (
        "w",
        "warehouse_name=Bad,Good,Far warehouse_sq_ft:90..900 state=TN,OH city=A "
        "county=Ash country=US",
    ),
    "promotion": ("p", "channel_email=Y,N channel_event=Y,N channel_dmail=Y,N channel_tv=Y,N"),
    "reason": ("r", "reason_desc=dull,late,wrong"),
    "ship_mode": ("sm", "type=EXPRESS,LIBRARY,NEXT carrier=DHL,ZEUS"),
    "call_center": ("cc", "name=Mid,North county=Ash,Bay manager=Bob,Ann call_center_id=AA,BB"),
    "catalog_page": ("cp", "catalog_page_id=P1,P2,P3"),
    "web_site": ("web", "site_id=S1,S2 name=site_0,site_1 company_name=pri,able"),
    "web_page": ("wp", "char_count:5000..5300"),
    "inventory": (
        "inv",
        "date_sk>date_dim item_sk>item warehouse_sk>warehouse quantity_on_hand:0..900",
    ),
    "store_sales": (
        "ss",
        "sold_date_sk>date_dim sold_time_sk>time_dim item_sk>item customer_sk>customer "
        "cdemo_sk>customer_demographics hdemo_sk>household_demographics addr_sk>customer_address "
        f"store_sk>store promo_sk>promotion ticket_number:1..400 {_PRICES}",
    ),
    "store_returns": (
        "sr",
        "returned_date_sk>date_dim item_sk>item customer_sk>customer cdemo_sk>customer_demographics "
        f"store_sk>store reason_sk>reason ticket_number:1..400 {_RETURNED}",
    ),
    "catalog_sales": (
        "cs",
        "sold_date_sk>date_dim ship_date_sk>date_dim sold_time_sk>time_dim item_sk>item "
        f"{_WHO} bill_hdemo_sk>household_demographics "
        "ship_customer_sk>customer ship_addr_sk>customer_address call_center_sk>call_center "
        "catalog_page_sk>catalog_page ship_mode_sk>ship_mode warehouse_sk>warehouse "
        f"promo_sk>promotion order_number:1..300 {_PRICES} {_SHIPPED}",
    ),
    "catalog_returns": (
        "cr",
        "returned_date_sk>date_dim item_sk>item returning_customer_sk>customer "
        "refunded_customer_sk>customer returning_addr_sk>customer_address "
        "call_center_sk>call_center catalog_page_sk>catalog_page reason_sk>reason "
        f"order_number:1..300 return_amount:$ {_RETURNED} returned_date_sk>date_dim",
    ),
    "web_sales": (
        "ws",
        f"sold_date_sk>date_dim ship_date_sk>date_dim sold_time_sk>time_dim item_sk>item {_WHO} "
        "ship_customer_sk>customer ship_addr_sk>customer_address ship_hdemo_sk>household_demographics "
        "web_page_sk>web_page web_site_sk>web_site "
        "ship_mode_sk>ship_mode warehouse_sk>warehouse promo_sk>promotion order_number:1..250 "
        f"{_PRICES} {_SHIPPED}",
    ),
    "web_returns": (
        "wr",
        "returned_date_sk>date_dim item_sk>item refunded_customer_sk>customer "
        "refunded_cdemo_sk>customer_demographics refunded_addr_sk>customer_address "
        "returning_customer_sk>customer returning_cdemo_sk>customer_demographics "
        f"returning_addr_sk>customer_address web_page_sk>web_page reason_sk>reason "
        f"order_number:1..250 {_RETURNED} returned_date_sk>date_dim",
    ),
}
_KEYS = {"inventory", "store_sales", "store_returns", "catalog_sales", "catalog_returns"}
_KEYS |= {"web_sales", "web_returns"}
MONEY = pa.decimal128(7, 2)


def tables():
    """Yield each table's name and rows."""
    yield "date_dim", _days()
    for number, name in enumerate(COLUMNS):
        prefix, columns = COLUMNS[name]
        draw, rows = np.random.default_rng(number), SIZES[name]
        made = {}
        if name not in _KEYS:
            made[f"{prefix}_{name}_sk" if name not in _SHORT else f"{prefix}_{_SHORT[name]}_sk"] = (
                pa.array(range(1, rows + 1), pa.int32())
            )
            made[f"{prefix}_{_SHORT.get(name, name)}_id"] = pa.array(
                [f"{name[:2].upper()}{each // 2:04}" for each in range(rows)]
            )
        for column in columns.split():
            label, values = _column(draw, rows, column)
            made[f"{prefix}_{label}"] = values
        yield name, pa.table(made)


_SHORT = {
    "time_dim": "time",
    "customer_address": "address",
    "customer_demographics": "demo",
    "household_demographics": "demo",
    "promotion": "promo",
    "web_site": "site",
}


def _column(draw, rows, text):
    for sign in (">", ":", "="):
        name, found, rest = text.partition(sign)
        if found and name.isidentifier():
            break
    missing = draw.random(rows) < 0.06
    if sign == ">":
        return name, pa.array(draw.integers(1, SIZES[rest] + 1, rows), pa.int32(), mask=missing)
    if rest == "$":
        cents = draw.integers(-500 if "profit" in name else 0, 20000, rows)
        texts = [None if gone else f"{each}E-2" for each, gone in zip(cents, missing, strict=True)]
        return name, pa.array(texts).cast(MONEY)
    if sign == ":":
        low, high = map(int, rest.split(".."))
        kind = pa.decimal128(12, 2) if "gmt" in name else pa.int32()
        return name, pa.array(draw.integers(low, high + 1, rows), pa.int32(), mask=missing).cast(
            kind
        )
    few = rest.split(",")
    return name, pa.array([few[each] for each in draw.integers(0, len(few), rows)], mask=missing)


def _days():
    rows = SIZES["date_dim"]
    days = np.datetime64("1999-01-01") + np.arange(rows)
    months = days.astype("datetime64[M]").astype(int)
    number = np.arange(rows)
    names = ["Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday"]
    month = months % 12 + 1
    year = 1970 + months // 12

    def whole(values):
        return pa.array(values, pa.int32())

    return pa.table(
        {
            "d_date_sk": whole(number + 1),
            "d_date_id": [f"D{each}" for each in number],
            "d_date": pa.array(days, pa.date32()),
            "d_month_seq": whole(months),
            "d_week_seq": whole(number // 7),
            "d_year": whole(year),
            "d_dow": whole((number + 5) % 7),
            "d_moy": whole(month),
            "d_dom": whole((days - days.astype("datetime64[M]")).astype(int) + 1),
            "d_qoy": whole((month - 1) // 3 + 1),
            "d_day_name": [names[each % 7] for each in number],
            "d_quarter_name": [f"{y}Q{(m - 1) // 3 + 1}" for y, m in zip(year, month, strict=True)],
        }
    )


QUERIES = {}
QUERIES[1] = """
WITH customer_total_return AS (
  SELECT sr_customer_sk AS ctr_customer_sk, sr_store_sk AS ctr_store_sk,
         sum(sr_return_amt) AS ctr_total_return
  FROM {store_returns}, {date_dim}
  WHERE sr_returned_date_sk = d_date_sk AND d_year = 2000
  GROUP BY sr_customer_sk, sr_store_sk)
SELECT c_customer_id
FROM customer_total_return ctr1, {store}, {customer}
WHERE ctr1.ctr_total_return > (SELECT avg(ctr_total_return) * 1.2
                               FROM customer_total_return ctr2
                               WHERE ctr1.ctr_store_sk = ctr2.ctr_store_sk)
  AND s_store_sk = ctr1.ctr_store_sk AND s_state = 'TN' AND ctr1.ctr_customer_sk = c_customer_sk
ORDER BY c_customer_id LIMIT 100"""
QUERIES[2] = """
WITH wscs AS (
  SELECT sold_date_sk, sales_price
  FROM (SELECT ws_sold_date_sk sold_date_sk, ws_ext_sales_price sales_price FROM {web_sales}
        UNION ALL
        SELECT cs_sold_date_sk sold_date_sk, cs_ext_sales_price sales_price FROM {catalog_sales}) x),
wswscs AS (
  SELECT d_week_seq,
         sum(CASE WHEN d_day_name = 'Sunday' THEN sales_price END) sun_sales,
         sum(CASE WHEN d_day_name = 'Friday' THEN sales_price ELSE NULL END) fri_sales
  FROM wscs, {date_dim} WHERE d_date_sk = sold_date_sk GROUP BY d_week_seq)
SELECT d_week_seq1, round(sun_sales1 / sun_sales2, 2) r1, round(fri_sales1 / fri_sales2, 2)
FROM (SELECT wswscs.d_week_seq d_week_seq1, sun_sales sun_sales1, fri_sales fri_sales1
      FROM wswscs, {date_dim}
      WHERE {date_dim}.d_week_seq = wswscs.d_week_seq AND d_year = 2000) y,
     (SELECT wswscs.d_week_seq d_week_seq2, sun_sales sun_sales2, fri_sales fri_sales2
      FROM wswscs, {date_dim}
      WHERE {date_dim}.d_week_seq = wswscs.d_week_seq AND d_year = 2000 + 1) z
WHERE d_week_seq1 = d_week_seq2 - 53"""
QUERIES[3] = """
SELECT dt.d_year, item.i_brand_id brand_id, item.i_brand brand, sum(ss_ext_sales_price) sum_agg
FROM {date_dim} dt, {store_sales} store_sales, {item} item
WHERE dt.d_date_sk = store_sales.ss_sold_date_sk AND store_sales.ss_item_sk = item.i_item_sk
  AND item.i_manufact_id = 3 AND dt.d_moy = 11
GROUP BY dt.d_year, item.i_brand, item.i_brand_id
ORDER BY dt.d_year, sum_agg DESC, brand_id LIMIT 100"""
QUERIES[5] = """
WITH ssr AS (
  SELECT s_store_id, sum(sales_price) AS sales, sum(profit) AS profit, sum(return_amt) AS returns,
         sum(net_loss) AS profit_loss
  FROM (SELECT ss_store_sk AS store_sk, ss_sold_date_sk AS date_sk,
               ss_ext_sales_price AS sales_price, ss_net_profit AS profit,
               cast(0 AS decimal(7, 2)) AS return_amt, cast(0 AS decimal(7, 2)) AS net_loss
        FROM {store_sales}
        UNION ALL
        SELECT sr_store_sk AS store_sk, sr_returned_date_sk AS date_sk,
               cast(0 AS decimal(7, 2)) AS sales_price, cast(0 AS decimal(7, 2)) AS profit,
               sr_return_amt AS return_amt, sr_net_loss AS net_loss
        FROM {store_returns}) salesreturns, {date_dim}, {store}
  WHERE date_sk = d_date_sk
    AND d_date BETWEEN cast('2000-08-23' AS date) AND (cast('2000-08-23' AS date) + INTERVAL 60 days)
    AND store_sk = s_store_sk
  GROUP BY s_store_id),
wsr AS (
  SELECT web_site_id, sum(sales_price) AS sales, sum(profit) AS profit, sum(return_amt) AS returns,
         sum(net_loss) AS profit_loss
  FROM (SELECT ws_web_site_sk AS wsr_web_site_sk, ws_sold_date_sk AS date_sk,
               ws_ext_sales_price AS sales_price, ws_net_profit AS profit,
               cast(0 AS decimal(7, 2)) AS return_amt, cast(0 AS decimal(7, 2)) AS net_loss
        FROM {web_sales}
        UNION ALL
        SELECT ws_web_site_sk, wr_returned_date_sk, cast(0 AS decimal(7, 2)),
               cast(0 AS decimal(7, 2)), wr_return_amt, wr_net_loss
        FROM {web_returns} LEFT OUTER JOIN {web_sales}
             ON (wr_item_sk = ws_item_sk AND wr_order_number = ws_order_number)) salesreturns,
       {date_dim}, {web_site}
  WHERE date_sk = d_date_sk
    AND d_date BETWEEN cast('2000-08-23' AS date) AND (cast('2000-08-23' AS date) + INTERVAL 60 days)
    AND wsr_web_site_sk = web_site_sk
  GROUP BY web_site_id)
SELECT channel, id, sum(sales) AS sales, sum(returns) AS returns, sum(profit) AS profit
FROM (SELECT 'store channel' AS channel, 'store' || s_store_id AS id, sales, returns,
             (profit - profit_loss) AS profit FROM ssr
      UNION ALL
      SELECT 'web channel' AS channel, 'web_site' || web_site_id AS id, sales, returns,
             (profit - profit_loss) AS profit FROM wsr) x
GROUP BY ROLLUP (channel, id) ORDER BY channel, id LIMIT 100"""
QUERIES[6] = """
SELECT a.ca_state state, count(*) cnt
FROM {customer_address} a, {customer} c, {store_sales} s, {date_dim} d, {item} i
WHERE a.ca_address_sk = c.c_current_addr_sk AND c.c_customer_sk = s.ss_customer_sk
  AND s.ss_sold_date_sk = d.d_date_sk AND s.ss_item_sk = i.i_item_sk
  AND d.d_month_seq = (SELECT DISTINCT (d_month_seq) FROM {date_dim}
                       WHERE d_year = 2000 AND d_moy = 1)
  AND i.i_current_price > 1.2 * (SELECT avg(j.i_current_price) FROM {item} j
                                 WHERE j.i_category = i.i_category)
GROUP BY a.ca_state HAVING count(*) >= 1 ORDER BY cnt, a.ca_state LIMIT 100"""
QUERIES[7] = """
SELECT i_item_id, avg(ss_quantity) agg1, avg(ss_list_price) agg2, avg(ss_coupon_amt) agg3,
       avg(ss_sales_price) agg4
FROM {store_sales}, {customer_demographics}, {date_dim}, {item}, {promotion}
WHERE ss_sold_date_sk = d_date_sk AND ss_item_sk = i_item_sk AND ss_cdemo_sk = cd_demo_sk
  AND ss_promo_sk = p_promo_sk AND cd_gender = 'M' AND cd_marital_status = 'S'
  AND cd_education_status = 'College' AND (p_channel_email = 'N' OR p_channel_event = 'N')
  AND d_year = 2000
GROUP BY i_item_id ORDER BY i_item_id LIMIT 100"""
QUERIES[8] = """
SELECT s_store_name, sum(ss_net_profit)
FROM {store_sales}, {date_dim}, {store},
     (SELECT ca_zip
      FROM (SELECT substr(ca_zip, 1, 5) ca_zip FROM {customer_address}
            WHERE substr(ca_zip, 1, 5) IN ('24128', '76232', '85669', '11111')
            INTERSECT
            SELECT ca_zip
            FROM (SELECT substr(ca_zip, 1, 5) ca_zip, count(*) cnt
                  FROM {customer_address}, {customer}
                  WHERE ca_address_sk = c_current_addr_sk AND c_preferred_cust_flag = 'Y'
                  GROUP BY ca_zip HAVING count(*) > 3) a1) a2) v1
WHERE ss_store_sk = s_store_sk AND ss_sold_date_sk = d_date_sk AND d_qoy = 2 AND d_year = 2000
  AND (substr(s_zip, 1, 2) = substr(v1.ca_zip, 1, 2))
GROUP BY s_store_name ORDER BY s_store_name LIMIT 100"""
QUERIES[9] = """
SELECT CASE WHEN (SELECT count(*) FROM {store_sales} WHERE ss_quantity BETWEEN 1 AND 20) > 700
            THEN (SELECT avg(ss_ext_discount_amt) FROM {store_sales}
                  WHERE ss_quantity BETWEEN 1 AND 20)
            ELSE (SELECT avg(ss_net_paid) FROM {store_sales} WHERE ss_quantity BETWEEN 1 AND 20)
       END bucket1,
       CASE WHEN (SELECT count(*) FROM {store_sales} WHERE ss_quantity BETWEEN 21 AND 40) > 70000
            THEN (SELECT avg(ss_ext_discount_amt) FROM {store_sales}
                  WHERE ss_quantity BETWEEN 21 AND 40)
            ELSE (SELECT avg(ss_net_paid) FROM {store_sales} WHERE ss_quantity BETWEEN 21 AND 40)
       END bucket2
FROM {reason} WHERE r_reason_sk = 1"""
QUERIES[10] = """
SELECT cd_gender, cd_marital_status, count(*) cnt1, cd_purchase_estimate, count(*) cnt2,
       cd_dep_count, count(*) cnt4
FROM {customer} c, {customer_address} ca, {customer_demographics}
WHERE c.c_current_addr_sk = ca.ca_address_sk AND ca_county IN ('Ash', 'Bay')
  AND cd_demo_sk = c.c_current_cdemo_sk
  AND EXISTS (SELECT * FROM {store_sales}, {date_dim}
              WHERE c.c_customer_sk = ss_customer_sk AND ss_sold_date_sk = d_date_sk
                AND d_year = 2000 AND d_moy BETWEEN 1 AND 1 + 3)
  AND (EXISTS (SELECT * FROM {web_sales}, {date_dim}
               WHERE c.c_customer_sk = ws_bill_customer_sk AND ws_sold_date_sk = d_date_sk
                 AND d_year = 2000 AND d_moy BETWEEN 1 AND 1 + 3)
       OR EXISTS (SELECT * FROM {catalog_sales}, {date_dim}
                  WHERE c.c_customer_sk = cs_ship_customer_sk AND cs_sold_date_sk = d_date_sk
                    AND d_year = 2000 AND d_moy BETWEEN 1 AND 1 + 3))
GROUP BY cd_gender, cd_marital_status, cd_purchase_estimate, cd_dep_count
ORDER BY cd_gender, cd_marital_status, cd_purchase_estimate, cd_dep_count LIMIT 100"""
QUERIES[11] = """
WITH year_total AS (
  SELECT c_customer_id customer_id, c_first_name customer_first_name, d_year AS dyear,
         sum(ss_ext_list_price - ss_ext_discount_amt) year_total, 's' sale_type
  FROM {customer}, {store_sales}, {date_dim}
  WHERE c_customer_sk = ss_customer_sk AND ss_sold_date_sk = d_date_sk
  GROUP BY c_customer_id, c_first_name, d_year
  UNION ALL
  SELECT c_customer_id, c_first_name, d_year, sum(ws_ext_list_price - ws_ext_discount_amt), 'w'
  FROM {customer}, {web_sales}, {date_dim}
  WHERE c_customer_sk = ws_bill_customer_sk AND ws_sold_date_sk = d_date_sk
  GROUP BY c_customer_id, c_first_name, d_year)
SELECT t_s_secyear.customer_id, t_s_secyear.customer_first_name
FROM year_total t_s_firstyear, year_total t_s_secyear, year_total t_w_firstyear,
     year_total t_w_secyear
WHERE t_s_secyear.customer_id = t_s_firstyear.customer_id
  AND t_s_firstyear.customer_id = t_w_secyear.customer_id
  AND t_s_firstyear.customer_id = t_w_firstyear.customer_id
  AND t_s_firstyear.sale_type = 's' AND t_w_firstyear.sale_type = 'w'
  AND t_s_secyear.sale_type = 's' AND t_w_secyear.sale_type = 'w'
  AND t_s_firstyear.dyear = 1999 AND t_s_secyear.dyear = 1999 + 1
  AND t_w_firstyear.dyear = 1999 AND t_w_secyear.dyear = 1999 + 1
  AND t_s_firstyear.year_total > 0 AND t_w_firstyear.year_total > 0
  AND CASE WHEN t_w_firstyear.year_total > 0 THEN t_w_secyear.year_total / t_w_firstyear.year_total
           ELSE 0.0 END
    > CASE WHEN t_s_firstyear.year_total > 0 THEN t_s_secyear.year_total / t_s_firstyear.year_total
           ELSE 0.0 END"""
QUERIES[12] = """
SELECT i_item_desc, i_category, i_class, i_current_price, sum(ws_ext_sales_price) AS itemrevenue,
       sum(ws_ext_sales_price) * 100 / sum(sum(ws_ext_sales_price)) OVER (PARTITION BY i_class)
         AS revenueratio
FROM {web_sales}, {item}, {date_dim}
WHERE ws_item_sk = i_item_sk AND i_category IN ('Sports', 'Books')
  AND ws_sold_date_sk = d_date_sk
  AND d_date BETWEEN cast('1999-02-22' AS date) AND (cast('1999-02-22' AS date) + INTERVAL 90 days)
GROUP BY i_item_id, i_item_desc, i_category, i_class, i_current_price
ORDER BY i_category, i_class, i_item_id, i_item_desc, revenueratio"""
QUERIES[13] = """
SELECT avg(ss_quantity), avg(ss_ext_sales_price), avg(ss_ext_wholesale_cost),
       sum(ss_ext_wholesale_cost)
FROM {store_sales}, {store}, {customer_demographics}, {household_demographics},
     {customer_address}, {date_dim}
WHERE s_store_sk = ss_store_sk AND ss_sold_date_sk = d_date_sk AND d_year = 2001
  AND ((ss_hdemo_sk = hd_demo_sk AND cd_demo_sk = ss_cdemo_sk AND cd_marital_status = 'M'
        AND cd_education_status = 'College' AND ss_sales_price BETWEEN 10.00 AND 150.00
        AND hd_dep_count = 3)
    OR (ss_hdemo_sk = hd_demo_sk AND cd_demo_sk = ss_cdemo_sk AND cd_marital_status = 'S'
        AND cd_education_status = 'Primary' AND ss_sales_price BETWEEN 50.00 AND 200.00
        AND hd_dep_count = 1))
  AND ((ss_addr_sk = ca_address_sk AND ca_state IN ('TX', 'OH')
        AND ss_net_profit BETWEEN 0 AND 200)
    OR (ss_addr_sk = ca_address_sk AND ca_state IN ('CA', 'GA')
        AND ss_net_profit BETWEEN 50 AND 300))"""
QUERIES[14] = """
WITH cross_items AS (
  SELECT i_item_sk ss_item_sk
  FROM {item},
    (SELECT iss.i_brand_id brand_id, iss.i_class_id class_id, iss.i_category_id category_id
     FROM {store_sales}, {item} iss, {date_dim} d1
     WHERE ss_item_sk = iss.i_item_sk AND ss_sold_date_sk = d1.d_date_sk
       AND d1.d_year BETWEEN 1999 AND 1999 + 2
     INTERSECT
     SELECT ics.i_brand_id, ics.i_class_id, ics.i_category_id
     FROM {catalog_sales}, {item} ics, {date_dim} d2
     WHERE cs_item_sk = ics.i_item_sk AND cs_sold_date_sk = d2.d_date_sk
       AND d2.d_year BETWEEN 1999 AND 1999 + 2
     INTERSECT
     SELECT iws.i_brand_id, iws.i_class_id, iws.i_category_id
     FROM {web_sales}, {item} iws, {date_dim} d3
     WHERE ws_item_sk = iws.i_item_sk AND ws_sold_date_sk = d3.d_date_sk
       AND d3.d_year BETWEEN 1999 AND 1999 + 2) x
  WHERE i_brand_id = brand_id AND i_class_id = class_id AND i_category_id = category_id),
avg_sales AS (
  SELECT avg(quantity * list_price) average_sales
  FROM (SELECT ss_quantity quantity, ss_list_price list_price FROM {store_sales}, {date_dim}
        WHERE ss_sold_date_sk = d_date_sk AND d_year BETWEEN 1999 AND 2001
        UNION ALL
        SELECT cs_quantity quantity, cs_list_price list_price FROM {catalog_sales}, {date_dim}
        WHERE cs_sold_date_sk = d_date_sk AND d_year BETWEEN 1999 AND 1999 + 2) x)
SELECT channel, i_brand_id, i_class_id, i_category_id, sum(sales), sum(number_sales)
FROM (SELECT 'store' channel, i_brand_id, i_class_id, i_category_id,
             sum(ss_quantity * ss_list_price) sales, count(*) number_sales
      FROM {store_sales}, {item}, {date_dim}
      WHERE ss_item_sk IN (SELECT ss_item_sk FROM cross_items) AND ss_item_sk = i_item_sk
        AND ss_sold_date_sk = d_date_sk AND d_year = 1999 + 2 AND d_moy = 11
      GROUP BY i_brand_id, i_class_id, i_category_id
      HAVING sum(ss_quantity * ss_list_price) > (SELECT average_sales FROM avg_sales)
      UNION ALL
      SELECT 'catalog' channel, i_brand_id, i_class_id, i_category_id,
             sum(cs_quantity * cs_list_price) sales, count(*) number_sales
      FROM {catalog_sales}, {item}, {date_dim}
      WHERE cs_item_sk IN (SELECT ss_item_sk FROM cross_items) AND cs_item_sk = i_item_sk
        AND cs_sold_date_sk = d_date_sk AND d_year = 1999 + 2 AND d_moy = 11
      GROUP BY i_brand_id, i_class_id, i_category_id
      HAVING sum(cs_quantity * cs_list_price) > (SELECT average_sales FROM avg_sales)) y
GROUP BY ROLLUP (channel, i_brand_id, i_class_id, i_category_id)"""
QUERIES[16] = """
SELECT count(DISTINCT cs_order_number) AS `order count`, sum(cs_ext_ship_cost) AS `total shipping`,
       sum(cs_net_profit) AS `total net profit`
FROM {catalog_sales} cs1, {date_dim}, {customer_address}, {call_center}
WHERE d_date BETWEEN '2000-02-01' AND (cast('2000-02-01' AS date) + INTERVAL 300 days)
  AND cs1.cs_ship_date_sk = d_date_sk AND cs1.cs_ship_addr_sk = ca_address_sk
  AND ca_state IN ('GA', 'TX') AND cs1.cs_call_center_sk = cc_call_center_sk
  AND EXISTS (SELECT * FROM {catalog_sales} cs2
              WHERE cs1.cs_order_number = cs2.cs_order_number
                AND cs1.cs_warehouse_sk <> cs2.cs_warehouse_sk)
  AND NOT EXISTS (SELECT * FROM {catalog_returns} cr1
                  WHERE cs1.cs_order_number = cr1.cr_order_number)
ORDER BY count(DISTINCT cs_order_number) LIMIT 100"""
QUERIES[18] = """
SELECT i_item_id, ca_state, ca_county, avg(cast(cs_quantity AS decimal(12, 2))) agg1,
       avg(cast(c_birth_year AS decimal(12, 2))) agg6, avg(cast(cd1.cd_dep_count AS decimal(12, 2)))
FROM {catalog_sales}, {customer_demographics} cd1, {customer_demographics} cd2, {customer},
     {customer_address}, {date_dim}, {item}
WHERE cs_sold_date_sk = d_date_sk AND cs_item_sk = i_item_sk
  AND cs_bill_cdemo_sk = cd1.cd_demo_sk AND cs_bill_customer_sk = c_customer_sk
  AND cd1.cd_gender = 'F' AND c_current_cdemo_sk = cd2.cd_demo_sk
  AND c_current_addr_sk = ca_address_sk AND c_birth_month IN (1, 6, 8, 9, 12, 2) AND d_year = 2000
GROUP BY ROLLUP (i_item_id, ca_state, ca_county)"""
QUERIES[20] = QUERIES[12].replace("web_sales", "catalog_sales").replace("ws_", "cs_")
QUERIES[21] = """
SELECT * FROM (
  SELECT w_warehouse_name, i_item_id,
         sum(CASE WHEN (cast(d_date AS date) < cast('2000-03-11' AS date))
                  THEN inv_quantity_on_hand ELSE 0 END) AS inv_before,
         sum(CASE WHEN (cast(d_date AS date) >= cast('2000-03-11' AS date))
                  THEN inv_quantity_on_hand ELSE 0 END) AS inv_after
  FROM {inventory}, {warehouse}, {item}, {date_dim}
  WHERE i_current_price BETWEEN 0.99 AND 101.49 AND i_item_sk = inv_item_sk
    AND inv_warehouse_sk = w_warehouse_sk AND inv_date_sk = d_date_sk
    AND d_date BETWEEN (cast('2000-03-11' AS date) - INTERVAL 300 days)
                   AND (cast('2000-03-11' AS date) + INTERVAL 300 days)
  GROUP BY w_warehouse_name, i_item_id) x
WHERE (CASE WHEN inv_before > 0 THEN inv_after / inv_before ELSE NULL END)
      BETWEEN 2.0 / 3.0 AND 3.0 / 2.0
ORDER BY w_warehouse_name, i_item_id LIMIT 100"""
QUERIES[22] = """
SELECT i_product_name, i_brand, i_class, i_category, avg(inv_quantity_on_hand) qoh
FROM {inventory}, {date_dim}, {item}
WHERE inv_date_sk = d_date_sk AND inv_item_sk = i_item_sk AND d_month_seq BETWEEN 360 AND 360 + 11
GROUP BY ROLLUP (i_product_name, i_brand, i_class, i_category)"""
QUERIES[23] = """
WITH frequent_ss_items AS (
  SELECT substr(i_item_desc, 1, 30) itemdesc, i_item_sk item_sk, d_date solddate, count(*) cnt
  FROM {store_sales}, {date_dim}, {item}
  WHERE ss_sold_date_sk = d_date_sk AND ss_item_sk = i_item_sk AND d_year IN (2000, 2000 + 1)
  GROUP BY substr(i_item_desc, 1, 30), i_item_sk, d_date HAVING count(*) > 1),
max_store_sales AS (
  SELECT max(csales) tpcds_cmax
  FROM (SELECT c_customer_sk, sum(ss_quantity * ss_sales_price) csales
        FROM {store_sales}, {customer}, {date_dim}
        WHERE ss_customer_sk = c_customer_sk AND ss_sold_date_sk = d_date_sk
          AND d_year IN (2000, 2000 + 1)
        GROUP BY c_customer_sk) x),
best_ss_customer AS (
  SELECT c_customer_sk, sum(ss_quantity * ss_sales_price) ssales
  FROM {store_sales}, {customer} WHERE ss_customer_sk = c_customer_sk
  GROUP BY c_customer_sk
  HAVING sum(ss_quantity * ss_sales_price) > (50 / 100.0) * (SELECT * FROM max_store_sales))
SELECT sum(sales)
FROM (SELECT cs_quantity * cs_list_price sales FROM {catalog_sales}, {date_dim}
      WHERE d_year = 2000 AND cs_sold_date_sk = d_date_sk
        AND cs_item_sk IN (SELECT item_sk FROM frequent_ss_items)
        AND cs_bill_customer_sk IN (SELECT c_customer_sk FROM best_ss_customer)
      UNION ALL
      SELECT ws_quantity * ws_list_price sales FROM {web_sales}, {date_dim}
      WHERE d_year = 2000 AND ws_sold_date_sk = d_date_sk
        AND ws_item_sk IN (SELECT item_sk FROM frequent_ss_items)
        AND ws_bill_customer_sk IN (SELECT c_customer_sk FROM best_ss_customer)) y"""
QUERIES[27] = """
SELECT i_item_id, s_state, grouping(s_state) g_state, avg(ss_quantity) agg1,
       avg(ss_list_price) agg2
FROM {store_sales}, {customer_demographics}, {date_dim}, {store}, {item}
WHERE ss_sold_date_sk = d_date_sk AND ss_item_sk = i_item_sk AND ss_store_sk = s_store_sk
  AND ss_cdemo_sk = cd_demo_sk AND cd_gender = 'M' AND d_year = 2000 AND s_state IN ('TN', 'OH')
GROUP BY ROLLUP (i_item_id, s_state)"""
QUERIES[28] = """
SELECT * FROM
  (SELECT avg(ss_list_price) B1_LP, count(ss_list_price) B1_CNT, count(DISTINCT ss_list_price) B1_CNTD
   FROM {store_sales}
   WHERE ss_quantity BETWEEN 0 AND 5
     AND (ss_list_price BETWEEN 8 AND 8 + 100 OR ss_coupon_amt BETWEEN 45 AND 45 + 100
          OR ss_wholesale_cost BETWEEN 57 AND 57 + 20)) B1,
  (SELECT avg(ss_list_price) B2_LP, count(ss_list_price) B2_CNT, count(DISTINCT ss_list_price) B2_CNTD
   FROM {store_sales}
   WHERE ss_quantity BETWEEN 6 AND 10
     AND (ss_list_price BETWEEN 90 AND 90 + 10 OR ss_coupon_amt BETWEEN 23 AND 23 + 100
          OR ss_wholesale_cost BETWEEN 31 AND 31 + 20)) B2"""
QUERIES[30] = """
WITH customer_total_return AS (
  SELECT wr_returning_customer_sk AS ctr_customer_sk, ca_state AS ctr_state,
         sum(wr_return_amt) AS ctr_total_return
  FROM {web_returns}, {date_dim}, {customer_address}
  WHERE wr_returned_date_sk = d_date_sk AND d_year = 2000 AND wr_returning_addr_sk = ca_address_sk
  GROUP BY wr_returning_customer_sk, ca_state)
SELECT c_customer_id, c_salutation, c_birth_day, ctr_total_return
FROM customer_total_return ctr1, {customer_address}, {customer}
WHERE ctr1.ctr_total_return > (SELECT avg(ctr_total_return) * 1.2 FROM customer_total_return ctr2
                               WHERE ctr1.ctr_state = ctr2.ctr_state)
  AND ca_address_sk = c_current_addr_sk AND ca_state = 'GA'
  AND ctr1.ctr_customer_sk = c_customer_sk"""
QUERIES[31] = """
WITH ss AS (
  SELECT ca_county, d_qoy, d_year, sum(ss_ext_sales_price) AS store_sales
  FROM {store_sales}, {date_dim}, {customer_address}
  WHERE ss_sold_date_sk = d_date_sk AND ss_addr_sk = ca_address_sk
  GROUP BY ca_county, d_qoy, d_year),
ws AS (
  SELECT ca_county, d_qoy, d_year, sum(ws_ext_sales_price) AS web_sales
  FROM {web_sales}, {date_dim}, {customer_address}
  WHERE ws_sold_date_sk = d_date_sk AND ws_bill_addr_sk = ca_address_sk
  GROUP BY ca_county, d_qoy, d_year)
SELECT ss1.ca_county, ss1.d_year, ws2.web_sales / ws1.web_sales web_q1_q2_increase,
       ss2.store_sales / ss1.store_sales store_q1_q2_increase
FROM ss ss1, ss ss2, ws ws1, ws ws2
WHERE ss1.d_qoy = 1 AND ss1.d_year = 2000 AND ss1.ca_county = ss2.ca_county AND ss2.d_qoy = 2
  AND ss2.d_year = 2000 AND ss1.ca_county = ws1.ca_county AND ws1.d_qoy = 1 AND ws1.d_year = 2000
  AND ws1.ca_county = ws2.ca_county AND ws2.d_qoy = 2 AND ws2.d_year = 2000"""
QUERIES[32] = """
SELECT sum(cs_ext_discount_amt) AS `excess discount amount`
FROM {catalog_sales}, {item}, {date_dim}
WHERE i_manufact_id = 7 AND i_item_sk = cs_item_sk AND d_date_sk = cs_sold_date_sk
  AND d_date BETWEEN '2000-01-27' AND (cast('2000-01-27' AS date) + INTERVAL 300 days)
  AND cs_ext_discount_amt > (
    SELECT 1.3 * avg(cs_ext_discount_amt) FROM {catalog_sales}, {date_dim}
    WHERE cs_item_sk = i_item_sk AND d_date_sk = cs_sold_date_sk
      AND d_date BETWEEN '2000-01-27' AND (cast('2000-01-27' AS date) + INTERVAL 300 days))"""
QUERIES[34] = """
SELECT c_last_name, c_first_name, c_salutation, c_preferred_cust_flag, ss_ticket_number, cnt
FROM (SELECT ss_ticket_number, ss_customer_sk, count(*) cnt
      FROM {store_sales}, {date_dim}, {store}, {household_demographics}
      WHERE ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk AND ss_hdemo_sk = hd_demo_sk
        AND (d_dom BETWEEN 1 AND 3 OR d_dom BETWEEN 25 AND 28)
        AND (hd_buy_potential = '>10000' OR hd_buy_potential = 'Unknown') AND hd_vehicle_count > 0
        AND (CASE WHEN hd_vehicle_count > 0 THEN hd_dep_count / hd_vehicle_count ELSE NULL END) > 1.2
        AND d_year IN (1999, 1999 + 1, 1999 + 2)
      GROUP BY ss_ticket_number, ss_customer_sk) dn, {customer}
WHERE ss_customer_sk = c_customer_sk AND cnt BETWEEN 1 AND 20
ORDER BY c_last_name, c_first_name, c_salutation, c_preferred_cust_flag DESC, ss_ticket_number"""
QUERIES[36] = """
SELECT sum(ss_net_profit) / sum(ss_ext_sales_price) AS gross_margin, i_category, i_class,
       grouping(i_category) + grouping(i_class) AS lochierarchy,
       rank() OVER (PARTITION BY grouping(i_category) + grouping(i_class),
                                 CASE WHEN grouping(i_class) = 0 THEN i_category END
                    ORDER BY sum(ss_net_profit) / sum(ss_ext_sales_price) ASC) AS rank_within_parent
FROM {store_sales}, {date_dim} d1, {item}, {store}
WHERE d1.d_year = 2001 AND d1.d_date_sk = ss_sold_date_sk AND i_item_sk = ss_item_sk
  AND s_store_sk = ss_store_sk AND s_state IN ('TN', 'OH')
GROUP BY ROLLUP (i_category, i_class)
ORDER BY lochierarchy DESC, CASE WHEN lochierarchy = 0 THEN i_category END, rank_within_parent"""
QUERIES[37] = """
SELECT i_item_id, i_item_desc, i_current_price
FROM {item}, {inventory}, {date_dim}, {catalog_sales}
WHERE i_current_price BETWEEN 68 AND 68 + 30 AND inv_item_sk = i_item_sk AND d_date_sk = inv_date_sk
  AND d_date BETWEEN cast('2000-02-01' AS date) AND (cast('2000-02-01' AS date) + INTERVAL 60 days)
  AND i_manufact_id IN (1, 2, 3, 4) AND inv_quantity_on_hand BETWEEN 100 AND 500
  AND cs_item_sk = i_item_sk
GROUP BY i_item_id, i_item_desc, i_current_price ORDER BY i_item_id LIMIT 100"""
QUERIES[38] = """
SELECT count(*) FROM (
  SELECT DISTINCT c_last_name, c_first_name, d_date FROM {store_sales}, {date_dim}, {customer}
  WHERE {store_sales}.ss_sold_date_sk = {date_dim}.d_date_sk
    AND {store_sales}.ss_customer_sk = {customer}.c_customer_sk AND d_month_seq BETWEEN 350 AND 371
  INTERSECT
  SELECT DISTINCT c_last_name, c_first_name, d_date FROM {catalog_sales}, {date_dim}, {customer}
  WHERE {catalog_sales}.cs_sold_date_sk = {date_dim}.d_date_sk
    AND {catalog_sales}.cs_bill_customer_sk = {customer}.c_customer_sk
    AND d_month_seq BETWEEN 350 AND 371) hot_cust"""
QUERIES[39] = """
WITH inv AS (
  SELECT w_warehouse_name, w_warehouse_sk, i_item_sk, d_qoy, stdev, mean,
         CASE mean WHEN 0 THEN NULL ELSE stdev / mean END cov
  FROM (SELECT w_warehouse_name, w_warehouse_sk, i_item_sk, d_qoy,
               stddev_samp(inv_quantity_on_hand) stdev, avg(inv_quantity_on_hand) mean
        FROM {inventory}, {item}, {warehouse}, {date_dim}
        WHERE inv_item_sk = i_item_sk AND inv_warehouse_sk = w_warehouse_sk
          AND inv_date_sk = d_date_sk AND d_year = 2000
        GROUP BY w_warehouse_name, w_warehouse_sk, i_item_sk, d_qoy) foo
  WHERE CASE mean WHEN 0 THEN 0 ELSE stdev / mean END > 0.1)
SELECT inv1.w_warehouse_sk, inv1.i_item_sk, inv1.d_qoy, inv1.mean, round(inv1.cov, 6),
       inv2.w_warehouse_sk, inv2.d_qoy
FROM inv inv1, inv inv2
WHERE inv1.i_item_sk = inv2.i_item_sk AND inv1.w_warehouse_sk = inv2.w_warehouse_sk
  AND inv1.d_qoy < inv2.d_qoy"""
QUERIES[40] = """
SELECT w_state, i_item_id,
       sum(CASE WHEN (cast(d_date AS date) < cast('2000-03-11' AS date))
                THEN cs_sales_price - coalesce(cr_refunded_cash, 0) ELSE 0 END) AS sales_before
FROM {catalog_sales}
     LEFT OUTER JOIN {catalog_returns}
       ON (cs_order_number = cr_order_number AND cs_item_sk = cr_item_sk),
     {warehouse}, {item}, {date_dim}
WHERE i_current_price BETWEEN 0.99 AND 101.49 AND i_item_sk = cs_item_sk
  AND cs_warehouse_sk = w_warehouse_sk AND cs_sold_date_sk = d_date_sk
  AND d_date BETWEEN (cast('2000-03-11' AS date) - INTERVAL 300 days)
                 AND (cast('2000-03-11' AS date) + INTERVAL 300 days)
GROUP BY w_state, i_item_id ORDER BY w_state, i_item_id"""
QUERIES[41] = """
SELECT DISTINCT (i_product_name) FROM {item} i1
WHERE i_manufact_id BETWEEN 2 AND 2 + 5
  AND (SELECT count(*) AS item_cnt FROM {item}
       WHERE (i_manufact = i1.i_manufact
              AND ((i_category = 'Women' AND (i_color = 'red' OR i_color = 'slate')
                    AND (i_units = 'Oz' OR i_units = 'Ton') AND (i_size = 'small'))
                OR (i_category = 'Books' AND (i_color = 'blue') AND (i_units = 'Lb'))))
          OR (i_manufact = i1.i_manufact AND i_category = 'Sports')) > 0
ORDER BY i_product_name LIMIT 100"""
QUERIES[44] = """
SELECT asceding.rnk, i1.i_product_name best_performing, i2.i_product_name worst_performing
FROM (SELECT * FROM (
        SELECT item_sk, rank() OVER (ORDER BY rank_col ASC, item_sk) rnk
        FROM (SELECT ss_item_sk item_sk, avg(ss_net_profit) rank_col FROM {store_sales} ss1
              WHERE ss_store_sk = 4 GROUP BY ss_item_sk
              HAVING avg(ss_net_profit) > 0.9 * (
                SELECT avg(ss_net_profit) rank_col FROM {store_sales}
                WHERE ss_store_sk = 4 AND ss_addr_sk IS NULL GROUP BY ss_store_sk)) v1) v11
      WHERE rnk < 11) asceding,
     (SELECT * FROM (
        SELECT item_sk, rank() OVER (ORDER BY rank_col DESC, item_sk) rnk
        FROM (SELECT ss_item_sk item_sk, avg(ss_net_profit) rank_col FROM {store_sales} ss1
              WHERE ss_store_sk = 4 GROUP BY ss_item_sk) v2) v21
      WHERE rnk < 11) descending,
     {item} i1, {item} i2
WHERE asceding.rnk = descending.rnk AND i1.i_item_sk = asceding.item_sk
  AND i2.i_item_sk = descending.item_sk"""
QUERIES[45] = """
SELECT ca_zip, ca_city, sum(ws_sales_price)
FROM {web_sales}, {customer}, {customer_address}, {date_dim}, {item}
WHERE ws_bill_customer_sk = c_customer_sk AND c_current_addr_sk = ca_address_sk
  AND ws_item_sk = i_item_sk
  AND (substr(ca_zip, 1, 5) IN ('85669', '86197')
       OR i_item_id IN (SELECT i_item_id FROM {item} WHERE i_item_sk IN (2, 3, 5, 7, 11, 13)))
  AND ws_sold_date_sk = d_date_sk AND d_qoy = 2 AND d_year = 2001
GROUP BY ca_zip, ca_city ORDER BY ca_zip, ca_city LIMIT 100"""
QUERIES[47] = """
WITH v1 AS (
  SELECT i_category, i_brand, s_store_name, s_company_name, d_year, d_moy,
         sum(ss_sales_price) sum_sales,
         avg(sum(ss_sales_price)) OVER (PARTITION BY i_category, i_brand, s_store_name,
                                                     s_company_name, d_year) avg_monthly_sales,
         rank() OVER (PARTITION BY i_category, i_brand, s_store_name, s_company_name
                      ORDER BY d_year, d_moy) rn
  FROM {item}, {store_sales}, {date_dim}, {store}
  WHERE ss_item_sk = i_item_sk AND ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk
    AND (d_year = 2000 OR (d_year = 2000 - 1 AND d_moy = 12) OR (d_year = 2000 + 1 AND d_moy = 1))
  GROUP BY i_category, i_brand, s_store_name, s_company_name, d_year, d_moy)
SELECT v1.i_category, v1.i_brand, v1.d_year, v1.d_moy, v1.avg_monthly_sales, v1.sum_sales,
       v1_lag.sum_sales psum, v1_lead.sum_sales nsum
FROM v1, v1 v1_lag, v1 v1_lead
WHERE v1.i_category = v1_lag.i_category AND v1.i_category = v1_lead.i_category
  AND v1.i_brand = v1_lag.i_brand AND v1.i_brand = v1_lead.i_brand
  AND v1.s_store_name = v1_lag.s_store_name AND v1.s_store_name = v1_lead.s_store_name
  AND v1.rn = v1_lag.rn + 1 AND v1.rn = v1_lead.rn - 1 AND v1.d_year = 2000
  AND CASE WHEN v1.avg_monthly_sales > 0
           THEN abs(v1.sum_sales - v1.avg_monthly_sales) / v1.avg_monthly_sales END > 0.1"""
QUERIES[48] = """
SELECT sum(ss_quantity)
FROM {store_sales}, {store}, {customer_demographics}, {customer_address}, {date_dim}
WHERE s_store_sk = ss_store_sk AND ss_sold_date_sk = d_date_sk AND d_year = 2001
  AND ((cd_demo_sk = ss_cdemo_sk AND cd_marital_status = 'M' AND cd_education_status = 'College'
        AND ss_sales_price BETWEEN 10.00 AND 150.00)
    OR (cd_demo_sk = ss_cdemo_sk AND cd_marital_status = 'D'
        AND ss_sales_price BETWEEN 50.00 AND 100.00))
  AND ss_addr_sk = ca_address_sk AND ca_state IN ('CA', 'OH', 'TX')"""
QUERIES[49] = """
SELECT channel, item, return_ratio, return_rank, currency_rank FROM (
  SELECT 'web' AS channel, web.item, web.return_ratio, web.return_rank, web.currency_rank
  FROM (SELECT item, return_ratio, currency_ratio,
               rank() OVER (ORDER BY return_ratio) AS return_rank,
               rank() OVER (ORDER BY currency_ratio) AS currency_rank
        FROM (SELECT ws.ws_item_sk AS item,
                     cast(sum(coalesce(wr.wr_return_quantity, 0)) AS decimal(15, 4))
                       / cast(nullif(sum(coalesce(ws.ws_quantity, 0)), 0) AS decimal(15, 4))
                       AS return_ratio,
                     cast(sum(coalesce(wr.wr_return_amt, 0)) AS decimal(15, 4))
                       / cast(nullif(sum(coalesce(ws.ws_net_paid, 0)), 0) AS decimal(15, 4))
                       AS currency_ratio
              FROM {web_sales} ws LEFT OUTER JOIN {web_returns} wr
                   ON (ws.ws_order_number = wr.wr_order_number AND ws.ws_item_sk = wr.wr_item_sk),
                   {date_dim}
              WHERE ws.ws_net_profit > 1 AND ws.ws_net_paid > 0 AND ws.ws_quantity > 0
                AND ws_sold_date_sk = d_date_sk AND d_year = 2001 AND d_moy = 12
              GROUP BY ws.ws_item_sk) in_web) web
  WHERE (web.return_rank <= 10 OR web.currency_rank <= 10)) t
ORDER BY 1, 4, 5, 2"""
QUERIES[51] = """
WITH web_v1 AS (
  SELECT ws_item_sk item_sk, d_date,
         sum(sum(ws_sales_price)) OVER (PARTITION BY ws_item_sk ORDER BY d_date
                                        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) cume_sales
  FROM {web_sales}, {date_dim}
  WHERE ws_sold_date_sk = d_date_sk AND d_month_seq BETWEEN 360 AND 371 AND ws_item_sk IS NOT NULL
  GROUP BY ws_item_sk, d_date),
store_v1 AS (
  SELECT ss_item_sk item_sk, d_date,
         sum(sum(ss_sales_price)) OVER (PARTITION BY ss_item_sk ORDER BY d_date
                                        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) cume_sales
  FROM {store_sales}, {date_dim}
  WHERE ss_sold_date_sk = d_date_sk AND d_month_seq BETWEEN 360 AND 371 AND ss_item_sk IS NOT NULL
  GROUP BY ss_item_sk, d_date)
SELECT * FROM (
  SELECT item_sk, d_date, web_sales, store_sales,
         max(web_sales) OVER (PARTITION BY item_sk ORDER BY d_date
                              ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) web_cumulative
  FROM (SELECT CASE WHEN web.item_sk IS NOT NULL THEN web.item_sk ELSE store.item_sk END item_sk,
               CASE WHEN web.d_date IS NOT NULL THEN web.d_date ELSE store.d_date END d_date,
               web.cume_sales web_sales, store.cume_sales store_sales
        FROM web_v1 web FULL OUTER JOIN store_v1 store
             ON (web.item_sk = store.item_sk AND web.d_date = store.d_date)) x) y
WHERE web_cumulative > 0"""
QUERIES[54] = """
WITH my_customers AS (
  SELECT DISTINCT c_customer_sk, c_current_addr_sk
  FROM (SELECT cs_sold_date_sk sold_date_sk, cs_bill_customer_sk customer_sk, cs_item_sk item_sk
        FROM {catalog_sales}
        UNION ALL
        SELECT ws_sold_date_sk, ws_bill_customer_sk, ws_item_sk FROM {web_sales}) cs_or_ws_sales,
       {item}, {date_dim}, {customer}
  WHERE sold_date_sk = d_date_sk AND item_sk = i_item_sk AND i_category = 'Women'
    AND c_customer_sk = cs_or_ws_sales.customer_sk AND d_moy = 12 AND d_year = 2000)
SELECT segment, count(*) AS num_customers, segment * 50 AS segment_base
FROM (SELECT cast((revenue / 50) AS int) AS segment
      FROM (SELECT c_customer_sk, sum(ss_ext_sales_price) AS revenue
            FROM my_customers, {store_sales}, {customer_address}, {store}, {date_dim}
            WHERE c_current_addr_sk = ca_address_sk AND ca_county = s_county
              AND ss_sold_date_sk = d_date_sk AND c_customer_sk = ss_customer_sk
              AND d_month_seq BETWEEN (SELECT DISTINCT d_month_seq + 1 FROM {date_dim}
                                       WHERE d_year = 2000 AND d_moy = 5)
                                  AND (SELECT DISTINCT d_month_seq + 12 FROM {date_dim}
                                       WHERE d_year = 2000 AND d_moy = 12)
            GROUP BY c_customer_sk) r) s
GROUP BY segment ORDER BY segment, num_customers LIMIT 100"""
QUERIES[58] = """
WITH ss_items AS (
  SELECT i_item_id item_id, sum(ss_ext_sales_price) ss_item_rev
  FROM {store_sales}, {item}, {date_dim}
  WHERE ss_item_sk = i_item_sk
    AND d_date IN (SELECT d_date FROM {date_dim}
                   WHERE d_week_seq > (SELECT d_week_seq FROM {date_dim} WHERE d_date = '2000-01-03'))
    AND ss_sold_date_sk = d_date_sk
  GROUP BY i_item_id),
ws_items AS (
  SELECT i_item_id item_id, sum(ws_ext_sales_price) ws_item_rev
  FROM {web_sales}, {item}, {date_dim}
  WHERE ws_item_sk = i_item_sk
    AND d_date IN (SELECT d_date FROM {date_dim}
                   WHERE d_week_seq > (SELECT d_week_seq FROM {date_dim} WHERE d_date = '2000-01-03'))
    AND ws_sold_date_sk = d_date_sk
  GROUP BY i_item_id)
SELECT ss_items.item_id, ss_item_rev, ss_item_rev / ((ss_item_rev + ws_item_rev) / 2) * 100 ss_dev
FROM ss_items, ws_items
WHERE ss_items.item_id = ws_items.item_id
  AND ss_item_rev BETWEEN 0.5 * ws_item_rev AND 2.5 * ws_item_rev
ORDER BY item_id, ss_item_rev LIMIT 100"""
QUERIES[61] = """
SELECT promotions, total, cast(promotions AS decimal(15, 4)) / cast(total AS decimal(15, 4)) * 100
FROM (SELECT sum(ss_ext_sales_price) promotions
      FROM {store_sales}, {store}, {promotion}, {date_dim}, {item}
      WHERE ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk AND ss_promo_sk = p_promo_sk
        AND ss_item_sk = i_item_sk AND i_category = 'Music'
        AND (p_channel_dmail = 'Y' OR p_channel_email = 'Y' OR p_channel_tv = 'Y')
        AND s_gmt_offset = -5 AND d_year = 2000) promotional_sales,
     (SELECT sum(ss_ext_sales_price) total
      FROM {store_sales}, {store}, {date_dim}, {item}
      WHERE ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk AND ss_item_sk = i_item_sk
        AND i_category = 'Music' AND s_gmt_offset = -5 AND d_year = 2000) all_sales"""
QUERIES[62] = """
SELECT substr(w_warehouse_name, 1, 20), sm_type, web_name,
       sum(CASE WHEN (ws_ship_date_sk - ws_sold_date_sk <= 30) THEN 1 ELSE 0 END) AS `30 days`,
       sum(CASE WHEN (ws_ship_date_sk - ws_sold_date_sk > 30)
                 AND (ws_ship_date_sk - ws_sold_date_sk <= 60) THEN 1 ELSE 0 END) AS `31-60 days`
FROM {web_sales}, {warehouse}, {ship_mode}, {web_site}, {date_dim}
WHERE d_month_seq BETWEEN 360 AND 371 AND ws_ship_date_sk = d_date_sk
  AND ws_warehouse_sk = w_warehouse_sk AND ws_ship_mode_sk = sm_ship_mode_sk
  AND ws_web_site_sk = web_site_sk
GROUP BY substr(w_warehouse_name, 1, 20), sm_type, web_name
ORDER BY substr(w_warehouse_name, 1, 20), sm_type, web_name LIMIT 100"""
QUERIES[67] = """
SELECT * FROM (
  SELECT i_category, i_class, d_year, d_qoy, s_store_id, sumsales,
         rank() OVER (PARTITION BY i_category ORDER BY sumsales DESC) rk
  FROM (SELECT i_category, i_class, d_year, d_qoy, s_store_id,
               sum(coalesce(ss_sales_price * ss_quantity, 0)) sumsales
        FROM {store_sales}, {date_dim}, {store}, {item}
        WHERE ss_sold_date_sk = d_date_sk AND ss_item_sk = i_item_sk AND ss_store_sk = s_store_sk
          AND d_month_seq BETWEEN 360 AND 360 + 11
        GROUP BY ROLLUP (i_category, i_class, d_year, d_qoy, s_store_id)) dw1) dw2
WHERE rk <= 50"""
QUERIES[69] = """
SELECT cd_gender, cd_marital_status, count(*) cnt1
FROM {customer} c, {customer_address} ca, {customer_demographics}
WHERE c.c_current_addr_sk = ca.ca_address_sk AND ca_state IN ('TX', 'GA', 'OH')
  AND cd_demo_sk = c.c_current_cdemo_sk
  AND EXISTS (SELECT * FROM {store_sales}, {date_dim}
              WHERE c.c_customer_sk = ss_customer_sk AND ss_sold_date_sk = d_date_sk
                AND d_year = 2001 AND d_moy BETWEEN 4 AND 4 + 2)
  AND (NOT EXISTS (SELECT * FROM {web_sales}, {date_dim}
                   WHERE c.c_customer_sk = ws_bill_customer_sk AND ws_sold_date_sk = d_date_sk
                     AND d_year = 2001 AND d_moy BETWEEN 4 AND 4 + 2))
GROUP BY cd_gender, cd_marital_status ORDER BY cd_gender, cd_marital_status LIMIT 100"""
QUERIES[70] = """
SELECT sum(ss_net_profit) AS total_sum, s_state, s_county,
       grouping(s_state) + grouping(s_county) AS lochierarchy,
       rank() OVER (PARTITION BY grouping(s_state) + grouping(s_county),
                                 CASE WHEN grouping(s_county) = 0 THEN s_state END
                    ORDER BY sum(ss_net_profit) DESC) AS rank_within_parent
FROM {store_sales}, {date_dim} d1, {store}
WHERE d1.d_month_seq BETWEEN 360 AND 371 AND d1.d_date_sk = ss_sold_date_sk
  AND s_store_sk = ss_store_sk
  AND s_state IN (SELECT s_state
                  FROM (SELECT s_state AS s_state,
                               rank() OVER (PARTITION BY s_state ORDER BY sum(ss_net_profit) DESC)
                                 AS ranking
                        FROM {store_sales}, {store}, {date_dim}
                        WHERE d_month_seq BETWEEN 360 AND 371 AND d_date_sk = ss_sold_date_sk
                          AND s_store_sk = ss_store_sk
                        GROUP BY s_state) tmp1
                  WHERE ranking <= 5)
GROUP BY ROLLUP (s_state, s_county)"""
QUERIES[72] = """
SELECT i_item_desc, w_warehouse_name, d1.d_week_seq,
       sum(CASE WHEN p_promo_sk IS NULL THEN 1 ELSE 0 END) no_promo,
       sum(CASE WHEN p_promo_sk IS NOT NULL THEN 1 ELSE 0 END) promo, count(*) total_cnt
FROM {catalog_sales}
     JOIN {inventory} ON (cs_item_sk = inv_item_sk)
     JOIN {warehouse} ON (w_warehouse_sk = inv_warehouse_sk)
     JOIN {item} ON (i_item_sk = cs_item_sk)
     JOIN {customer_demographics} ON (cs_bill_cdemo_sk = cd_demo_sk)
     JOIN {household_demographics} ON (cs_bill_hdemo_sk = hd_demo_sk)
     JOIN {date_dim} d1 ON (cs_sold_date_sk = d1.d_date_sk)
     JOIN {date_dim} d2 ON (inv_date_sk = d2.d_date_sk)
     JOIN {date_dim} d3 ON (cs_ship_date_sk = d3.d_date_sk)
     LEFT OUTER JOIN {promotion} ON (cs_promo_sk = p_promo_sk)
     LEFT OUTER JOIN {catalog_returns}
       ON (cr_item_sk = cs_item_sk AND cr_order_number = cs_order_number)
WHERE inv_quantity_on_hand < cs_quantity * 20 AND hd_buy_potential = '>10000' AND d1.d_year = 2000
  AND d3.d_date > d1.d_date + INTERVAL 5 days AND cd_marital_status IN ('D', 'M')
GROUP BY i_item_desc, w_warehouse_name, d1.d_week_seq"""
QUERIES[75] = """
WITH all_sales AS (
  SELECT d_year, i_brand_id, i_class_id, sum(sales_cnt) AS sales_cnt, sum(sales_amt) AS sales_amt
  FROM (SELECT d_year, i_brand_id, i_class_id,
               cs_quantity - coalesce(cr_return_quantity, 0) AS sales_cnt,
               cs_ext_sales_price - coalesce(cr_return_amount, 0.0) AS sales_amt
        FROM {catalog_sales} JOIN {item} ON i_item_sk = cs_item_sk
             JOIN {date_dim} ON d_date_sk = cs_sold_date_sk
             LEFT JOIN {catalog_returns}
               ON (cs_order_number = cr_order_number AND cs_item_sk = cr_item_sk)
        WHERE i_category = 'Books'
        UNION
        SELECT d_year, i_brand_id, i_class_id,
               ss_quantity - coalesce(sr_return_quantity, 0) AS sales_cnt,
               ss_ext_sales_price - coalesce(sr_return_amt, 0.0) AS sales_amt
        FROM {store_sales} JOIN {item} ON i_item_sk = ss_item_sk
             JOIN {date_dim} ON d_date_sk = ss_sold_date_sk
             LEFT JOIN {store_returns}
               ON (ss_ticket_number = sr_ticket_number AND ss_item_sk = sr_item_sk)
        WHERE i_category = 'Books') sales_detail
  GROUP BY d_year, i_brand_id, i_class_id)
SELECT prev_yr.d_year AS prev_year, curr_yr.d_year AS year, curr_yr.i_brand_id, curr_yr.i_class_id,
       curr_yr.sales_cnt - prev_yr.sales_cnt AS sales_cnt_diff
FROM all_sales curr_yr, all_sales prev_yr
WHERE curr_yr.i_brand_id = prev_yr.i_brand_id AND curr_yr.i_class_id = prev_yr.i_class_id
  AND curr_yr.d_year = 2001 AND prev_yr.d_year = 2001 - 1
  AND cast(curr_yr.sales_cnt AS decimal(17, 2)) / cast(prev_yr.sales_cnt AS decimal(17, 2)) < 0.9"""
QUERIES[76] = """
SELECT channel, col_name, d_year, d_qoy, i_category, count(*) sales_cnt,
       sum(ext_sales_price) sales_amt
FROM (SELECT 'store' AS channel, 'ss_store_sk' col_name, d_year, d_qoy, i_category,
             ss_ext_sales_price ext_sales_price
      FROM {store_sales}, {item}, {date_dim}
      WHERE ss_store_sk IS NULL AND ss_sold_date_sk = d_date_sk AND ss_item_sk = i_item_sk
      UNION ALL
      SELECT 'web', 'ws_ship_customer_sk', d_year, d_qoy, i_category, ws_ext_sales_price
      FROM {web_sales}, {item}, {date_dim}
      WHERE ws_ship_customer_sk IS NULL AND ws_sold_date_sk = d_date_sk
        AND ws_item_sk = i_item_sk) foo
GROUP BY channel, col_name, d_year, d_qoy, i_category
ORDER BY channel, col_name, d_year, d_qoy, i_category LIMIT 100"""
QUERIES[78] = """
WITH ws AS (
  SELECT d_year AS ws_sold_year, ws_item_sk, ws_bill_customer_sk ws_customer_sk,
         sum(ws_quantity) ws_qty, sum(ws_sales_price) ws_sp
  FROM {web_sales} LEFT JOIN {web_returns}
       ON wr_order_number = ws_order_number AND ws_item_sk = wr_item_sk
       JOIN {date_dim} ON ws_sold_date_sk = d_date_sk
  WHERE wr_order_number IS NULL
  GROUP BY d_year, ws_item_sk, ws_bill_customer_sk),
ss AS (
  SELECT d_year AS ss_sold_year, ss_item_sk, ss_customer_sk, sum(ss_quantity) ss_qty,
         sum(ss_sales_price) ss_sp
  FROM {store_sales} LEFT JOIN {store_returns}
       ON sr_ticket_number = ss_ticket_number AND ss_item_sk = sr_item_sk
       JOIN {date_dim} ON ss_sold_date_sk = d_date_sk
  WHERE sr_ticket_number IS NULL
  GROUP BY d_year, ss_item_sk, ss_customer_sk)
SELECT ss_item_sk, ss_customer_sk, round(ss_qty / (coalesce(ws_qty, 0) + 1), 2) ratio, ss_qty
FROM ss LEFT JOIN ws
     ON (ws_sold_year = ss_sold_year AND ws_item_sk = ss_item_sk AND ws_customer_sk = ss_customer_sk)
WHERE coalesce(ws_qty, 0) > 0 AND ss_sold_year = 2000"""
QUERIES[82] = QUERIES[37].replace("catalog_sales", "store_sales").replace("cs_", "ss_")
QUERIES[84] = """
SELECT c_customer_id AS customer_id,
       coalesce(c_last_name, '') || ', ' || coalesce(c_first_name, '') AS customername
FROM {customer}, {customer_address}, {customer_demographics}, {household_demographics},
     {income_band}, {store_returns}
WHERE ca_city = 'Midway' AND c_current_addr_sk = ca_address_sk AND ib_lower_bound >= 3812
  AND ib_upper_bound <= 63812 + 50000 AND ib_income_band_sk = hd_income_band_sk
  AND cd_demo_sk = c_current_cdemo_sk AND hd_demo_sk = c_current_hdemo_sk
  AND sr_cdemo_sk = cd_demo_sk
ORDER BY c_customer_id, customername LIMIT 100"""
QUERIES[86] = """
SELECT sum(ws_net_paid) AS total_sum, i_category, i_class,
       grouping(i_category) + grouping(i_class) AS lochierarchy,
       rank() OVER (PARTITION BY grouping(i_category) + grouping(i_class),
                                 CASE WHEN grouping(i_class) = 0 THEN i_category END
                    ORDER BY sum(ws_net_paid) DESC) AS rank_within_parent
FROM {web_sales}, {date_dim} d1, {item}
WHERE d1.d_month_seq BETWEEN 360 AND 371 AND d1.d_date_sk = ws_sold_date_sk
  AND i_item_sk = ws_item_sk
GROUP BY ROLLUP (i_category, i_class)"""
QUERIES[87] = """
SELECT count(*)
FROM ((SELECT DISTINCT c_last_name, c_first_name, d_date FROM {store_sales}, {date_dim}, {customer}
       WHERE ss_sold_date_sk = d_date_sk AND ss_customer_sk = c_customer_sk
         AND d_month_seq BETWEEN 350 AND 371)
      EXCEPT
      (SELECT DISTINCT c_last_name, c_first_name, d_date
       FROM {catalog_sales}, {date_dim}, {customer}
       WHERE cs_sold_date_sk = d_date_sk AND cs_bill_customer_sk = c_customer_sk
         AND d_month_seq BETWEEN 350 AND 371)) cool_cust"""
QUERIES[88] = """
SELECT * FROM
  (SELECT count(*) h8_30_to_9
   FROM {store_sales}, {household_demographics}, {time_dim}, {store}
   WHERE ss_sold_time_sk = {time_dim}.t_time_sk AND ss_hdemo_sk = hd_demo_sk
     AND ss_store_sk = s_store_sk AND {time_dim}.t_hour = 8 AND {time_dim}.t_minute >= 30
     AND ((hd_dep_count = 4 AND hd_vehicle_count <= 4 + 2)
       OR (hd_dep_count = 2 AND hd_vehicle_count <= 2 + 2)) AND s_store_name = 'ese') s1,
  (SELECT count(*) h9_to_9_30
   FROM {store_sales}, {household_demographics}, {time_dim}, {store}
   WHERE ss_sold_time_sk = {time_dim}.t_time_sk AND ss_hdemo_sk = hd_demo_sk
     AND ss_store_sk = s_store_sk AND {time_dim}.t_hour = 9 AND {time_dim}.t_minute < 30
     AND s_store_name = 'ese') s2"""
QUERIES[93] = """
SELECT ss_customer_sk, sum(act_sales) sumsales
FROM (SELECT ss_item_sk, ss_ticket_number, ss_customer_sk,
             CASE WHEN sr_return_quantity IS NOT NULL
                  THEN (ss_quantity - sr_return_quantity) * ss_sales_price
                  ELSE (ss_quantity * ss_sales_price) END act_sales
      FROM {store_sales} LEFT OUTER JOIN {store_returns}
           ON (sr_item_sk = ss_item_sk AND sr_ticket_number = ss_ticket_number), {reason}
      WHERE sr_reason_sk = r_reason_sk AND r_reason_desc = 'late') t
GROUP BY ss_customer_sk ORDER BY sumsales, ss_customer_sk LIMIT 100"""
QUERIES[97] = """
WITH ssci AS (
  SELECT ss_customer_sk customer_sk, ss_item_sk item_sk FROM {store_sales}, {date_dim}
  WHERE ss_sold_date_sk = d_date_sk AND d_month_seq BETWEEN 360 AND 371
  GROUP BY ss_customer_sk, ss_item_sk),
csci AS (
  SELECT cs_bill_customer_sk customer_sk, cs_item_sk item_sk FROM {catalog_sales}, {date_dim}
  WHERE cs_sold_date_sk = d_date_sk AND d_month_seq BETWEEN 360 AND 371
  GROUP BY cs_bill_customer_sk, cs_item_sk)
SELECT sum(CASE WHEN ssci.customer_sk IS NOT NULL AND csci.customer_sk IS NULL THEN 1 ELSE 0 END) s,
       sum(CASE WHEN ssci.customer_sk IS NULL AND csci.customer_sk IS NOT NULL THEN 1 ELSE 0 END) c,
       sum(CASE WHEN ssci.customer_sk IS NOT NULL AND csci.customer_sk IS NOT NULL THEN 1 ELSE 0 END)
FROM ssci FULL OUTER JOIN csci
     ON (ssci.customer_sk = csci.customer_sk AND ssci.item_sk = csci.item_sk)"""
QUERIES[98] = QUERIES[12].replace("web_sales", "store_sales").replace("ws_", "ss_")
QUERIES[99] = """
SELECT substr(w_warehouse_name, 1, 20), sm_type, cc_name,
       sum(CASE WHEN (cs_ship_date_sk - cs_sold_date_sk <= 30) THEN 1 ELSE 0 END) AS `30 days`,
       sum(CASE WHEN (cs_ship_date_sk - cs_sold_date_sk > 120) THEN 1 ELSE 0 END) AS `>120 days`
FROM {catalog_sales}, {warehouse}, {ship_mode}, {call_center}, {date_dim}
WHERE d_month_seq BETWEEN 360 AND 371 AND cs_ship_date_sk = d_date_sk
  AND cs_warehouse_sk = w_warehouse_sk AND cs_ship_mode_sk = sm_ship_mode_sk
  AND cs_call_center_sk = cc_call_center_sk
GROUP BY substr(w_warehouse_name, 1, 20), sm_type, cc_name
ORDER BY substr(w_warehouse_name, 1, 20), sm_type, cc_name LIMIT 100"""
_YEAR_TOTALS = """
  SELECT c_customer_id customer_id, c_first_name first_name, c_last_name last_name,
         c_preferred_cust_flag flag, d_year dyear, {total} year_total, '{kind}' sale_type
  FROM {{customer}}, {{{sales}}}, {{date_dim}}
  WHERE c_customer_sk = {prefix}_{who} AND {prefix}_sold_date_sk = d_date_sk
  GROUP BY c_customer_id, c_first_name, c_last_name, c_preferred_cust_flag, d_year"""
_CHANNELS = (
    ("s", "store_sales", "ss", "customer_sk"),
    ("c", "catalog_sales", "cs", "bill_customer_sk"),
    ("w", "web_sales", "ws", "bill_customer_sk"),
)


def _year_totals(total, channels):
    made = (
        _YEAR_TOTALS.format(
            total=total.replace("x_", f"{prefix}_"), kind=kind, sales=sales, prefix=prefix, who=who
        )
        for kind, sales, prefix, who in channels
    )
    return f"WITH year_total AS ({' UNION ALL '.join(made)})"


QUERIES[4] = (
    _year_totals(
        "sum(((x_ext_list_price - x_ext_wholesale_cost - x_ext_discount_amt)"
        " + x_ext_sales_price) / 2)",
        _CHANNELS,
    )
    + """
SELECT s2.customer_id, s2.first_name, s2.last_name, s2.flag
FROM year_total s1, year_total s2, year_total c1, year_total c2, year_total w1, year_total w2
WHERE s2.customer_id = s1.customer_id AND s1.customer_id = c2.customer_id
  AND s1.customer_id = c1.customer_id AND s1.customer_id = w1.customer_id
  AND s1.customer_id = w2.customer_id AND s1.sale_type = 's' AND c1.sale_type = 'c'
  AND w1.sale_type = 'w' AND s2.sale_type = 's' AND c2.sale_type = 'c' AND w2.sale_type = 'w'
  AND s1.dyear = 2000 AND s2.dyear = 2001 AND c1.dyear = 2000 AND c2.dyear = 2001
  AND w1.dyear = 2000 AND w2.dyear = 2001
  AND s1.year_total > 0 AND c1.year_total > 0 AND w1.year_total > 0
  AND CASE WHEN c1.year_total > 0 THEN c2.year_total / c1.year_total ELSE NULL END
      > CASE WHEN s1.year_total > 0 THEN s2.year_total / s1.year_total ELSE NULL END
  AND CASE WHEN c1.year_total > 0 THEN c2.year_total / c1.year_total ELSE NULL END
      > CASE WHEN w1.year_total > 0 THEN w2.year_total / w1.year_total ELSE NULL END
ORDER BY s2.customer_id, s2.first_name, s2.last_name, s2.flag"""
)
QUERIES[15] = """
SELECT ca_zip, sum(cs_sales_price)
FROM {catalog_sales}, {customer}, {customer_address}, {date_dim}
WHERE cs_bill_customer_sk = c_customer_sk AND c_current_addr_sk = ca_address_sk
  AND (substr(ca_zip, 1, 5) IN ('85669', '86197', '88274') OR ca_state IN ('CA', 'WA', 'GA')
       OR cs_sales_price > 150)
  AND cs_sold_date_sk = d_date_sk AND d_qoy = 2 AND d_year = 2001
GROUP BY ca_zip ORDER BY ca_zip LIMIT 100"""
_SOLD_RETURNED_SOLD = """
FROM {store_sales}, {store_returns}, {catalog_sales}, {date_dim} d1, {date_dim} d2, {date_dim} d3,
     {store}, {item}
WHERE d1.d_date_sk = ss_sold_date_sk AND i_item_sk = ss_item_sk AND s_store_sk = ss_store_sk
  AND ss_customer_sk = sr_customer_sk AND ss_item_sk = sr_item_sk
  AND sr_returned_date_sk = d2.d_date_sk AND sr_customer_sk = cs_bill_customer_sk
  AND sr_item_sk = cs_item_sk AND cs_sold_date_sk = d3.d_date_sk"""
QUERIES[17] = f"""
SELECT i_item_id, i_item_desc, s_state, count(ss_quantity) AS store_sales_quantitycount,
       avg(ss_quantity) AS store_sales_quantityave, stddev_samp(ss_quantity) AS quantitystdev,
       stddev_samp(ss_quantity) / avg(ss_quantity) AS store_sales_quantitycov,
       count(sr_return_quantity) AS returnscount, avg(sr_return_quantity) AS returnsave,
       count(cs_quantity) AS catalogcount, avg(cs_quantity) AS catalogave
{_SOLD_RETURNED_SOLD}
  AND d1.d_quarter_name IN ('2000Q1', '2000Q2') AND d2.d_year = 2000
  AND d3.d_quarter_name IN ('2000Q1', '2000Q2', '2001Q3')
GROUP BY i_item_id, i_item_desc, s_state ORDER BY i_item_id, i_item_desc, s_state LIMIT 100"""
QUERIES[19] = """
SELECT i_brand_id brand_id, i_brand brand, i_manufact_id, i_manufact,
       sum(ss_ext_sales_price) ext_price
FROM {date_dim}, {store_sales}, {item}, {customer}, {customer_address}, {store}
WHERE d_date_sk = ss_sold_date_sk AND ss_item_sk = i_item_sk AND i_manager_id = 3 AND d_moy = 11
  AND d_year = 2000 AND ss_customer_sk = c_customer_sk AND c_current_addr_sk = ca_address_sk
  AND substr(ca_zip, 1, 5) <> substr(s_zip, 1, 5) AND ss_store_sk = s_store_sk
GROUP BY i_brand, i_brand_id, i_manufact_id, i_manufact
ORDER BY ext_price DESC, brand, brand_id, i_manufact_id, i_manufact LIMIT 100"""
QUERIES[24] = """
WITH ssales AS (
  SELECT c_last_name, c_first_name, s_store_name, ca_state, s_state, i_color, i_current_price,
         i_manager_id, i_units, i_size, sum(ss_net_paid) netpaid
  FROM {store_sales}, {store_returns}, {store}, {item}, {customer}, {customer_address}
  WHERE ss_ticket_number = sr_ticket_number AND ss_customer_sk = c_customer_sk
    AND ss_item_sk = i_item_sk AND ss_store_sk = s_store_sk AND c_current_addr_sk = ca_address_sk
    AND c_birth_country <> upper(ca_country) AND s_zip = ca_zip AND s_market_id >= 2
  GROUP BY c_last_name, c_first_name, s_store_name, ca_state, s_state, i_color,
           i_current_price, i_manager_id, i_units, i_size)
SELECT c_last_name, c_first_name, s_store_name, sum(netpaid) paid
FROM ssales WHERE i_color = 'pale'
GROUP BY c_last_name, c_first_name, s_store_name
HAVING sum(netpaid) > (SELECT 0.05 * avg(netpaid) FROM ssales)
ORDER BY c_last_name, c_first_name, s_store_name"""
QUERIES[25] = f"""
SELECT i_item_id, i_item_desc, s_store_id, s_store_name, sum(ss_net_profit) AS store_sales_profit,
       sum(sr_net_loss) AS store_returns_loss, sum(cs_net_profit) AS catalog_sales_profit
{_SOLD_RETURNED_SOLD}
  AND d1.d_moy <= 6 AND d1.d_year = 2000 AND d2.d_moy BETWEEN 2 AND 12 AND d2.d_year >= 2000
  AND d3.d_moy BETWEEN 2 AND 10
GROUP BY i_item_id, i_item_desc, s_store_id, s_store_name
ORDER BY i_item_id, i_item_desc, s_store_id, s_store_name LIMIT 100"""
QUERIES[26] = """
SELECT i_item_id, avg(cs_quantity) agg1, avg(cs_list_price) agg2, avg(cs_coupon_amt) agg3,
       avg(cs_sales_price) agg4
FROM {catalog_sales}, {customer_demographics}, {date_dim}, {item}, {promotion}
WHERE cs_sold_date_sk = d_date_sk AND cs_item_sk = i_item_sk AND cs_bill_cdemo_sk = cd_demo_sk
  AND cs_promo_sk = p_promo_sk AND cd_gender = 'M' AND cd_marital_status = 'S'
  AND (p_channel_email = 'N' OR p_channel_event = 'N') AND d_year = 2000
GROUP BY i_item_id ORDER BY i_item_id LIMIT 100"""
QUERIES[29] = f"""
SELECT i_item_id, i_item_desc, s_store_id, s_store_name, sum(ss_quantity) AS store_sales_quantity,
       sum(sr_return_quantity) AS returned, sum(cs_quantity) AS catalog_sales_quantity
{_SOLD_RETURNED_SOLD}
  AND d1.d_moy <= 9 AND d1.d_year = 1999 AND d2.d_moy BETWEEN 1 AND 9 + 3
  AND d3.d_year IN (1999, 1999 + 1, 1999 + 2)
GROUP BY i_item_id, i_item_desc, s_store_id, s_store_name
ORDER BY i_item_id, i_item_desc, s_store_id, s_store_name LIMIT 100"""


def _by_channel(key, chosen, order):
    """Return the totals of items in all channels, of those that a condition chooses."""
    parts = [
        f"""{name} AS (
  SELECT {key}, sum({prefix}_ext_sales_price) total_sales
  FROM {{{sales}}}, {{date_dim}}, {{customer_address}}, {{item}}
  WHERE {key} IN (SELECT {key} FROM {{item}} WHERE {chosen})
    AND {prefix}_item_sk = i_item_sk AND {prefix}_sold_date_sk = d_date_sk AND d_year = 2000
    AND d_moy BETWEEN 1 AND 6 AND {prefix}_{address} = ca_address_sk AND ca_gmt_offset = -5
  GROUP BY {key})"""
        for name, sales, prefix, address in (
            ("ss", "store_sales", "ss", "addr_sk"),
            ("cs", "catalog_sales", "cs", "bill_addr_sk"),
            ("ws", "web_sales", "ws", "bill_addr_sk"),
        )
    ]
    return f"""
WITH {", ".join(parts)}
SELECT {key}, sum(total_sales) total_sales
FROM (SELECT * FROM ss UNION ALL SELECT * FROM cs UNION ALL SELECT * FROM ws) tmp1
GROUP BY {key} ORDER BY {order} LIMIT 100"""


QUERIES[33] = _by_channel("i_manufact_id", "i_category IN ('Books')", "total_sales, i_manufact_id")
QUERIES[56] = _by_channel("i_item_id", "i_color IN ('slate', 'pale')", "total_sales, i_item_id")
QUERIES[60] = _by_channel("i_item_id", "i_category IN ('Music')", "i_item_id, total_sales")
QUERIES[35] = """
SELECT ca_state, cd_gender, cd_marital_status, cd_dep_count, count(*) cnt1, min(cd_dep_count),
       max(cd_dep_count), avg(cd_dep_count), cd_dep_employed_count, count(*) cnt2,
       max(cd_dep_employed_count), cd_dep_college_count, avg(cd_dep_college_count)
FROM {customer} c, {customer_address} ca, {customer_demographics}
WHERE c.c_current_addr_sk = ca.ca_address_sk AND cd_demo_sk = c.c_current_cdemo_sk
  AND EXISTS (SELECT * FROM {store_sales}, {date_dim} WHERE c.c_customer_sk = ss_customer_sk
                AND ss_sold_date_sk = d_date_sk AND d_year = 2001 AND d_qoy < 4)
  AND (EXISTS (SELECT * FROM {web_sales}, {date_dim} WHERE c.c_customer_sk = ws_bill_customer_sk
                 AND ws_sold_date_sk = d_date_sk AND d_year = 2001 AND d_qoy < 4)
       OR EXISTS (SELECT * FROM {catalog_sales}, {date_dim}
                  WHERE c.c_customer_sk = cs_ship_customer_sk AND cs_sold_date_sk = d_date_sk
                    AND d_year = 2001 AND d_qoy < 4))
GROUP BY ca_state, cd_gender, cd_marital_status, cd_dep_count, cd_dep_employed_count,
         cd_dep_college_count
ORDER BY ca_state, cd_gender, cd_marital_status, cd_dep_count, cd_dep_employed_count,
         cd_dep_college_count LIMIT 100"""
QUERIES[42] = """
SELECT dt.d_year, i_category_id, i_category, sum(ss_ext_sales_price)
FROM {date_dim} dt, {store_sales}, {item}
WHERE dt.d_date_sk = ss_sold_date_sk AND ss_item_sk = i_item_sk AND i_manager_id = 1
  AND dt.d_moy = 11 AND dt.d_year = 2000
GROUP BY dt.d_year, i_category_id, i_category
ORDER BY sum(ss_ext_sales_price) DESC, dt.d_year, i_category_id, i_category LIMIT 100"""
_WEEK = ", ".join(
    f"sum(CASE WHEN (d_day_name = '{day}') THEN ss_sales_price ELSE NULL END) {day[:3].lower()}_sales"
    for day in ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
)
QUERIES[43] = f"""
SELECT s_store_name, s_store_id, {_WEEK}
FROM {{date_dim}}, {{store_sales}}, {{store}}
WHERE d_date_sk = ss_sold_date_sk AND s_store_sk = ss_store_sk AND s_gmt_offset = -5
  AND d_year = 2000
GROUP BY s_store_name, s_store_id ORDER BY s_store_name, s_store_id LIMIT 100"""
QUERIES[46] = """
SELECT c_last_name, c_first_name, ca_city, bought_city, ss_ticket_number, amt, profit
FROM (SELECT ss_ticket_number, ss_customer_sk, ca_city bought_city, sum(ss_coupon_amt) amt,
             sum(ss_net_profit) profit
      FROM {store_sales}, {date_dim}, {store}, {household_demographics}, {customer_address}
      WHERE ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk AND ss_hdemo_sk = hd_demo_sk
        AND ss_addr_sk = ca_address_sk AND (hd_dep_count = 4 OR hd_vehicle_count = 3)
        AND d_dow IN (6, 0) AND d_year IN (1999, 1999 + 1, 1999 + 2)
        AND s_city IN ('Fairview', 'Midway')
      GROUP BY ss_ticket_number, ss_customer_sk, ss_addr_sk, ca_city) dn,
     {customer}, {customer_address} current_addr
WHERE ss_customer_sk = c_customer_sk AND c_current_addr_sk = current_addr.ca_address_sk
  AND current_addr.ca_city <> bought_city
ORDER BY c_last_name, c_first_name, ca_city, bought_city, ss_ticket_number, amt, profit"""
QUERIES[50] = """
SELECT s_store_name, s_company_id, s_city, s_county, s_state, s_zip,
       sum(CASE WHEN (sr_returned_date_sk - ss_sold_date_sk <= 30) THEN 1 ELSE 0 END) AS `30 days`,
       sum(CASE WHEN (sr_returned_date_sk - ss_sold_date_sk > 30)
                 AND (sr_returned_date_sk - ss_sold_date_sk <= 60) THEN 1 ELSE 0 END) AS `31-60 days`,
       sum(CASE WHEN (sr_returned_date_sk - ss_sold_date_sk > 120) THEN 1 ELSE 0 END) AS `>120 days`
FROM {store_sales}, {store_returns}, {store}, {date_dim} d1, {date_dim} d2
WHERE d2.d_year = 2001 AND d2.d_moy <= 8 AND ss_ticket_number = sr_ticket_number
  AND ss_sold_date_sk = d1.d_date_sk AND sr_returned_date_sk = d2.d_date_sk
  AND ss_store_sk = s_store_sk
GROUP BY s_store_name, s_company_id, s_city, s_county, s_state, s_zip
ORDER BY s_store_name, s_company_id, s_city, s_county, s_state, s_zip LIMIT 100"""
QUERIES[52] = """
SELECT dt.d_year, i_brand_id brand_id, i_brand brand, sum(ss_ext_sales_price) ext_price
FROM {date_dim} dt, {store_sales}, {item}
WHERE dt.d_date_sk = ss_sold_date_sk AND ss_item_sk = i_item_sk AND i_manager_id = 1
  AND dt.d_moy = 11 AND dt.d_year = 2000
GROUP BY dt.d_year, i_brand, i_brand_id
ORDER BY dt.d_year, ext_price DESC, brand_id, brand LIMIT 100"""
_UNUSUAL = """
SELECT * FROM
  (SELECT KEY, sum(ss_sales_price) sum_sales,
          avg(sum(ss_sales_price)) OVER (PARTITION BY KEY) avg_sales
   FROM {item}, {store_sales}, {date_dim}, {store}
   WHERE ss_item_sk = i_item_sk AND ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk
     AND d_month_seq IN (360, 361, 362, 363, 364, 365, 366, 367, 368, 369, 370, 371)
     AND ((i_category IN ('Books', 'Music') AND i_class IN ('pants', 'rock')
           AND i_brand IN ('one', 'two'))
       OR (i_category IN ('Women', 'Sports') AND i_class IN ('shirts', 'pants')
           AND i_brand IN ('three', 'four')))
   GROUP BY KEY, SPAN) tmp1
WHERE CASE WHEN avg_sales > 0 THEN abs(sum_sales - avg_sales) / avg_sales ELSE NULL END > 0.1
ORDER BY SORTED LIMIT 100"""
for _number, _key, _span, _order in (
    (53, "i_manufact_id", "d_qoy", "avg_sales, sum_sales, i_manufact_id"),
    (63, "i_manager_id", "d_moy", "i_manager_id, avg_sales, sum_sales"),
):
    QUERIES[_number] = (
        _UNUSUAL.replace("KEY", _key).replace("SPAN", _span).replace("SORTED", _order)
    )
QUERIES[55] = """
SELECT i_brand_id brand_id, i_brand brand, sum(ss_ext_sales_price) ext_price
FROM {date_dim}, {store_sales}, {item}
WHERE d_date_sk = ss_sold_date_sk AND ss_item_sk = i_item_sk AND i_manager_id = 2 AND d_moy = 11
  AND d_year = 1999
GROUP BY i_brand, i_brand_id ORDER BY ext_price DESC, brand_id, brand LIMIT 100"""
QUERIES[57] = """
WITH v1 AS (
  SELECT i_category, i_brand, cc_name, d_year, d_moy, sum(cs_sales_price) sum_sales,
         avg(sum(cs_sales_price)) OVER (PARTITION BY i_category, i_brand, cc_name, d_year)
           avg_monthly_sales,
         rank() OVER (PARTITION BY i_category, i_brand, cc_name ORDER BY d_year, d_moy) rn
  FROM {item}, {catalog_sales}, {date_dim}, {call_center}
  WHERE cs_item_sk = i_item_sk AND cs_sold_date_sk = d_date_sk AND cc_call_center_sk = cs_call_center_sk
    AND (d_year = 2000 OR (d_year = 2000 - 1 AND d_moy = 12) OR (d_year = 2000 + 1 AND d_moy = 1))
  GROUP BY i_category, i_brand, cc_name, d_year, d_moy),
v2 AS (
  SELECT v1.i_category, v1.i_brand, v1.cc_name, v1.d_year, v1.d_moy, v1.avg_monthly_sales,
         v1.sum_sales, v1_lag.sum_sales psum, v1_lead.sum_sales nsum
  FROM v1, v1 v1_lag, v1 v1_lead
  WHERE v1.i_category = v1_lag.i_category AND v1.i_category = v1_lead.i_category
    AND v1.i_brand = v1_lag.i_brand AND v1.i_brand = v1_lead.i_brand
    AND v1.cc_name = v1_lag.cc_name AND v1.cc_name = v1_lead.cc_name
    AND v1.rn = v1_lag.rn + 1 AND v1.rn = v1_lead.rn - 1)
SELECT * FROM v2
WHERE d_year = 2000 AND avg_monthly_sales > 0
  AND CASE WHEN avg_monthly_sales > 0 THEN abs(sum_sales - avg_monthly_sales) / avg_monthly_sales
           ELSE NULL END > 0.1
ORDER BY sum_sales - avg_monthly_sales, i_category, i_brand, cc_name, d_moy LIMIT 100"""
QUERIES[59] = f"""
WITH wss AS (
  SELECT d_week_seq, ss_store_sk, {_WEEK} FROM {{store_sales}}, {{date_dim}}
  WHERE d_date_sk = ss_sold_date_sk GROUP BY d_week_seq, ss_store_sk)
SELECT s_store_name1, s_store_id1, d_week_seq1, sun_sales1 / sun_sales2, mon_sales1 / mon_sales2,
       wed_sales1 / wed_sales2, sat_sales1 / sat_sales2
FROM (SELECT s_store_name s_store_name1, wss.d_week_seq d_week_seq1, s_store_id s_store_id1,
             sun_sales sun_sales1, mon_sales mon_sales1, wed_sales wed_sales1, sat_sales sat_sales1
      FROM wss, {{store}}, {{date_dim}} d
      WHERE d.d_week_seq = wss.d_week_seq AND ss_store_sk = s_store_sk
        AND d_month_seq BETWEEN 360 AND 360 + 11) y,
     (SELECT s_store_name s_store_name2, wss.d_week_seq d_week_seq2, s_store_id s_store_id2,
             nullif(sun_sales, 0) sun_sales2, nullif(mon_sales, 0) mon_sales2,
             nullif(wed_sales, 0) wed_sales2, nullif(sat_sales, 0) sat_sales2
      FROM wss, {{store}}, {{date_dim}} d
      WHERE d.d_week_seq = wss.d_week_seq AND ss_store_sk = s_store_sk
        AND d_month_seq BETWEEN 360 + 12 AND 360 + 23) x
WHERE s_store_id1 = s_store_id2 AND d_week_seq1 = d_week_seq2 - 52
ORDER BY s_store_name1, s_store_id1, d_week_seq1"""
QUERIES[64] = """
WITH cs_ui AS (
  SELECT cs_item_sk, sum(cs_ext_list_price) AS sale,
         sum(cr_refunded_cash + cr_reversed_charge + cr_return_ship_cost) AS refund
  FROM {catalog_sales}, {catalog_returns}
  WHERE cs_item_sk = cr_item_sk
  GROUP BY cs_item_sk
  HAVING sum(cs_ext_list_price)
         > 0.1 * sum(cr_refunded_cash + cr_reversed_charge + cr_return_ship_cost)),
cross_sales AS (
  SELECT i_product_name product_name, i_item_sk item_sk, s_store_name store_name, s_zip store_zip,
         ad1.ca_city b_city, ad2.ca_city c_city, d1.d_year AS syear, d2.d_year AS fsyear,
         count(*) cnt, sum(ss_wholesale_cost) s1, sum(ss_list_price) s2, sum(ss_coupon_amt) s3
  FROM {store_sales}, {store_returns}, cs_ui, {date_dim} d1, {date_dim} d2, {store}, {customer},
       {customer_demographics} cd1, {customer_demographics} cd2, {promotion},
       {household_demographics} hd1, {household_demographics} hd2, {customer_address} ad1,
       {customer_address} ad2, {income_band} ib1, {income_band} ib2, {item}
  WHERE ss_store_sk = s_store_sk AND ss_sold_date_sk = d1.d_date_sk
    AND ss_customer_sk = c_customer_sk AND ss_cdemo_sk = cd1.cd_demo_sk
    AND ss_hdemo_sk = hd1.hd_demo_sk AND ss_addr_sk = ad1.ca_address_sk AND ss_item_sk = i_item_sk
    AND ss_item_sk = sr_item_sk AND ss_item_sk = cs_ui.cs_item_sk
    AND c_current_cdemo_sk = cd2.cd_demo_sk AND c_current_hdemo_sk = hd2.hd_demo_sk
    AND c_current_addr_sk = ad2.ca_address_sk AND c_first_sales_date_sk = d2.d_date_sk
    AND ss_promo_sk = p_promo_sk AND hd1.hd_income_band_sk = ib1.ib_income_band_sk
    AND hd2.hd_income_band_sk = ib2.ib_income_band_sk
    AND cd1.cd_marital_status <> cd2.cd_marital_status AND i_color IN ('red', 'blue', 'slate')
    AND i_current_price BETWEEN 64 AND 64 + 100
  GROUP BY i_product_name, i_item_sk, s_store_name, s_zip, ad1.ca_city, ad2.ca_city, d1.d_year,
           d2.d_year)
SELECT cs1.product_name, cs1.store_name, cs1.store_zip, cs1.b_city, cs1.c_city, cs1.syear, cs1.cnt,
       cs1.s1 AS s11, cs1.s2 AS s21, cs1.s3 AS s31, cs2.s1 AS s12, cs2.s2 AS s22, cs2.syear, cs2.cnt
FROM cross_sales cs1, cross_sales cs2
WHERE cs1.item_sk = cs2.item_sk AND cs1.syear = 2000 AND cs2.syear = 2000 + 1
  AND cs2.cnt <= cs1.cnt AND cs1.store_name = cs2.store_name AND cs1.store_zip = cs2.store_zip
ORDER BY cs1.product_name, cs1.store_name, cs2.cnt, cs1.s1, cs2.s1"""
QUERIES[65] = """
SELECT s_store_name, i_item_desc, sc.revenue, i_current_price, i_wholesale_cost, i_brand
FROM {store}, {item},
     (SELECT ss_store_sk, avg(revenue) AS ave
      FROM (SELECT ss_store_sk, ss_item_sk, sum(ss_sales_price) AS revenue
            FROM {store_sales}, {date_dim}
            WHERE ss_sold_date_sk = d_date_sk AND d_month_seq BETWEEN 360 AND 371
            GROUP BY ss_store_sk, ss_item_sk) sa
      GROUP BY ss_store_sk) sb,
     (SELECT ss_store_sk, ss_item_sk, sum(ss_sales_price) AS revenue
      FROM {store_sales}, {date_dim}
      WHERE ss_sold_date_sk = d_date_sk AND d_month_seq BETWEEN 360 AND 371
      GROUP BY ss_store_sk, ss_item_sk) sc
WHERE sb.ss_store_sk = sc.ss_store_sk AND sc.revenue <= 0.2 * sb.ave
  AND s_store_sk = sc.ss_store_sk AND i_item_sk = sc.ss_item_sk
ORDER BY s_store_name, i_item_desc, sc.revenue"""
_MONTHS = ((1, "jan"), (2, "feb"), (3, "mar"), (6, "jun"), (9, "sep"), (12, "dec"))


def _of_months(prefix, sales, price, paid):
    months = ", ".join(
        f"sum(CASE WHEN d_moy = {number} THEN {prefix}_{price} * {prefix}_quantity ELSE 0 END) "
        f"AS {name}_sales, sum(CASE WHEN d_moy = {number} THEN {prefix}_{paid} * {prefix}_quantity "
        f"ELSE 0 END) AS {name}_net"
        for number, name in _MONTHS
    )
    return f"""
  SELECT w_warehouse_name, w_warehouse_sq_ft, w_city, w_county, w_state, w_country,
         'DHL' || ',' || 'ZEUS' AS ship_carriers, d_year AS year, {months}
  FROM {{{sales}}}, {{warehouse}}, {{date_dim}}, {{time_dim}}, {{ship_mode}}
  WHERE {prefix}_warehouse_sk = w_warehouse_sk AND {prefix}_sold_date_sk = d_date_sk
    AND {prefix}_sold_time_sk = t_time_sk AND {prefix}_ship_mode_sk = sm_ship_mode_sk
    AND d_year = 2001 AND t_time BETWEEN 3083 AND 3083 + 48800 AND sm_carrier IN ('DHL', 'ZEUS')
  GROUP BY w_warehouse_name, w_warehouse_sq_ft, w_city, w_county, w_state, w_country, d_year"""


QUERIES[66] = f"""
SELECT w_warehouse_name, w_warehouse_sq_ft, w_city, w_county, w_state, w_country, ship_carriers,
       year, {", ".join(f"sum({name}_sales), sum({name}_sales / w_warehouse_sq_ft), sum({name}_net)" for _, name in _MONTHS)}
FROM ({_of_months("ws", "web_sales", "ext_sales_price", "net_paid")}
  UNION ALL {_of_months("cs", "catalog_sales", "sales_price", "net_paid_inc_tax")}) x
GROUP BY w_warehouse_name, w_warehouse_sq_ft, w_city, w_county, w_state, w_country, ship_carriers,
         year
ORDER BY w_warehouse_name LIMIT 100"""
QUERIES[68] = """
SELECT c_last_name, c_first_name, ca_city, bought_city, ss_ticket_number, extended_price,
       extended_tax, list_price
FROM (SELECT ss_ticket_number, ss_customer_sk, ca_city bought_city,
             sum(ss_ext_sales_price) extended_price, sum(ss_ext_list_price) list_price,
             sum(ss_ext_tax) extended_tax
      FROM {store_sales}, {date_dim}, {store}, {household_demographics}, {customer_address}
      WHERE ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk AND ss_hdemo_sk = hd_demo_sk
        AND ss_addr_sk = ca_address_sk AND d_dom BETWEEN 1 AND 12
        AND (hd_dep_count = 5 OR hd_vehicle_count = 3) AND d_year IN (1999, 1999 + 1, 1999 + 2)
        AND s_city IN ('Midway', 'Fairview')
      GROUP BY ss_ticket_number, ss_customer_sk, ss_addr_sk, ca_city) dn,
     {customer}, {customer_address} current_addr
WHERE ss_customer_sk = c_customer_sk AND c_current_addr_sk = current_addr.ca_address_sk
  AND current_addr.ca_city <> bought_city
ORDER BY c_last_name, ss_ticket_number, extended_price, ca_city"""
QUERIES[71] = """
SELECT i_brand_id brand_id, i_brand brand, t_hour, t_minute, sum(ext_price) ext_price
FROM {item},
     (SELECT ws_ext_sales_price AS ext_price, ws_item_sk AS sold_item_sk, ws_sold_time_sk AS time_sk
      FROM {web_sales}, {date_dim} WHERE d_date_sk = ws_sold_date_sk AND d_moy = 11
      UNION ALL
      SELECT cs_ext_sales_price, cs_item_sk, cs_sold_time_sk FROM {catalog_sales}, {date_dim}
      WHERE d_date_sk = cs_sold_date_sk AND d_moy = 11
      UNION ALL
      SELECT ss_ext_sales_price, ss_item_sk, ss_sold_time_sk FROM {store_sales}, {date_dim}
      WHERE d_date_sk = ss_sold_date_sk AND d_moy = 11) tmp, {time_dim}
WHERE sold_item_sk = i_item_sk AND i_manager_id = 1 AND time_sk = t_time_sk
  AND (t_meal_time = 'breakfast' OR t_meal_time = 'dinner')
GROUP BY i_brand, i_brand_id, t_hour, t_minute ORDER BY ext_price DESC, i_brand_id"""
QUERIES[73] = """
SELECT c_last_name, c_first_name, c_salutation, c_preferred_cust_flag, ss_ticket_number, cnt
FROM (SELECT ss_ticket_number, ss_customer_sk, count(*) cnt
      FROM {store_sales}, {date_dim}, {store}, {household_demographics}
      WHERE ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk AND ss_hdemo_sk = hd_demo_sk
        AND d_dom BETWEEN 1 AND 12 AND (hd_buy_potential = '>10000' OR hd_buy_potential = 'Unknown')
        AND hd_vehicle_count > 0
        AND CASE WHEN hd_vehicle_count > 0 THEN hd_dep_count / hd_vehicle_count ELSE NULL END > 1
        AND d_year IN (1999, 1999 + 1, 1999 + 2) AND s_county IN ('Ash', 'Bay')
      GROUP BY ss_ticket_number, ss_customer_sk) dj, {customer}
WHERE ss_customer_sk = c_customer_sk AND cnt BETWEEN 1 AND 5
ORDER BY cnt DESC, c_last_name, c_first_name, ss_ticket_number"""
QUERIES[74] = (
    _year_totals("sum(x_net_paid)", (_CHANNELS[0], _CHANNELS[2]))
    + """
SELECT s2.customer_id, s2.first_name, s2.last_name
FROM year_total s1, year_total s2, year_total w1, year_total w2
WHERE s2.customer_id = s1.customer_id AND s1.customer_id = w2.customer_id
  AND s1.customer_id = w1.customer_id AND s1.sale_type = 's' AND w1.sale_type = 'w'
  AND s2.sale_type = 's' AND w2.sale_type = 'w' AND s1.dyear = 2000 AND s2.dyear = 2000 + 1
  AND w1.dyear = 2000 AND w2.dyear = 2000 + 1 AND s1.year_total > 0 AND w1.year_total > 0
  AND CASE WHEN w1.year_total > 0 THEN w2.year_total / w1.year_total ELSE NULL END
      > CASE WHEN s1.year_total > 0 THEN s2.year_total / s1.year_total ELSE NULL END
ORDER BY 2, 1, 3"""
)
QUERIES[77] = """
WITH ss AS (
  SELECT s_store_sk, sum(ss_ext_sales_price) AS sales, sum(ss_net_profit) AS profit
  FROM {store_sales}, {date_dim}, {store}
  WHERE ss_sold_date_sk = d_date_sk
    AND d_date BETWEEN cast('2000-08-03' AS date) AND (cast('2000-08-03' AS date) + INTERVAL 30 days)
    AND ss_store_sk = s_store_sk
  GROUP BY s_store_sk),
sr AS (
  SELECT s_store_sk, sum(sr_return_amt) AS returns, sum(sr_net_loss) AS profit_loss
  FROM {store_returns}, {date_dim}, {store}
  WHERE sr_returned_date_sk = d_date_sk
    AND d_date BETWEEN cast('2000-08-03' AS date) AND (cast('2000-08-03' AS date) + INTERVAL 30 days)
    AND sr_store_sk = s_store_sk
  GROUP BY s_store_sk),
cs AS (
  SELECT cs_call_center_sk, sum(cs_ext_sales_price) AS sales, sum(cs_net_profit) AS profit
  FROM {catalog_sales}, {date_dim}
  WHERE cs_sold_date_sk = d_date_sk
    AND d_date BETWEEN cast('2000-08-03' AS date) AND (cast('2000-08-03' AS date) + INTERVAL 30 days)
  GROUP BY cs_call_center_sk),
cr AS (
  SELECT sum(cr_return_amount) AS returns, sum(cr_net_loss) AS profit_loss
  FROM {catalog_returns}, {date_dim}
  WHERE cr_returned_date_sk = d_date_sk
    AND d_date BETWEEN cast('2000-08-03' AS date) AND (cast('2000-08-03' AS date) + INTERVAL 30 days)),
ws AS (
  SELECT wp_web_page_sk, sum(ws_ext_sales_price) AS sales, sum(ws_net_profit) AS profit
  FROM {web_sales}, {date_dim}, {web_page}
  WHERE ws_sold_date_sk = d_date_sk
    AND d_date BETWEEN cast('2000-08-03' AS date) AND (cast('2000-08-03' AS date) + INTERVAL 30 days)
    AND ws_web_page_sk = wp_web_page_sk
  GROUP BY wp_web_page_sk),
wr AS (
  SELECT wp_web_page_sk, sum(wr_return_amt) AS returns, sum(wr_net_loss) AS profit_loss
  FROM {web_returns}, {date_dim}, {web_page}
  WHERE wr_returned_date_sk = d_date_sk
    AND d_date BETWEEN cast('2000-08-03' AS date) AND (cast('2000-08-03' AS date) + INTERVAL 30 days)
    AND wr_web_page_sk = wp_web_page_sk
  GROUP BY wp_web_page_sk)
SELECT channel, id, sum(sales) AS sales, sum(returns) AS returns, sum(profit) AS profit
FROM (SELECT 'store channel' AS channel, ss.s_store_sk AS id, sales,
             coalesce(returns, 0) AS returns, (profit - coalesce(profit_loss, 0)) AS profit
      FROM ss LEFT JOIN sr ON ss.s_store_sk = sr.s_store_sk
      UNION ALL
      SELECT 'catalog channel' AS channel, cs_call_center_sk AS id, sales, returns,
             (profit - profit_loss) AS profit
      FROM cs, cr
      UNION ALL
      SELECT 'web channel' AS channel, ws.wp_web_page_sk AS id, sales, coalesce(returns, 0) returns,
             (profit - coalesce(profit_loss, 0)) AS profit
      FROM ws LEFT JOIN wr ON ws.wp_web_page_sk = wr.wp_web_page_sk) x
GROUP BY ROLLUP (channel, id) ORDER BY channel, id"""
QUERIES[79] = """
SELECT c_last_name, c_first_name, substr(s_city, 1, 30), ss_ticket_number, amt, profit
FROM (SELECT ss_ticket_number, ss_customer_sk, s_city, sum(ss_coupon_amt) amt,
             sum(ss_net_profit) profit
      FROM {store_sales}, {date_dim}, {store}, {household_demographics}
      WHERE ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk AND ss_hdemo_sk = hd_demo_sk
        AND (hd_dep_count = 6 OR hd_vehicle_count > 2) AND d_dow = 1
        AND d_year IN (1999, 1999 + 1, 1999 + 2) AND s_number_employees BETWEEN 200 AND 295
      GROUP BY ss_ticket_number, ss_customer_sk, ss_addr_sk, s_city) ms, {customer}
WHERE ss_customer_sk = c_customer_sk
ORDER BY c_last_name, c_first_name, substr(s_city, 1, 30), profit, ss_ticket_number"""
_CHANNEL_DAYS = (
    "d_date BETWEEN cast('2000-08-03' AS date) AND (cast('2000-08-03' AS date) + INTERVAL 120 days)"
)


def _with_returns(name, label, sales, returns, keys, place):
    prefix, other, amount = name[:2], keys[0], keys[1]
    table, key, own = place
    return f"""{name} AS (
  SELECT {own} AS {label}, sum({prefix}_ext_sales_price) AS sales,
         sum(coalesce({other}_{amount}, 0)) AS returns,
         sum({prefix}_net_profit - coalesce({other}_net_loss, 0)) AS profit
  FROM {{{sales}}} LEFT OUTER JOIN {{{returns}}}
       ON ({prefix}_item_sk = {other}_item_sk AND {prefix}_{keys[2]} = {other}_{keys[2]}),
       {{date_dim}}, {{{table}}}, {{item}}, {{promotion}}
  WHERE {prefix}_sold_date_sk = d_date_sk AND {_CHANNEL_DAYS}
    AND {prefix}_{key} = {own.split("_")[0]}_{key} AND {prefix}_item_sk = i_item_sk
    AND i_current_price > 50 AND {prefix}_promo_sk = p_promo_sk AND p_channel_tv = 'N'
  GROUP BY {own})"""


QUERIES[80] = f"""
WITH {_with_returns("ssr", "store_id", "store_sales", "store_returns", ("sr", "return_amt", "ticket_number"), ("store", "store_sk", "s_store_id"))},
{_with_returns("csr", "catalog_page_id", "catalog_sales", "catalog_returns", ("cr", "return_amount", "order_number"), ("catalog_page", "catalog_page_sk", "cp_catalog_page_id"))},
{_with_returns("wsr", "web_site_id", "web_sales", "web_returns", ("wr", "return_amt", "order_number"), ("web_site", "site_sk", "web_site_id")).replace("ws_site_sk", "ws_web_site_sk")}
SELECT channel, id, sum(sales) AS sales, sum(returns) AS returns, sum(profit) AS profit
FROM (SELECT 'store channel' AS channel, 'store' || store_id AS id, sales, returns, profit FROM ssr
      UNION ALL
      SELECT 'catalog channel', 'catalog_page' || catalog_page_id, sales, returns, profit FROM csr
      UNION ALL
      SELECT 'web channel', 'web_site' || web_site_id, sales, returns, profit FROM wsr) x
GROUP BY ROLLUP (channel, id) ORDER BY channel, id LIMIT 100"""
QUERIES[81] = """
WITH customer_total_return AS (
  SELECT cr_returning_customer_sk AS ctr_customer_sk, ca_state AS ctr_state,
         sum(cr_return_amt_inc_tax) AS ctr_total_return
  FROM {catalog_returns}, {date_dim}, {customer_address}
  WHERE cr_returned_date_sk = d_date_sk AND d_year = 2000 AND cr_returning_addr_sk = ca_address_sk
  GROUP BY cr_returning_customer_sk, ca_state)
SELECT c_customer_id, c_salutation, c_first_name, c_last_name, ca_street_number, ca_street_name,
       ca_city, ca_county, ca_state, ca_zip, ca_country, ca_gmt_offset, ca_location_type,
       ctr_total_return
FROM customer_total_return ctr1, {customer_address}, {customer}
WHERE ctr1.ctr_total_return > (SELECT avg(ctr_total_return) * 1.2 FROM customer_total_return ctr2
                               WHERE ctr1.ctr_state = ctr2.ctr_state)
  AND ca_address_sk = c_current_addr_sk AND ca_state IN ('GA', 'TX', 'OH')
  AND ctr1.ctr_customer_sk = c_customer_sk
ORDER BY c_customer_id, c_salutation, c_first_name, c_last_name, ca_street_number, ca_street_name,
         ca_city, ca_county, ca_state, ca_zip, ctr_total_return"""


def _returned_items(name, table, prefix):
    return f"""{name} AS (
  SELECT i_item_id item_id, sum({prefix}_return_quantity) {prefix}_item_qty
  FROM {{{table}}}, {{item}}, {{date_dim}}
  WHERE {prefix}_item_sk = i_item_sk
    AND d_date IN (SELECT d_date FROM {{date_dim}} WHERE d_month_seq IN (
                     SELECT d_month_seq FROM {{date_dim}}
                     WHERE d_date IN ('2000-06-30', '2000-09-27', '2000-11-17')))
    AND {prefix}_returned_date_sk = d_date_sk
  GROUP BY i_item_id)"""


QUERIES[83] = f"""
WITH {_returned_items("sr_items", "store_returns", "sr")},
{_returned_items("cr_items", "catalog_returns", "cr")},
{_returned_items("wr_items", "web_returns", "wr")}
SELECT sr_items.item_id, sr_item_qty,
       sr_item_qty / (sr_item_qty + cr_item_qty + wr_item_qty) / 3.0 * 100 sr_dev, cr_item_qty,
       cr_item_qty / (sr_item_qty + cr_item_qty + wr_item_qty) / 3.0 * 100 cr_dev, wr_item_qty,
       (sr_item_qty + cr_item_qty + wr_item_qty) / 3.0 average
FROM sr_items, cr_items, wr_items
WHERE sr_items.item_id = cr_items.item_id AND sr_items.item_id = wr_items.item_id
  AND sr_item_qty + cr_item_qty + wr_item_qty > 0
ORDER BY sr_items.item_id, sr_item_qty LIMIT 100"""
QUERIES[85] = """
SELECT substr(r_reason_desc, 1, 20), avg(ws_quantity), avg(wr_refunded_cash), avg(wr_fee)
FROM {web_sales}, {web_returns}, {web_page}, {customer_demographics} cd1,
     {customer_demographics} cd2, {customer_address}, {date_dim}, {reason}
WHERE ws_web_page_sk = wp_web_page_sk AND ws_item_sk = wr_item_sk
  AND ws_sold_date_sk = d_date_sk AND d_year = 2000 AND cd1.cd_demo_sk = wr_refunded_cdemo_sk
  AND cd2.cd_demo_sk = wr_returning_cdemo_sk AND ca_address_sk = wr_refunded_addr_sk
  AND r_reason_sk = wr_reason_sk
  AND ((cd1.cd_marital_status = 'M' AND cd1.cd_marital_status = cd2.cd_marital_status
        AND ws_sales_price BETWEEN 10.00 AND 150.00)
    OR (cd1.cd_education_status = 'College' AND cd1.cd_education_status = cd2.cd_education_status
        AND ws_sales_price BETWEEN 50.00 AND 200.00))
  AND ((ca_country = 'US' AND ca_state IN ('OH', 'CA', 'TX')
        AND ws_net_profit BETWEEN 0 AND 200)
    OR (ca_country = 'US' AND ca_state IN ('GA', 'TN') AND ws_net_profit BETWEEN 50 AND 250))
GROUP BY r_reason_desc
ORDER BY substr(r_reason_desc, 1, 20), avg(ws_quantity), avg(wr_refunded_cash), avg(wr_fee)"""
QUERIES[89] = """
SELECT * FROM
  (SELECT i_category, i_class, i_brand, s_store_name, s_company_name, d_moy,
          sum(ss_sales_price) sum_sales,
          avg(sum(ss_sales_price)) OVER (PARTITION BY i_category, i_brand, s_store_name,
                                                      s_company_name) avg_monthly_sales
   FROM {item}, {store_sales}, {date_dim}, {store}
   WHERE ss_item_sk = i_item_sk AND ss_sold_date_sk = d_date_sk AND ss_store_sk = s_store_sk
     AND d_year IN (2000)
     AND ((i_category IN ('Books', 'Sports') AND i_class IN ('pants', 'rock'))
       OR (i_category IN ('Women', 'Music') AND i_class IN ('shirts')))
   GROUP BY i_category, i_class, i_brand, s_store_name, s_company_name, d_moy) tmp1
WHERE CASE WHEN (avg_monthly_sales <> 0) THEN (abs(sum_sales - avg_monthly_sales) / avg_monthly_sales)
           ELSE NULL END > 0.1
ORDER BY sum_sales - avg_monthly_sales, s_store_name, i_category, i_class, i_brand, d_moy"""
QUERIES[90] = """
SELECT cast(amc AS decimal(15, 4)) / cast(nullif(pmc, 0) AS decimal(15, 4)) am_pm_ratio
FROM (SELECT count(*) amc FROM {web_sales}, {household_demographics}, {time_dim}, {web_page}
      WHERE ws_sold_time_sk = {time_dim}.t_time_sk AND ws_ship_hdemo_sk = hd_demo_sk
        AND ws_web_page_sk = wp_web_page_sk AND {time_dim}.t_hour BETWEEN 8 AND 8 + 4
        AND hd_dep_count BETWEEN 2 AND 6 AND wp_char_count BETWEEN 5000 AND 5200) at,
     (SELECT count(*) pmc FROM {web_sales}, {household_demographics}, {time_dim}, {web_page}
      WHERE ws_sold_time_sk = {time_dim}.t_time_sk AND ws_ship_hdemo_sk = hd_demo_sk
        AND ws_web_page_sk = wp_web_page_sk AND {time_dim}.t_hour BETWEEN 16 AND 16 + 4
        AND hd_dep_count BETWEEN 2 AND 6 AND wp_char_count BETWEEN 5000 AND 5200) pt
ORDER BY am_pm_ratio LIMIT 100"""
QUERIES[91] = """
SELECT cc_call_center_id, cc_name, cc_manager, sum(cr_net_loss) returns_loss
FROM {call_center}, {catalog_returns}, {date_dim}, {customer}, {customer_address},
     {customer_demographics}, {household_demographics}
WHERE cr_call_center_sk = cc_call_center_sk AND cr_returned_date_sk = d_date_sk
  AND cr_returning_customer_sk = c_customer_sk AND cd_demo_sk = c_current_cdemo_sk
  AND hd_demo_sk = c_current_hdemo_sk AND ca_address_sk = c_current_addr_sk AND d_year = 2000
  AND ((cd_marital_status = 'M' AND cd_education_status = 'Unknown')
    OR (cd_marital_status = 'W' AND cd_education_status = 'College'))
  AND hd_buy_potential LIKE 'Unknown%' AND ca_gmt_offset = -6
GROUP BY cc_call_center_id, cc_name, cc_manager, cd_marital_status, cd_education_status
ORDER BY sum(cr_net_loss) DESC, cc_call_center_id, cc_name, cc_manager"""
QUERIES[92] = """
SELECT sum(ws_ext_discount_amt) AS `Excess Discount Amount`
FROM {web_sales}, {item}, {date_dim}
WHERE i_manufact_id = 5 AND i_item_sk = ws_item_sk AND d_date BETWEEN '2000-01-27'
      AND (cast('2000-01-27' AS date) + INTERVAL 90 days) AND d_date_sk = ws_sold_date_sk
  AND ws_ext_discount_amt > (
    SELECT 1.3 * avg(ws_ext_discount_amt) FROM {web_sales}, {date_dim}
    WHERE ws_item_sk = i_item_sk AND d_date BETWEEN '2000-01-27'
          AND (cast('2000-01-27' AS date) + INTERVAL 90 days) AND d_date_sk = ws_sold_date_sk)
ORDER BY sum(ws_ext_discount_amt) LIMIT 100"""
QUERIES[94] = """
SELECT count(DISTINCT ws_order_number) AS `order count`,
       sum(ws_ext_ship_cost) AS `total shipping cost`, sum(ws_net_profit) AS `total net profit`
FROM {web_sales} ws1, {date_dim}, {customer_address}, {web_site}
WHERE d_date BETWEEN '1999-02-01' AND (cast('1999-02-01' AS date) + INTERVAL 180 days)
  AND ws1.ws_ship_date_sk = d_date_sk AND ws1.ws_ship_addr_sk = ca_address_sk AND ca_state = 'TX'
  AND ws1.ws_web_site_sk = web_site_sk AND web_company_name = 'pri'
  AND EXISTS (SELECT * FROM {web_sales} ws2 WHERE ws1.ws_order_number = ws2.ws_order_number
                AND ws1.ws_warehouse_sk <> ws2.ws_warehouse_sk)
  AND NOT EXISTS (SELECT * FROM {web_returns} wr1 WHERE ws1.ws_order_number = wr1.wr_order_number)
ORDER BY count(DISTINCT ws_order_number) LIMIT 100"""
QUERIES[95] = """
WITH ws_wh AS (
  SELECT ws1.ws_order_number, ws1.ws_warehouse_sk wh1, ws2.ws_warehouse_sk wh2
  FROM {web_sales} ws1, {web_sales} ws2
  WHERE ws1.ws_order_number = ws2.ws_order_number AND ws1.ws_warehouse_sk <> ws2.ws_warehouse_sk)
SELECT count(DISTINCT ws_order_number) AS `order count`,
       sum(ws_ext_ship_cost) AS `total shipping cost`, sum(ws_net_profit) AS `total net profit`
FROM {web_sales} ws1, {date_dim}, {customer_address}, {web_site}
WHERE d_date BETWEEN '1999-02-01' AND (cast('1999-02-01' AS date) + INTERVAL 180 days)
  AND ws1.ws_ship_date_sk = d_date_sk AND ws1.ws_ship_addr_sk = ca_address_sk AND ca_state = 'TX'
  AND ws1.ws_web_site_sk = web_site_sk AND web_company_name = 'pri'
  AND ws1.ws_order_number IN (SELECT ws_order_number FROM ws_wh)
  AND ws1.ws_order_number IN (SELECT wr_order_number FROM {web_returns}, ws_wh
                              WHERE wr_order_number = ws_wh.ws_order_number)
ORDER BY count(DISTINCT ws_order_number) LIMIT 100"""
QUERIES[96] = """
SELECT count(*) FROM {store_sales}, {household_demographics}, {time_dim}, {store}
WHERE ss_sold_time_sk = {time_dim}.t_time_sk AND ss_hdemo_sk = hd_demo_sk
  AND ss_store_sk = s_store_sk AND {time_dim}.t_hour = 20 AND {time_dim}.t_minute >= 30
  AND hd_dep_count = 7 AND s_store_name = 'ese'
ORDER BY count(*) LIMIT 100"""
