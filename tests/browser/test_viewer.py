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
from lance_namespace import CreateNamespaceRequest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

import lancelet
from lancelet.namespace import connect
from tests.kit.hive_server import HiveServer

PATIENCE_SECONDS = 60
ROWS = 2_000
FIRST = "main tbody td:not(.id)"
"""The first value of a table with row ids."""

WIDTH = "return arguments[0].naturalWidth"
OVERFLOWING = """
const overflows = document.documentElement.scrollWidth > innerWidth;
return overflows ? [...document.querySelectorAll('main *')].filter(
  (each) => each.getBoundingClientRect().right > innerWidth && !each.closest('.scroll *')
).map((each) => each.outerHTML.slice(0, 200)) : [];
"""


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


def wave():
    """Return a silent sound."""
    samples = bytes(800)
    head = b"WAVEfmt " + (16).to_bytes(4, "little") + bytes([1, 0, 1, 0])
    head += (8000).to_bytes(4, "little") * 2 + bytes([1, 0, 8, 0])
    body = head + b"data" + len(samples).to_bytes(4, "little") + samples
    return b"RIFF" + len(body).to_bytes(4, "little") + body


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """Return a folder with four tables."""
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
    sounds = pa.table(
        {
            "id": [2**53 + 1, 2, 3, 4],
            "two words": ["a", "b", "c", "d" * 5000],
            "price": [1.0, 2.0, 3.0, 4.0],
        }
    )
    sounds = sounds.append_column(
        lancelet.blob_field("data"), lancelet.blob_array([png(1), wave(), b"plain", None])
    )
    table = lancelet.write_dataset(sounds, str(folder / "sounds.lance"), enable_stable_row_ids=True)
    table.update({"price": "price + 10"}, where="id = 2")
    table.delete("id = 3")
    table.insert(sounds.slice(2))
    wide = pa.table({f"c{i}": [i] for i in range(120)})
    lancelet.write_dataset(wide, str(folder / "wide.lance"))
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
    until(browser, lambda: "animals.lance" in text(browser, "main tbody"))
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
    wait = WebDriverWait(browser, PATIENCE_SECONDS, 0.05, ignored_exceptions=redrawn)
    return wait.until(tried)


def go(page, view, table="animals.lance", **given):
    query = urlencode({"t": table, **given})
    # Elements of the previous view must not satisfy the next wait.
    page.execute_script(
        "const main = document.getElementById('main');"
        "main.replaceChildren(); main.dataset.view = '';"
    )
    page.execute_script(
        "if (location.hash === arguments[0]) dispatchEvent(new HashChangeEvent('hashchange'));"
        "else location.hash = arguments[0]",
        f"#{view}?{query}",
    )
    until(page, lambda: page.find_elements(By.CSS_SELECTOR, f"main[data-view={view}]"))


def rows(page):
    return page.find_elements(By.CSS_SELECTOR, "main tbody tr")


def text(page, selector):
    found = page.find_elements(By.CSS_SELECTOR, selector)
    return found[0].text if found else ""


def options(page):
    return [each.text for each in page.find_elements(By.CSS_SELECTOR, ".options:not([hidden]) li")]


def press(page, *keys):
    page.switch_to.active_element.send_keys(*keys)


def focused(page, attribute):
    return page.switch_to.active_element.get_attribute(attribute)


def test_rows_are_paged_sorted_and_filtered(page):
    go(page, "rows")
    until(page, lambda: f"1 to 50 of {ROWS - 1:,}" in text(page, "#where"))
    assert len(rows(page)) == 50
    page.find_element(By.XPATH, "//button[@aria-label='Last page']").click()
    until(page, lambda: f"of {ROWS - 1:,}" in text(page, "#where") and rows(page))
    until(page, lambda: str(ROWS - 1) in text(page, "main tbody tr:last-child td"))
    go(page, "rows", order="id", descending="1", limit="5")
    until(page, lambda: text(page, FIRST) == str(ROWS - 1))
    assert len(rows(page)) == 5
    go(page, "rows", filter="id < 5")
    until(page, lambda: "1 to 4 of 4" in text(page, "#where"))
    until(page, lambda: text(page, "main tbody tr td:nth-child(3)") == "null")


