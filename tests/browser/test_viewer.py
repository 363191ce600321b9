"""The page of `lancelet view`, driven by a browser, and hostile requests to its server."""

import http.client
import io
import json
import shutil
import subprocess
import sys
import zlib
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pyarrow as pa
import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

import lancelet

PATIENCE_SECONDS = 60
ROWS = 2_000


def png(red: int) -> bytes:
    """Return a picture of one red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return len(data).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    out = io.BytesIO(b"\x89PNG\r\n\x1a\n")
    out.seek(0, io.SEEK_END)
    out.write(chunk(b"IHDR", bytes([0, 0, 0, 1, 0, 0, 0, 1, 8, 2, 0, 0, 0])))
    out.write(chunk(b"IDAT", zlib.compress(bytes([0, red, 0, 0]))))
    out.write(chunk(b"IEND", b""))
    return out.getvalue()


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """Return a folder with two tables."""
    folder = tmp_path_factory.mktemp("shop")
    rng = np.random.default_rng(1)
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(rng.normal(size=ROWS * 16).astype(np.float32)), 16
    )
    rows = pa.table(
        {
            "id": range(ROWS),
            "name": [f"fox number {i}" if i % 7 else None for i in range(ROWS)],
            "price": rng.random(ROWS),
            "kind": [("red", "gray")[i % 2] for i in range(ROWS)],
            "photo": pa.array([png(i % 256) for i in range(ROWS)], pa.large_binary()),
            "vector": vectors,
            "facts": [{"color": "red", "sizes": [i, i + 1]} for i in range(ROWS)],
        }
    )
    table = lancelet.write_dataset(rows, str(folder / "animals.lance"))
    table.create_scalar_index("name", "INVERTED")
    table.create_index("vector", "IVF_FLAT", num_partitions=4)
    table.tags.create("first")
    table.delete("id = 3")
    lancelet.write_dataset(pa.table({"x": [1, 2, 3]}), str(folder / "deep" / "small.lance"))
    return folder


def served(folder, *options):
    """Yield the address of the page over a folder, and stop the server afterwards."""
    program = [sys.executable, "-m", "lancelet", "view", str(folder), "--no-browser", *options]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


@pytest.fixture(scope="session")
def address(shop):
    """Return the address of a page that may change tables."""
    yield from served(shop, "--write")


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Return a headless browser."""
    options = Options()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1280,900",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, address):
    """Return the browser with the page open at the larger table, and fail on errors of scripts."""
    browser.get(address)
    until(browser, lambda: "animals.lance" in browser.title)
    browser.get_log("browser")
    yield browser
    problems = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    # A refused request is logged by the browser; everything else is a defect of the page.
    assert [entry for entry in problems if "/api/" not in entry["message"]] == []


def until(browser, holds):
    """Wait until something holds, and return it."""

    def tried(_):
        found = holds()
        return found or False

    redrawn = [StaleElementReferenceException]
    return WebDriverWait(browser, PATIENCE_SECONDS, ignored_exceptions=redrawn).until(tried)


def go(page, view, **given):
    page.find_element(By.ID, f"view-{view}").click()
    if given:
        query = urlencode({"t": "animals.lance", **given})
        page.execute_script(f"location.hash = '{view}?{query}'")


def rows(page):
    return page.find_elements(By.CSS_SELECTOR, "main tbody tr")


def text(page, selector):
    found = page.find_elements(By.CSS_SELECTOR, selector)
    return found[0].text if found else ""


def test_rows_are_paged_sorted_and_filtered(page):
    go(page, "rows")
    until(page, lambda: f"1 to 50 of {ROWS - 1:,}" in text(page, "#where"))
    assert len(rows(page)) == 50
    page.find_element(By.XPATH, "//button[text()='Last']").click()
    until(page, lambda: f"of {ROWS - 1:,}" in text(page, "#where") and rows(page))
    until(page, lambda: str(ROWS - 1) in text(page, "main tbody tr:last-child td"))
    go(page, "rows", order="id", descending="1", limit="5")
    until(page, lambda: text(page, "main tbody td") == str(ROWS - 1))
    assert len(rows(page)) == 5
    go(page, "rows", filter="id < 5")
    until(page, lambda: "1 to 4 of 4" in text(page, "#where"))
    until(page, lambda: text(page, "main tbody tr td:nth-child(2)") == "null")


