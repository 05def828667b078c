"""What the tests of nanoctrl's page look at: a nanoctrl with a token, peers in it, and a browser."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import urllib.parse

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from conftest import PATIENCE, PROVIDER, Program, program

SESSION = "5" * 64  # of the peers that register() makes

# Several agents in one process, as they are named: each serves what its kind does, and has a
# region. Told a name, they call the peers that are called so, with a number: the first agent the
# first one.
AGENTS = """
import sys, slime

class Prefill:
    @slime.method
    def prefill(self, prompt): return len(prompt)

class Decode:
    @slime.method
    def decode(self, state): return state
    @slime.method
    def stop(self): return None

class Store:
    @slime.method
    def get(self, key): return key
    @slime.method
    def put(self, key, value): return None

services, agents = {"prefill": Prefill, "decode": Decode, "store": Store}, []
for name in sys.argv[3:]:
    kind = name.partition("-")[0]
    agent = slime.PeerAgent(name, ctrl_url=sys.argv[1], provider=sys.argv[2], kind=kind)
    agent.serve(services[kind]())
    agent.publish("kv", agent.allocate(1 << 16, slime.Rights.REMOTE_READ))
    agents.append(agent)
print("ready", flush=True)
for line in sys.stdin:
    for i, agent in enumerate(agents):
        agent.peer(line.strip() + str(i)).proxy("Decode").decode(bytes(100_000))
"""


class Nanoctrl:
    """One with an admin's token, on a port that it keeps over a restart. `store`: else a file in the folder."""

    def __init__(self, folder, *options, store=""):
        self.binary = program("nanoctrl", "ctrl")
        self.token = subprocess.run([self.binary, "token", "new"], check=True, capture_output=True, text=True).stdout.strip()
        file = folder / "token"
        file.write_text(self.token)
        file.chmod(0o600)
        store = store or f"sqlite:{folder}/registry.db"
        self.options = ["--admin-token-file", file, "--store", store, "--log-level", "error", *options]
        self.port = 0
        self.running = None
        self.start()

    def start(self):
        self.running = Program(self.binary, "server", "--port", self.port, *self.options)
        self.url = self.running.line().rpartition(" ")[2]
        self.port = int(self.url.rpartition(":")[2])

    def stop(self):
        self.running.process.terminate()
        self.running.process.wait(30 * PATIENCE)
        self.running.end()

    def ask(self, method, path, body=None, connection=None):
        """The answer of a route, which must be a success."""
        connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read().decode()
        assert response.status == 200, f"{method} {path}: {response.status} {text}"
        return json.loads(text)

    def register(self, name, scope="default", connection=None, **more):
        """A peer that needs no heartbeat today; its incarnation."""
        body = {"name": name, "scope": scope, "instance": os.urandom(16).hex(), "address": "127.0.0.1:1", "ttl_ms": 86400000}
        body["session"] = SESSION
        return self.ask("POST", "/v1/peers", {**body, **more}, connection)["incarnation"]

    def peers(self, scope="default"):
        return self.ask("GET", f"/v1/peers?scope={scope}")["peers"]

    def links(self, scope="default"):
        return self.ask("GET", f"/v1/links?scope={scope}")["links"]

    def heartbeat(self, name, scope, incarnation, report):
        path = f"/v1/peers/{urllib.parse.quote(name, safe='')}/heartbeat?scope={scope}"
        self.ask("POST", path, {"incarnation": incarnation, "session": SESSION, "report": report})


def start_agents(nanoctrl, names):
    """A process with agents of those names. Wait for its line."""
    return Program(
        *(sys.executable, "-u", "-c", AGENTS, nanoctrl.url, PROVIDER, *names), env={"SLIME_CTRL_TOKEN": nanoctrl.token}
    )


class Page:
    """One tab with the page in it. What it says in its console is read at the end."""

    def __init__(self, driver, url):
        self.driver, self.url = driver, url
        self.wait = WebDriverWait(
            driver, 30 * PATIENCE, poll_frequency=0.05, ignored_exceptions=[StaleElementReferenceException]
        )

    def open(self, path="/ui"):
        self.driver.get(self.url + path)

    def sign_in(self, token):
        self.until(lambda: self.one("#token").is_displayed(), "the token's form")
        self.one("#token").send_keys(token)
        self.one("#token-form button").click()

    def until(self, condition, what):
        return self.wait.until(lambda _: condition(), f"not on the page: {what}")

    def until_live(self):
        self.until(lambda: self.text("#connection") == "Live", "Live")

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.one(selector).text

    def count(self, view):
        """The number on that tab; -1 while there are no tabs."""
        return int(self.text(f"#tab-{view} b").replace(",", "") or -1)

    def show(self, view):
        self.one(f"#tab-{view}").click()
        self.until(lambda: self.one(f"#view-{view}").is_displayed(), view)

    def filter(self, text):
        box = self.one("#filter")
        box.clear()
        box.send_keys(text)

    def rows(self, view):
        """What the rows of that table say: a dict for each, by the heads of its columns."""
        return self.driver.execute_script(
            """return [...document.querySelectorAll(`#view-${arguments[0]} tbody tr`)].map((row) =>
                 Object.fromEntries([...row.cells].map((cell) => [cell.dataset.label, cell.innerText.trim()])))""",
            view,
        )

    def row(self, view, column, text):
        """The row whose cell is that, or begins with it and a blank; nothing if there is none."""
        return next((row for row in self.rows(view) if row[column].split()[:1] == [text]), None)

    def screen(self, width, height, scale=1, mobile=False):
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile},
        )

    def colours(self, scheme):
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )

    def complaints(self):
        """What the browser wrote into the console since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextlib.contextmanager
def chromium():
    """A headless one. Where there is none the tests are skipped, or fail where they are required."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not binary or not driver:
        missing = "chromium and chromedriver are not installed: scripts/install_deps.sh --test does that on Debian"
        (pytest.fail if os.environ.get("SLIME_REQUIRE_BROWSER") else pytest.skip)(missing)
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in ("--headless=new", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars", "--lang=en"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    running = webdriver.Chrome(options, Service(driver))
    try:
        yield running
    finally:
        running.quit()