def test_filters_are_completed_by_keyboard(page):
    go(page, "rows")
    until(page, lambda: rows(page))
    box = page.find_element(By.NAME, "filter")
    box.send_keys("id < 7 AND pri")
    assert options(page) == ["price"]
    assert box.get_attribute("aria-expanded") == "true"
    box.send_keys(Keys.TAB)
    assert box.get_attribute("value") == "id < 7 AND price"
    box.send_keys(" >= 0 AND fac", Keys.ARROW_DOWN, Keys.ENTER)
    assert box.get_attribute("value").endswith(" AND facts.color")
    # Nothing is completed within a text, and a complete word is submitted by Enter.
    box.send_keys(" = 'pri")
    assert options(page) == []
    box.send_keys("' OR kind", Keys.ENTER)
    assert "OR kind" in until(page, lambda: text(page, "pre.error"))


def test_sql_is_completed_and_run_by_keyboard(page):
    go(page, "sql", table="sounds.lance")
    box = until(page, lambda: page.find_element(By.NAME, "query"))
    box.clear()
    box.send_keys("sel", Keys.ENTER, " two", Keys.TAB, " FROM dat", Keys.ESCAPE)
    assert options(page) == []
    box.send_keys("as", Keys.ENTER, " WHERE ", Keys.CONTROL + " ")
    assert "dataset" in options(page)
    press(page, Keys.ESCAPE, "id = 2")
    assert box.get_attribute("value") == 'SELECT "two words" FROM dataset WHERE id = 2'
    press(page, Keys.CONTROL + Keys.ENTER)
    until(page, lambda: text(page, "main tbody td") == "b")


def test_an_error_in_a_filter_points_at_its_place(page):
    go(page, "rows", filter="prise > 3")
    told = until(page, lambda: text(page, "pre.error"))
    assert "prise" in told
    assert "^" in told


def test_images_vectors_and_nested_values_are_shown(page):
    go(page, "rows", limit="3")
    until(page, lambda: len(rows(page)) == 3)
    picture = page.find_element(By.CSS_SELECTOR, "main td img")
    until(page, lambda: page.execute_script(WIDTH, picture) == 1)
    assert page.find_elements(By.CSS_SELECTOR, "main td svg.spark polyline")
    rows(page)[0].click()
    until(page, lambda: "sizes" in text(page, "#detail"))
    assert "red" in text(page, "#detail")
    page.find_element(By.ID, "close").click()


def test_blobs_are_thumbnails_and_players_in_rows_and_in_the_panel(page):
    go(page, "rows", table="sounds.lance", order="price")
    until(page, lambda: len(rows(page)) == 5)
    for place in ("main", "#detail"):
        if place == "#detail":
            rows(page)[0].click()
        picture = until(page, lambda at=place: page.find_element(By.CSS_SELECTOR, f"{at} img"))
        until(page, lambda shown=picture: page.execute_script(WIDTH, shown) == 1)
    page.find_element(By.ID, "close").click()
    sound = page.find_element(By.CSS_SELECTOR, "main audio")
    page.execute_script("arguments[0].load(); arguments[0].preload = 'auto'", sound)
    until(page, lambda: page.execute_script("return arguments[0].duration", sound) == 0.1)
    go(page, "sql", table="animals.lance", query="SELECT photo FROM dataset LIMIT 1")
    picture = until(page, lambda: page.find_element(By.CSS_SELECTOR, "main td img"))
    until(page, lambda: page.execute_script(WIDTH, picture) == 1)


def test_rows_are_reached_by_keyboard(page):
    go(page, "rows", limit="4")
    until(page, lambda: len(rows(page)) == 4)
    page.execute_script("arguments[0].focus()", rows(page)[0])
    press(page, Keys.ARROW_DOWN)
    press(page, Keys.ARROW_DOWN)
    press(page, Keys.ENTER)
    until(page, lambda: "fox number 2" in text(page, "#detail"))
    press(page, Keys.ARROW_RIGHT)
    until(page, lambda: "fox number 4" in text(page, "#detail"))
    press(page, Keys.ESCAPE)
    until(page, lambda: not page.find_element(By.ID, "details").is_displayed())
    assert "fox number 2" in page.switch_to.active_element.text