def test_words_of_a_filter_are_completed(page):
    go(page, "rows")
    box = until(page, lambda: page.find_element(By.NAME, "filter"))
    until(page, lambda: rows(page))
    box = page.find_element(By.NAME, "filter")
    box.send_keys("id > 3 AND pri")
    offered = [
        option.get_attribute("value")
        for option in page.find_elements(By.CSS_SELECTOR, "#completions option")
    ]
    assert "id > 3 AND price" in offered


def test_an_error_in_a_filter_points_at_its_place(page):
    go(page, "rows", filter="prise > 3")
    told = until(page, lambda: text(page, "pre.error"))
    assert "prise" in told
    assert "^" in told


def test_images_vectors_and_nested_values_are_shown(page):
    go(page, "rows", limit="3")
    until(page, lambda: len(rows(page)) == 3)
    picture = page.find_element(By.CSS_SELECTOR, "main td img")
    until(page, lambda: page.execute_script("return arguments[0].naturalWidth", picture) == 1)
    assert page.find_elements(By.CSS_SELECTOR, "main td svg.spark polyline")
    rows(page)[0].click()
    until(page, lambda: "sizes" in text(page, "#detail"))
    assert "red" in text(page, "#detail")
    page.find_element(By.ID, "close").click()


def test_rows_are_reached_by_keyboard(page):
    go(page, "rows", limit="4")
    until(page, lambda: len(rows(page)) == 4)
    page.execute_script("arguments[0].focus()", rows(page)[0])
    page.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    page.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    page.switch_to.active_element.send_keys(Keys.ENTER)
    until(page, lambda: "fox number 2" in text(page, "#detail"))
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    until(page, lambda: not page.find_element(By.ID, "details").is_displayed())


def test_texts_and_vectors_are_searched_together_and_alone(page):
    go(page, "search", text="number 17")
    until(page, lambda: rows(page) and "fox number 17" in text(page, "main tbody"))
    go(page, "search", column="vector", row="5")
    until(page, lambda: rows(page) and text(page, "main tbody td") == "5")
    vector = ",".join(["0.5"] * 16)
    go(page, "search", text="number 17", column="vector", vector=vector)
    until(page, lambda: rows(page))
    go(page, "search", column="vector", vector="no, numbers")
    assert "comma-separated" in until(page, lambda: text(page, "pre.error"))


def test_versions_are_a_line_with_tags_and_differences(page):
    go(page, "versions")
    until(page, lambda: "Delete" in text(page, "ol.line"))
    assert text(page, "ol.line .tag") == "first"
    page.find_element(By.XPATH, "//button[text()='Compare']").click()
    until(page, lambda: text(page, "#difference"))


def test_bytes_indices_and_plans_are_shown(page):
    go(page, "pages")
    until(page, lambda: len(page.find_elements(By.CSS_SELECTOR, ".map")) >= 6)
    go(page, "indices")
    until(page, lambda: "vector_idx" in text(page, "main"))
    page.find_element(By.XPATH, "//button[text()='Measure recall']").click()
    until(page, lambda: "recall=" in text(page, "main"))
    go(page, "plan", filter="id > 3", measure="1")
    until(page, lambda: "measured" in text(page, "#plan"))
    go(page, "health", level="decode")
    until(page, lambda: text(page, "#healthy"))


