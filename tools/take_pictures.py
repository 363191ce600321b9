"""Take the pictures of the page of `lancelet view` that the guide shows, in headless Chromium.

python tools/take_pictures.py
"""

from __future__ import annotations

import io
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from lance_namespace import CreateNamespaceRequest
from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import lancelet
from lancelet.namespace import connect

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "guide" / "pictures"
SORTED = "filter=people>250000&order=people&descending=1"
PLAN = "filter=people>250000 AND country='NO'&measure=1"
SQL = "query=SELECT substr(city, 1, 3) AS prefix, max(people) FROM dataset GROUP BY 1 ORDER BY 2"
CITIES = "t=cities.lance&"
# Name, view, what it waits for, the width of the window, and whether it is dark.
TAKEN = (
    ("view-light", f"rows?{CITIES}{SORTED}", "tbody tr", 1100, False),
    ("view-statistics", f"statistics?{CITIES}", ".bars", 1100, False),
    ("view-sql", f"sql?{CITIES}{SQL}", "tbody tr", 1100, False),
    ("view-diff", f"versions?{CITIES}begin=1&end=4", "#changes", 1100, False),
    ("view-encodings", f"pages?{CITIES}", ".map", 1100, False),
    (
        "view-plan",
        f"plan?{CITIES}{PLAN}",
        "#measured",
        1100,
        False,
    ),
    ("view-dark", f"rows?{CITIES}{SORTED}", "tbody tr", 1100, True),
    ("view-narrow", f"rows?{CITIES}filter=people>250000", "tbody tr", 390, False),
    ("view-narrow-row", f"rows?{CITIES}{SORTED}", "tbody tr", 390, False),
    ("view-narrow-statistics", f"statistics?{CITIES}", ".bars", 390, True),
    ("view-row", f"rows?{CITIES}{SORTED}", "tbody tr", 1100, False),
)
TAKEN_OF_CATALOG = (("view-catalog", "tables?", "section", 1100, False),)
HEIGHT = 800


def main() -> None:
    """Make a table, serve it, and take the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        write_cities(folder)
        serve([folder], TAKEN)
    with tempfile.TemporaryDirectory() as folder:
        write_catalog(folder)
        serve(["--catalog", "dir", "--property", f"root={folder}"], TAKEN_OF_CATALOG)


def serve(arguments: list[str], taken: tuple[tuple[str, str, str, int, bool], ...]) -> None:
    """Take pictures of the page of `lancelet view` with arguments."""
    program = [sys.executable, "-m", "lancelet", "view", *arguments, "--no-browser"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            take(server.stdout.readline().strip(), taken)
        finally:
            server.terminate()


def picture(number: int) -> bytes:
    """Return a small picture of hills as PNG."""
    size, out = 48, io.BytesIO()
    x, y = np.meshgrid(np.arange(size), np.arange(size))
    hills = 28 + 8 * np.sin((x + number * 5) / 7) + 5 * np.cos((x - number) / 3)
    sky = np.stack([90 + y * 2, 150 + y, np.full_like(y, 230 - number % 60)], -1)
    land = np.stack([60 + number % 90 + y // 2, 110 - y // 2, 40 + x // 2], -1)
    pixels = np.where((y > hills)[..., None], land, sky).astype(np.uint8)
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def write_cities(folder: str) -> None:
    """Write the table that the pictures show."""
    names = ["Aachen", "Bergen", "Cork", "Delft", "Espoo", "Faro", "Ghent", "Haifa"]
    vectors = [[math.sin(i + j / 3) for j in range(24)] for i in range(800)]
    cities = pa.table(
        {
            "photo": lancelet.blob_array([picture(i) for i in range(800)]),
            "city": [f"{names[i % 8]} {i // 8}" for i in range(800)],
            "people": [224_004 + (i * 7919) % 90_000 for i in range(800)],
            "founded": pa.array([i * 97 % 20_000 for i in range(800)], pa.date32()),
            "shape": pa.array(vectors, pa.list_(pa.float32(), 24)),
            "country": [
                ["DE", "NO", "IE", "NL", "FI", "PT", "BE", "IL"][i % 8] for i in range(800)
            ],
            "at": [{"lat": 50.0 + i / 100, "lon": 6.0} for i in range(800)],
        }
    )
    table = lancelet.write_dataset(cities, f"{folder}/cities.lance", enable_stable_row_ids=True)
    table.create_scalar_index("country", "BITMAP")
    table.update({"people": "people + 1"}, where="city LIKE '% 7'")
    table.delete("city LIKE 'Cork 1%'")
    table.tags.create("census")


def write_catalog(folder: str) -> None:
    """Write the tables of the catalog that a picture shows."""
    catalog = connect("dir", {"root": folder})
    for namespace, names in (
        ("archive", ()),
        ("sales", ("customers", "orders")),
        ("web", ("clicks",)),
    ):
        catalog.create_namespace(CreateNamespaceRequest(id=[namespace]))
        for size, name in enumerate(names, 3):
            rows = pa.table({"id": range(10**size), "price": np.arange(10**size) / 4})
            lancelet.write_dataset(rows, namespace_client=catalog, table_id=[namespace, name])


def take(address: str, taken: tuple[tuple[str, str, str, int, bool], ...]) -> None:
    """Take the pictures of the page at an address."""
    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    flags = "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run "
    flags += "--disable-background-networking --disable-component-update --disable-sync"
    for flag in flags.split():
        options.add_argument(flag)
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        driver.get(address)
        PICTURES.mkdir(exist_ok=True)
        for name, shown, ready, width, is_dark in taken:
            driver.set_window_size(width, HEIGHT)
            theme = "dark" if is_dark else "light"
            driver.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
            # Elements of the previous view must not satisfy the wait.
            driver.execute_script("document.getElementById('main').replaceChildren()")
            driver.execute_script("location.hash = arguments[0]", shown)
            where = (By.CSS_SELECTOR, ready)
            WebDriverWait(driver, 60).until(lambda page, where=where: page.find_elements(*where))
            if name.endswith("-row"):
                driver.find_element(*where).click()
            elif driver.find_elements(By.CSS_SELECTOR, "dialog[open]"):
                driver.find_element(By.ID, "close").click()
            driver.save_screenshot(str(PICTURES / f"{name}.png"))
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