def test_widths_of_columns_are_dragged_set_by_keys_and_remembered(page):
    def width():
        return page.execute_script(
            "return document.querySelector('main th:nth-child(2)').offsetWidth"
        )

    go(page, "rows", limit="3")
    until(page, lambda: len(rows(page)) == 3)
    handle = page.find_element(By.CSS_SELECTOR, "main th:nth-child(2) .resize")
    before = width()
    ActionChains(page).drag_and_drop_by_offset(handle, 100, 0).perform()
    dragged = width()
    assert abs(dragged - before - 100) <= 12
    handle.send_keys(Keys.ARROW_RIGHT)
    assert width() == dragged + 16
    page.refresh()
    until(page, lambda: len(rows(page)) == 3)
    assert width() == dragged + 16
    page.find_element(By.CSS_SELECTOR, "main th:nth-child(2) .resize").send_keys(Keys.HOME)
    assert width() == before
    go(page, "rows", table="sounds.lance")
    until(page, lambda: len(rows(page)) == 5)
    assert page.execute_script("return localStorage.getItem('widths sounds.lance')") is None


def test_texts_and_vectors_are_searched_together_and_alone(page):
    go(page, "search", text="number 17")
    until(page, lambda: rows(page) and "fox number 17" in text(page, "main tbody"))
    go(page, "search", column="vector", row="5")
    until(page, lambda: rows(page) and text(page, FIRST) == "5")
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


def test_changed_rows_of_versions_are_a_table(page):
    go(page, "versions", table="sounds.lance", begin="1", end="4")
    until(page, lambda: page.find_elements(By.ID, "changes"))
    kinds = {row.get_attribute("class"): row for row in rows(page)[:4]}
    assert set(kinds) == {"added", "removed", "changed"}
    cell = kinds["changed"].find_element(By.CSS_SELECTOR, "td.changed")
    assert cell.find_element(By.TAG_NAME, "del").text == "2"
    assert cell.find_element(By.TAG_NAME, "ins").text == "12"
    assert len(kinds["changed"].find_elements(By.CSS_SELECTOR, "td.changed")) == 1
    assert "data file" in page.find_element(By.ID, "difference").get_attribute("textContent")
    # A removed row is linked in the version that has it.
    kinds["removed"].find_element(By.CSS_SELECTOR, "td.id a").click()
    until(page, lambda: "version 1," in text(page, "#summary") and text(page, "#row section"))


def test_an_older_version_is_opened_with_links_that_name_it(page):
    go(page, "versions", table="sounds.lance")
    button = "//button[@aria-label='Open version 1']"
    until(page, lambda: page.find_elements(By.XPATH, button))
    page.find_element(By.XPATH, button).click()
    until(page, lambda: "version 1," in text(page, "#summary") and len(rows(page)) == 4)
    assert "at=1" in rows(page)[0].find_element(By.TAG_NAME, "a").get_attribute("href")
    page.refresh()
    until(page, lambda: "version 1," in text(page, "#summary"))
    assert page.find_element(By.ID, "at").get_attribute("value") == "1"


def test_bytes_indices_and_health_are_shown(page):
    go(page, "pages")
    until(page, lambda: len(page.find_elements(By.CSS_SELECTOR, ".map")) >= 6)
    page.find_element(By.CSS_SELECTOR, "main summary").click()
    until(page, lambda: "miniblock" in text(page, "main tbody"))
    go(page, "indices")
    until(page, lambda: "vector_idx" in text(page, "main"))
    page.find_element(By.XPATH, "//button[text()='Measure recall']").click()
    until(page, lambda: "recall at" in text(page, "main"))
    go(page, "health", level="decode")
    until(page, lambda: text(page, "#healthy"))
    assert "unindexed rows 0" in text(page, "main")
    assert "fragments" in text(page, "main")