def test_a_change_is_previewed_and_then_applied(page, shop):
    before = lancelet.dataset(str(shop / "deep" / "small.lance")).version
    Select(page.find_element(By.ID, "tables")).select_by_visible_text("deep/small.lance")
    until(page, lambda: "small" in page.title)
    page.find_element(By.ID, "view-change").click()
    until(page, lambda: page.find_elements(By.ID, "apply"))
    page.find_element(By.NAME, "filter").send_keys("x = 1")
    page.find_element(By.XPATH, "//button[text()='Preview']").click()
    until(page, lambda: "nothing has changed" in text(page, "#outcome"))
    assert lancelet.dataset(str(shop / "deep" / "small.lance")).version == before
    page.find_element(By.ID, "apply").click()
    until(page, lambda: "Done" in text(page, "#outcome"))
    assert lancelet.dataset(str(shop / "deep" / "small.lance")).count_rows() == 2


def test_tables_are_listed_with_their_sizes(page):
    go(page, "tables")
    until(page, lambda: "animals.lance" in text(page, "main tbody"))
    assert f"{ROWS - 1:,}" in text(page, "main tbody")
    page.find_element(By.XPATH, "//main//button[text()='deep/small.lance']").click()
    until(page, lambda: "small" in page.title)


def test_columns_have_histograms_frequent_values_and_facets(page):
    go(page, "statistics")
    until(page, lambda: page.find_elements(By.CSS_SELECTOR, ".statistics .bars span"))
    assert f"all {ROWS - 1:,} rows" in text(page, "#sample")
    assert "14.3 % null" in page.find_element(By.XPATH, "//section[h2='name']").text
    page.find_element(By.XPATH, "//section[h2='kind']//button[text()='red']").click()
    until(page, lambda: f"of {ROWS // 2:,}" in text(page, "#where"))


def test_sql_runs_and_shows_errors_in_place(page):
    go(page, "sql", query="SELECT count(*) AS n FROM dataset WHERE id < 10")
    until(page, lambda: text(page, "main tbody td") == "9")
    go(page, "sql", query="SELECT missing FROM dataset")
    assert "missing" in until(page, lambda: text(page, "pre.error"))
    go(page, "sql", query="COPY (SELECT 1) TO '/tmp/x.csv'")
    assert "COPY" in until(page, lambda: text(page, "pre.error"))


def test_rows_are_exported_with_the_filter_and_columns_of_the_page(page, address):
    go(page, "rows", filter="id < 5", columns='["id", "name"]')
    until(page, lambda: page.find_elements(By.CSS_SELECTOR, "#exports a"))
    assert len(page.find_elements(By.CSS_SELECTOR, "main thead th")) == 2
    links = page.find_elements(By.CSS_SELECTOR, "#exports a")
    queries = {link.text: urlsplit(link.get_attribute("href")) for link in links}
    assert set(queries) == {"CSV", "JSON", "PARQUET", "ARROW"}
    status, data = reply(address, f"/api/export?{queries['CSV'].query}")
    assert (status, data.splitlines()[:2]) == (200, ["id,name", "0,"])
    assert len(json.loads(reply(address, f"/api/export?{queries['JSON'].query}")[1])) == 4
    for name, magic in (("PARQUET", "PAR1"), ("ARROW", "ARROW1")):
        assert reply(address, f"/api/export?{queries[name].query}")[1].startswith(magic)
    status, told = reply(address, "/api/export?table=animals.lance&format=exe")
    assert (status, json.loads(told)["kind"]) == (400, "InvalidInputError")


def test_columns_are_chosen(page):
    go(page, "rows", limit="3")
    until(page, lambda: len(rows(page)) == 3)
    page.find_element(By.CSS_SELECTOR, "#columns summary").click()
    for box in page.find_elements(By.CSS_SELECTOR, "#columns input")[1:]:
        box.click()
    page.find_element(By.XPATH, "//details[@id='columns']//button").click()
    until(page, lambda: len(page.find_elements(By.CSS_SELECTOR, "main thead th")) == 1)