def test_plans_are_trees_of_steps(page):
    go(page, "plan", filter="id > 3", measure="1", columns='["id", "name"]')
    until(page, lambda: "measured: rows=" in text(page, "#measured"))
    steps = page.find_elements(By.CSS_SELECTOR, "#plan details.step")
    assert [step.find_element(By.TAG_NAME, "strong").text for step in steps][-2:] == [
        "LanceRead",
        "Version",
    ]
    assert page.find_elements(By.CSS_SELECTOR, "#plan .time")
    assert "Columns (2 of 7)" in text(page, "#columns")
    inner = page.find_element(By.CSS_SELECTOR, "#plan .step .step")
    assert inner.is_displayed()
    page.execute_script("arguments[0].focus()", steps[0].find_element(By.TAG_NAME, "summary"))
    press(page, Keys.ENTER)
    until(page, lambda: not inner.is_displayed())


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
    until(page, lambda: page.find_elements(By.CSS_SELECTOR, ".statistics .bars button"))
    assert f"all {ROWS - 1:,} rows" in text(page, "#sample")
    assert "14.3 % null" in page.find_element(By.XPATH, "//section[h2[contains(., 'name')]]").text
    page.find_element(By.XPATH, "//section[h2[contains(., 'kind')]]//button[text()='red']").click()
    until(page, lambda: f"of {ROWS // 2:,}" in text(page, "#where"))
    go(page, "statistics", filter="kind = 'red'")
    until(page, lambda: f"all {ROWS // 2:,} rows that match" in text(page, "#sample"))
    bar = page.find_element(By.CSS_SELECTOR, ".bars button")
    page.execute_script("arguments[0].focus()", bar)
    press(page, Keys.ARROW_RIGHT)
    press(page, Keys.ENTER)
    until(page, lambda: "of 50" in text(page, "#where"))


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
    assert len(page.find_elements(By.CSS_SELECTOR, "main thead th")) == 3
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
    until(page, lambda: len(page.find_elements(By.CSS_SELECTOR, "main thead th")) == 2)


def test_a_row_has_neighbors_an_address_and_similar_rows(page):
    go(page, "rows", limit="3")
    until(page, lambda: len(rows(page)) == 3)
    assert text(page, "main th.id") == "row address"
    rows(page)[0].click()
    until(page, lambda: text(page, "#row-link") == "row address 0")
    assert not page.find_element(By.ID, "previous-row").is_enabled()
    page.find_element(By.ID, "next-row").click()
    until(page, lambda: text(page, "#row-link") == "row address 1")
    assert focused(page, "id") == "next-row"
    assert "fox number 1" in text(page, "#detail")
    page.find_element(By.XPATH, "//button[text()='Similar rows']").click()
    until(page, lambda: rows(page) and text(page, FIRST) == "1")


def test_the_panel_continues_on_the_next_page(page):
    go(page, "rows", limit="3", offset="3")
    until(page, lambda: len(rows(page)) == 3)
    rows(page)[2].click()
    for key, expected in (
        (Keys.ARROW_RIGHT, "row address 7"),
        (Keys.ARROW_LEFT, "row address 6"),
        (Keys.ARROW_LEFT, "row address 5"),
        (Keys.ARROW_LEFT, "row address 4"),
        (Keys.ARROW_LEFT, "row address 2"),
    ):
        press(page, key)
        until(page, lambda shown=expected: text(page, "#row-link") == shown)
    press(page, Keys.ESCAPE)


def test_wide_tables_show_their_first_columns(page):
    go(page, "rows", table="wide.lance")
    until(page, lambda: "(100 of 120)" in text(page, "#columns"))
    assert len(page.find_elements(By.CSS_SELECTOR, "main thead th")) == 101
    go(page, "rows", table="wide.lance", columns='["c119"]')
    until(page, lambda: "(1 of 120)" in text(page, "#columns"))


def test_stable_row_ids_are_shown_and_linked(page):
    go(page, "rows", table="sounds.lance", filter="id = 2")
    until(page, lambda: len(rows(page)) == 1)
    assert text(page, "main th.id") == "row id"
    page.find_element(By.CSS_SELECTOR, "main td.id a").click()
    until(page, lambda: text(page, "#row #row-link") == "row id 1")
    assert "12" in text(page, "#row")
    go(page, "row", table="sounds.lance", row="77")
    assert "no row with the row id 77" in until(page, lambda: text(page, "pre.error"))


def test_a_row_is_copied_without_rounding_and_in_full(page, address):
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(address))
    granted = {"origin": origin, "permissions": permissions}
    page.execute_cdp_cmd("Browser.grantPermissions", granted)
    read = "navigator.clipboard.readText().then(arguments[0], (error) => arguments[0](`${error}`))"
    for row, expected in ((0, {"id": 2**53 + 1}), (3, {"two words": "d" * 5000})):
        go(page, "row", table="sounds.lance", row=str(row))
        until(page, lambda: page.find_elements(By.ID, "copy"))
        page.find_element(By.ID, "copy").click()
        until(page, lambda: "Copied" in text(page, "#row"))
        copied = json.loads(page.execute_async_script(read))
        assert expected.items() <= copied.items()
    assert "d" * 2001 not in text(page, "#row")
    page.find_element(By.XPATH, "//button[contains(., 'Show all 5,000 characters')]").click()
    until(page, lambda: "d" * 5000 in text(page, "#row"))


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
    assert status == 404
    assert json.loads(told)["error"]


def test_views_are_chosen_by_keyboard(page):
    go(page, "rows")
    until(page, lambda: rows(page))
    page.execute_script("document.getElementById('view-rows').focus()")
    press(page, Keys.END)
    press(page, Keys.ARROW_LEFT)
    press(page, Keys.ENTER)
    until(page, lambda: text(page, "#healthy"))
    assert page.find_element(By.ID, "view-health").get_attribute("aria-selected") == "true"
    tabs = page.find_elements(By.CSS_SELECTOR, "#views button")
    assert [tab.get_attribute("tabindex") for tab in tabs].count("0") == 1


COMPARED = {"table": "sounds.lance", "begin": "1", "end": "4"}
# Each view with the selector of its contents.
VIEWS = [
    ("tables", {}, "main tbody tr"),
    ("rows", {}, "main tbody tr"),
    ("row", {"row": "5"}, "#row section"),
    ("statistics", {}, ".bars"),
    ("sql", {"query": "SELECT * FROM dataset LIMIT 5"}, "main tbody tr"),
    ("search", {"text": "number 17"}, "main tbody tr"),
    ("schema", {}, "main tbody tr"),
    ("versions", {"begin": "1", "end": "4"}, "#difference"),
    ("versions", COMPARED, "#changes"),
    ("pages", {}, ".map"),
    ("indices", {}, "main section"),
    ("plan", {"filter": "id > 3 AND name = 'a'", "measure": "1"}, "#measured"),
    ("health", {}, "#healthy"),
    ("change", {}, "#outcome"),
]


@pytest.mark.parametrize(("view", "given", "ready"), VIEWS)
def test_every_view_fits_a_phone_and_is_used_by_keyboard(page, view, given, ready):
    page.set_window_size(390, 800)
    try:
        go(page, view, **given)
        until(page, lambda: page.find_elements(By.CSS_SELECTOR, ready))
        assert page.execute_script(OVERFLOWING) == []
        # The tab key reaches the contents, and everything that a click changes has a focus.
        page.execute_script("document.getElementById('main').focus()")
        unreachable = page.execute_script(
            "return [...document.querySelectorAll('main :is(button, input, select, summary, a)')]"
            ".filter((each) => each.checkVisibility() && each.tabIndex < 0 && !each.disabled"
            " && !each.closest('.bars, tbody')).map((each) => each.outerHTML)"
        )
        assert unreachable == []
        unnamed = page.execute_script(
            "return [...document.querySelectorAll('main :is(input, select, textarea)')]"
            ".filter((each) => !each.labels.length).map((each) => each.outerHTML)"
        )
        assert unnamed == []
        if page.find_elements(By.CSS_SELECTOR, "main tbody tr[tabindex]"):
            assert page.execute_script(
                "return document.querySelectorAll('main tbody tr[tabindex=\"0\"]').length"
            )
    finally:
        page.set_window_size(1280, 900)


@pytest.mark.parametrize(
    ("view", "given", "target", "keys", "expected"),
    [
        ("tables", {}, "tbody button", Keys.ENTER, "#where"),
        ("rows", {}, "th button", Keys.ENTER, "th[aria-sort=ascending]"),
        ("rows", {}, "#columns summary", Keys.ENTER, "#columns[open]"),
        ("rows", {}, ".resize", Keys.ARROW_RIGHT, ".resize[aria-valuenow]"),
        ("rows", {}, "tbody tr", Keys.ARROW_DOWN + Keys.ENTER, "#details[open]"),
        ("row", {"row": "5"}, "#copy", Keys.ENTER, "[role=status]:not(:empty)"),
        ("statistics", {}, ".bars button", Keys.ARROW_RIGHT + Keys.ENTER, "#where"),
        ("sql", {}, "textarea", Keys.CONTROL + Keys.ENTER, "tbody tr"),
        ("search", {}, "input[name=text]", "fox" + Keys.ENTER, "tbody tr"),
        ("versions", {}, "form button", Keys.ENTER, "#difference"),
        ("versions", COMPARED, "tbody tr", Keys.ARROW_DOWN, "#changes tr:nth-child(2):focus"),
        ("pages", {}, "summary", Keys.ENTER, "details[open] tbody tr"),
        ("indices", {}, "button", Keys.ENTER, "pre"),
        ("plan", {}, ".step summary", Keys.ENTER, ".step:not([open])"),
        ("health", {}, "select", "p" + Keys.TAB + Keys.ENTER, "#healthy"),
        ("change", {}, "select", "u" + Keys.TAB, "label:not([hidden]) input[name=value]"),
    ],
)
def test_views_are_used_by_the_tab_key_on_a_phone(page, view, given, target, keys, expected):
    page.set_window_size(390, 800)
    try:
        go(page, view, **given)
        until(page, lambda: page.find_elements(By.CSS_SELECTOR, f"main {target}"))
        page.execute_script("document.getElementById('main').focus()")
        reached = "return document.activeElement.matches(arguments[0])"
        for _ in range(40):
            press(page, Keys.TAB)
            if page.execute_script(reached, f"main {target}"):
                break
        assert page.execute_script(reached, f"main {target}")
        press(page, keys)
        until(page, lambda: page.find_elements(By.CSS_SELECTOR, expected))
        if page.find_elements(By.CSS_SELECTOR, "#details[open]"):
            press(page, Keys.ESCAPE)
    finally:
        page.set_window_size(1280, 900)