def test_a_row_has_neighbors_an_address_and_similar_rows(page):
    go(page, "rows", limit="3")
    until(page, lambda: len(rows(page)) == 3)
    rows(page)[0].click()
    until(page, lambda: "Row address 0" in text(page, "#row-address"))
    assert not page.find_element(By.ID, "previous-row").is_enabled()
    page.find_element(By.ID, "next-row").click()
    until(page, lambda: "Row address 1" in text(page, "#row-address"))
    assert "fox number 1" in text(page, "#detail")
    page.find_element(By.XPATH, "//button[text()='Similar rows']").click()
    until(page, lambda: rows(page) and text(page, "main tbody td") == "1")


def test_encodings_have_short_names_and_changes_only_their_fields(page):
    go(page, "pages")
    until(page, lambda: "miniblock, bitpacked" in text(page, "main"))
    go(page, "change")
    action = Select(until(page, lambda: page.find_element(By.NAME, "action")))
    action.select_by_visible_text("tag")
    shown = [
        each.get_attribute("name")
        for each in page.find_elements(By.CSS_SELECTOR, "main input")
        if each.is_displayed()
    ]
    assert shown == ["name"]


def test_a_row_that_does_not_exist_is_an_error_in_json(address):
    query = urlencode({"table": "animals.lance", "column": "vector", "row": "99999999"})
    status, told = reply(address, f"/api/search?{query}")
    assert status >= 400
    assert json.loads(told)["error"]


def test_the_page_fits_a_phone_and_darkens(page):
    page.set_window_size(390, 800)
    try:
        go(page, "rows")
        until(page, lambda: rows(page))
        wide = "return document.documentElement.scrollWidth <= window.innerWidth"
        assert page.execute_script(wide)
        go(page, "statistics")
        until(page, lambda: page.find_elements(By.CSS_SELECTOR, ".bars"))
        assert page.execute_script(wide)
        go(page, "rows")
        until(page, lambda: rows(page))
        ground = "return getComputedStyle(document.body).backgroundColor"
        light = page.execute_script(ground)
        page.find_element(By.ID, "theme").click()
        assert page.execute_script(ground) != light
    finally:
        page.set_window_size(1280, 900)


def reply(address, path, method="GET", token=True, **headers):
    """Return the status and the text of a reply, asked for without a browser."""
    parts = urlsplit(address)
    if token:
        headers["Cookie"] = f"lancelet_token={parse_qs(parts.query)['token'][0]}"
    connection = http.client.HTTPConnection(parts.hostname, parts.port)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    finally:
        connection.close()


def test_requests_need_the_token(address):
    assert reply(address, "/api/list_tables")[0] == 200
    assert reply(address, "/api/list_tables", token=False)[0] == 403
    assert reply(address, "/", token=False)[0] == 403
    assert reply(address, "/?token=guess", token=False)[0] == 403
    assert reply(address, "/api/list_tables", token=False, Cookie="lancelet_token=x")[0] == 403


def test_another_name_of_the_host_and_another_origin_are_rejected(address):
    assert reply(address, "/api/list_tables", Host="evil.example")[0] == 421
    other = reply(address, "/api/change?action=compact", "POST", Origin="http://evil.example")
    assert other[0] == 421


@pytest.mark.parametrize("name", ["../animals.lance", "/etc", "deep/../animals.lance", "nowhere"])
def test_no_name_leads_out_of_the_folder(address, name):
    status, told = reply(address, f"/api/describe?{urlencode({'table': name})}")
    assert status == 404
    assert json.loads(told)["kind"] == "NotFoundError"


def test_changes_are_rejected_without_leave_and_by_other_methods(shop):
    server = served(shop)
    address = next(server)
    try:
        query = urlencode({"table": "animals.lance", "action": "compact", "apply": "1"})
        assert reply(address, f"/api/change?{query}", "POST")[0] == 403
        assert reply(address, f"/api/change?{query}")[0] == 405
        assert reply(address, f"/api/change?{query.replace('apply=1', '')}", "POST")[0] == 200
    finally:
        server.close()