def test_the_panel_of_a_row_fits_a_phone(page):
    page.set_window_size(390, 800)
    try:
        go(page, "rows", limit="3")
        until(page, lambda: len(rows(page)) == 3)
        rows(page)[1].click()
        until(page, lambda: "fox number 1" in text(page, "#detail"))
        dialog = page.find_element(By.ID, "details")
        assert dialog.size["width"] <= 390
        inside = "return arguments[0].scrollWidth <= arguments[0].clientWidth"
        assert page.execute_script(inside, dialog)
        press(page, Keys.ESCAPE)
    finally:
        page.set_window_size(1280, 900)


def test_the_page_darkens(page):
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = page.execute_script(ground)
    page.find_element(By.ID, "theme").click()
    assert page.execute_script(ground) != light


def reply(address, path, method="GET", token=True, **headers):
    """Return the status and the text of a reply, asked for without a browser."""
    parts = urlsplit(address)
    if token:
        headers["Cookie"] = f"lancelet_token_{parts.port}={parse_qs(parts.query)['token'][0]}"
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
    cookie = f"lancelet_token_{urlsplit(address).port}=x"
    assert reply(address, "/api/list_tables", token=False, Cookie=cookie)[0] == 403


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


def test_databases_and_tables_of_a_catalog_are_browsed(browser, tmp_path):
    with HiveServer() as metastore:
        properties = {"uri": metastore.uri, "root": str(tmp_path)}
        namespace = connect("hive", properties)
        for name in ("archive", "sales"):
            namespace.create_namespace(CreateNamespaceRequest(id=[name]))
        for name, values in (("events", [7]), ("orders", [1, 2, 3])):
            table = pa.table({"id": values})
            lancelet.write_dataset(table, namespace_client=namespace, table_id=["sales", name])
        given = [f"--property={name}={value}" for name, value in properties.items()]
        server = served("", "--catalog", "hive", *given)
        try:
            browser.get(next(server))
            until(browser, lambda: "sales.orders" in text(browser, "main tbody"))
            headings = browser.find_elements(By.CSS_SELECTOR, "main h2")
            assert [each.text for each in headings] == ["archive", "default", "sales"]
            assert text(browser, "main section p") == "No tables."
            browser.find_element(By.XPATH, "//main//button[text()='sales.orders']").click()
            until(browser, lambda: "1 to 3 of 3" in text(browser, "#where"))
            assert text(browser, "#summary").startswith("version 1, 3 rows")
            groups = browser.find_elements(By.CSS_SELECTOR, "#tables optgroup")
            assert [each.get_attribute("label") for each in groups] == ["sales"]
            chosen = Select(browser.find_element(By.ID, "tables"))
            chosen.select_by_visible_text("sales.events")
            until(browser, lambda: text(browser, FIRST) == "7")
            go(browser, "sql", "sales.orders", query="SELECT count(*) AS n FROM dataset")
            until(browser, lambda: text(browser, "main tbody td") == "3")
            go(browser, "versions", "sales.orders")
            until(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".line li"))
            problems = [each for each in browser.get_log("browser") if each["level"] == "SEVERE"]
            assert problems == []
        finally:
            server.close()
