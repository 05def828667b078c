"""nanoctrl's page for operators, in a real browser: what it shows of real agents, and what it does when they or nanoctrl go."""

from __future__ import annotations

import contextlib
import http.client
import os
import pathlib
import resource
import signal
import socket
import types

import pytest

from conftest import PROVIDER

pytest.importorskip("selenium", reason="selenium is not installed: scripts/test.sh installs it")
if PROVIDER == "verbs":
    pytest.skip("the page is the same on every provider", allow_module_level=True)

from page_world import Nanoctrl, Page, chromium, start_agents  # noqa: E402

# Where screenshots of the page with 50 live agents go, if they are wanted.
SCREENSHOTS = os.environ.get("SLIME_SCREENSHOTS", "")

GROUPS = [[f"{kind}-{group}{i}" for i in range(7)] for group, kind in enumerate(["prefill", "decode"] * 3 + ["store"])]
ALONE = "store-99"
HOSTILE = '<img src=x onerror="window.harmed=1"><script>window.harmed=2</script>'


@pytest.fixture(scope="module")
def browser():
    with chromium() as driver:
        yield driver


@pytest.fixture
def open_page(browser):
    """Pages in a tab of this test's own, whose console must be without errors but for those that it expects."""
    browser.switch_to.new_window("tab")
    pages, expected = [], []

    def make(nanoctrl, expect=()):
        pages.append(Page(browser, nanoctrl.url))
        expected.extend(expect)
        pages[-1].screen(1440, 900)
        return pages[-1]

    yield make
    complaints = [text for page in pages for text in page.complaints() if not any(part in text for part in expected)]
    browser.close()
    browser.switch_to.window(browser.window_handles[0])
    assert complaints == []


# The first question of a page that has no token yet.
NO_TOKEN = "responded with a status of 401"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A nanoctrl with 50 live agents in eight processes, of which one has an agent alone."""
    with contextlib.ExitStack() as stack:
        nanoctrl = Nanoctrl(tmp_path_factory.mktemp("nanoctrl"), "--ttl", "6")
        stack.callback(nanoctrl.stop)
        nanoctrl.agents = {}
        for names in [*GROUPS, [ALONE]]:
            running = start_agents(nanoctrl, names)
            stack.callback(running.end)
            nanoctrl.agents.update(dict.fromkeys(names, running))
        for running in set(nanoctrl.agents.values()):
            assert running.line() == "ready"
        for i in range(7):
            nanoctrl.ask("PUT", f"/v1/peers/prefill-0{i}/links", {"targets": [f"decode-1{i}", "store-60"]})
        yield nanoctrl


@pytest.fixture
def lab(tmp_path):
    """A nanoctrl with two peers in scope lab, which say all that a peer may say of itself."""
    nanoctrl = Nanoctrl(tmp_path)
    nanoctrl.incarnation = nanoctrl.register(
        *("alpha", "lab"),
        address="10.0.0.1:7001",
        kind="worker",
        providers=["verbs", "tcp"],
        metadata={"rack": "r7", "note": HOSTILE},
        services=[
            {"name": "calc", "kind": "math", "methods": ["add"], "health": "draining", "labels": {"model": "m-7b", "x": HOSTILE}},
            {"name": "echo", "kind": "", "methods": []},
        ],
        regions=[{"name": "kv/0", "length_bytes": 3 << 20, "rights": "read_write"}],
    )
    nanoctrl.register("beta", "lab")
    nanoctrl.ask("PUT", "/v1/peers/alpha/links?scope=lab", {"targets": ["beta", "gamma"]})
    yield nanoctrl
    if nanoctrl.running.process.poll() is None:
        nanoctrl.stop()


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """A nanoctrl with ten thousand peers in scope crowd."""
    nanoctrl = Nanoctrl(tmp_path_factory.mktemp("crowd"), store="memory")
    nanoctrl.connection = http.client.HTTPConnection("127.0.0.1", nanoctrl.port)
    for i in range(10_000):
        nanoctrl.register(f"peer-{i:05}", "crowd", nanoctrl.connection)
    yield nanoctrl
    nanoctrl.stop()


def shoot(page, name):
    if SCREENSHOTS:
        page.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": 0, "y": 0})
        pathlib.Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
        page.driver.save_screenshot(os.path.join(SCREENSHOTS, f"page-{name}.png"))


def test_what_nanoctrl_has_is_shown(world, open_page):
    page = open_page(world, [NO_TOKEN])
    page.open("/")
    assert page.driver.current_url == f"{world.url}/ui"
    page.sign_in(world.token)
    page.until_live()
    page.until(lambda: page.count("peers") == 50, "50 peers")
    peers = {peer["name"]: peer for peer in world.peers()}
    assert page.count("services") == sum(len(peer["services"]) for peer in peers.values())
    assert page.count("regions") == 50
    page.until(lambda: page.count("links") == len(world.links()), "as many links")
    rows = page.rows("peers")
    assert {row["Name"].split()[0]: row["Host"] for row in rows} == {name: peer["address"] for name, peer in peers.items()}
    for row in rows:
        peer = peers[row["Name"].split()[0]]
        assert row["Providers"].split() == peer["providers"]
        assert row["Incarnation"] == str(peer["incarnation"])
        assert (row["Services"], row["Regions"]) == (str(len(peer["services"])), str(len(peer["regions"])))
        assert 0 < int(row["Lease left"].removesuffix(" s")) <= 6
    assert page.driver.execute_script("return location.href + JSON.stringify(performance.getEntries())").count(world.token) == 0


def test_the_filter_looks_through_everything_shown(world, open_page):
    page = open_page(world, [NO_TOKEN])
    page.open()
    page.sign_in(world.token)
    page.until(lambda: page.count("peers") == 50, "50 peers")
    page.filter("127.0.0.1 DECODE-11")
    page.until(lambda: [row["Name"].split()[0] for row in page.rows("peers")] == ["decode-11"], "only decode-11")
    assert page.text("#matches") == "1 of 50"
    page.show("services")
    page.until(lambda: any(row["Service"].split()[0] == "Decode" for row in page.rows("services")), "its service")
    assert {row["Peer"] for row in page.rows("services")} == {"decode-11"}
    page.filter("nobody has this name")
    page.until(lambda: page.rows("services") == [], "nothing")
    assert page.text("#view-services") == "Services: nothing matches the filter."
    assert page.text("#view-events") == "Events: nothing matches the filter."


def call(world, page):
    """Has the first agents call those that they have links to; what the page says of links."""
    world.agents["prefill-00"].say("decode-1")
    return page.rows("links")


def test_links_of_agents_have_their_traffic(world, open_page):
    page = open_page(world, [NO_TOKEN])
    page.open("/ui#view=links")
    page.sign_in(world.token)
    page.until(lambda: page.count("links") == len(world.links()) >= 28, "the links of both ends")

    def traffic():
        rows = {(row["From"], row["To"]): row for row in call(world, page)}
        called, caller = rows["prefill-02", "decode-12"], rows["decode-12", "prefill-02"]
        return "/s" in called["Calls"] and "/s" in caller["Sent"] + caller["Received"] + caller["Direct"] and called

    row = page.until(traffic, "calls and bytes a second")
    told = next(link for link in world.links() if (link["from"], link["to"]) == ("prefill-02", "decode-12"))
    assert (row["State"], row["Wanted"], row["Provider"]) == ("ready", "yes", told["provider"])


def test_pictures_of_the_page(world, open_page):
    page = open_page(world, [NO_TOKEN])
    page.open()
    page.sign_in(world.token)
    page.until_live()
    page.until(lambda: page.count("links") == len(world.links()) >= 28, "the links of both ends")
    world.ask("PUT", "/v1/peers/prefill-06/links", {"targets": ["decode-16", "store-61"]})
    page.until(lambda: ":" in page.rows("events")[0]["Time"], "a change that just happened")
    shoot(page, "desktop")
    page.colours("dark")
    dark = page.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    page.show("links")
    page.until(lambda: sum("/s" in row["Calls"] for row in call(world, page)) == 7, "the calls of seven agents")
    shoot(page, "dark")
    page.colours("light")
    assert page.driver.execute_script("return getComputedStyle(document.body).backgroundColor") != dark


def test_nothing_is_wider_than_a_phone(world, open_page):
    page = open_page(world, [NO_TOKEN])
    page.screen(390, 844, 2, mobile=True)
    page.open()
    page.until(lambda: page.one("#token").is_displayed(), "the token's form")
    width = "return [document.documentElement.scrollWidth, innerWidth]"
    assert page.driver.execute_script(width) == [390, 390]
    page.sign_in(world.token)
    page.until(lambda: page.count("peers") == 50, "50 peers")
    page.until_live()
    shoot(page, "phone")
    for view in ("peers", "services", "regions", "links", "events"):
        page.show(view)
        page.until(lambda: page.rows(view), f"rows of {view}")
        assert page.driver.execute_script(width) == [390, 390], view


def test_a_process_that_is_killed_goes_before_ones_eyes(world, open_page):
    page = open_page(world, [NO_TOKEN])
    page.open()
    page.sign_in(world.token)
    page.until(lambda: page.row("peers", "Name", ALONE), ALONE)
    page.until_live()
    page.driver.execute_script("window.neverReloaded = true")
    os.kill(world.agents[ALONE].process.pid, signal.SIGKILL)
    page.until(lambda: page.row("peers", "Name", ALONE) is None, f"{ALONE} is gone")
    event = page.rows("events")[0]
    assert event["Event"] == "expired" and event["Peer"].split()[0] == ALONE and ":" in event["Time"]
    assert page.count("peers") == 49
    # And one that comes is there.
    world.agents[ALONE].end()
    world.agents[ALONE] = running = start_agents(world, [ALONE])
    try:
        page.until(lambda: page.row("peers", "Name", ALONE), f"{ALONE} is back")
        assert any(row["Event"] == "registered" for row in page.rows("events")[:3])
        assert page.driver.execute_script("return window.neverReloaded")
    finally:
        running.end()


def test_a_wrong_token_is_told_in_a_sentence(lab, open_page):
    page = open_page(lab, [NO_TOKEN])
    page.open()
    page.until(lambda: page.text("#sign-in-why") == "This nanoctrl wants a token.", "why there is a form")
    page.sign_in("slime-0123456789abcdef-wrong")
    page.until(lambda: "does not know this token" in page.text("#sign-in-why"), "that the token is wrong")
    assert page.one("#token").get_attribute("value") == ""
    page.sign_in("tökén")
    page.until(lambda: "This is no token" in page.text("#sign-in-why"), "that it cannot be one")
    page.one("#token").clear()
    page.sign_in(lab.token)
    page.until_live()
    # It stays over a reload of the tab, and goes when it is told to.
    page.driver.refresh()
    page.until_live()
    page.one("#forget").click()
    page.until(lambda: page.one("#token").is_displayed(), "the token's form")
    assert page.driver.execute_script("return sessionStorage.length + localStorage.length") == 0


def test_a_token_of_another_scope_is_told_in_a_sentence(lab, open_page):
    reader = lab.ask("POST", "/v1/tokens", {"role": "read", "scope": "lab"})["token"]
    page = open_page(lab, [NO_TOKEN, "responded with a status of 403"])
    page.open("/ui#scope=default")
    page.sign_in(reader)
    page.until(lambda: "may not see the scope default" in page.text("#sign-in-why"), "that it is another scope's")
    # Without a scope that was asked for, the token's own is shown.
    page.sign_in(reader)
    page.until(lambda: page.row("peers", "Name", "alpha"), "alpha")
    page.until(lambda: page.driver.current_url.endswith("#scope=lab"), "the scope in the address")


def test_a_peer_says_much_and_some_of_it_evil(lab, open_page):
    page = open_page(lab, [NO_TOKEN])
    page.open("/ui#scope=lab")
    page.sign_in(lab.token)
    page.until(lambda: page.row("peers", "Name", "alpha"), "alpha")
    alpha = page.row("peers", "Name", "alpha")
    assert alpha["Name"].split() == ["alpha", "worker"]
    assert alpha["Providers"].split() == ["verbs", "tcp"]
    assert "rack=r7" in alpha["Labels"] and HOSTILE in alpha["Labels"]
    page.show("services")
    calc = page.row("services", "Service", "calc")
    assert (calc["Health"], calc["Methods"]) == ("draining", "add")
    assert "model=m-7b" in calc["Labels"] and HOSTILE in calc["Labels"]
    assert page.row("services", "Service", "echo")["Health"] == "serving"
    page.show("regions")
    assert page.row("regions", "Region", "kv/0")["Size"] == "3.0 MiB"
    assert page.row("regions", "Region", "kv/0")["Rights"] == "read and write"
    assert page.driver.execute_script("return window.harmed ?? 0") == 0
    assert page.driver.execute_script("return document.querySelectorAll('main img, main script').length") == 0
    page.screen(390, 844, 2, mobile=True)
    for view in ("peers", "services"):
        page.show(view)
        assert page.driver.execute_script("return document.documentElement.scrollWidth") == 390


def test_links_and_their_traffic(lab, open_page):
    page = open_page(lab, [NO_TOKEN])
    page.open("/ui#scope=lab&view=links")
    page.sign_in(lab.token)
    page.until(lambda: page.row("links", "To", "beta"), "a link")
    assert page.row("links", "To", "beta")["State"] == "not reported"
    assert page.row("links", "To", "gamma")["State"] == "peer absent"
    sent = 0

    def report():
        nonlocal sent
        sent += 1 << 20
        link = {"peer": "beta", "provider": "tcp", "state": "ready", "sent_bytes": sent, "received_bytes": 7, "calls": 3}
        lab.heartbeat("alpha", "lab", lab.incarnation, {"links": [link]})

    report()
    page.until(lambda: page.row("links", "To", "beta")["State"] == "ready", "ready")
    assert page.row("links", "To", "beta")["Provider"] == "tcp"
    assert page.row("links", "To", "beta")["Sent"].endswith("1.0 MiB")
    report()
    page.until(lambda: "/s" in page.row("links", "To", "beta")["Sent"], "a rate")
    assert page.row("links", "To", "beta")["Received"] == "idle 7 B"
    assert page.row("links", "To", "beta")["Direct"] == "idle 0 B"


def test_a_nanoctrl_without_tokens_is_shown_at_once(nanoctrl, make_agent, open_page):
    page = open_page(types.SimpleNamespace(url=nanoctrl))
    page.open()
    page.until_live()
    page.until(lambda: page.text("#summary").startswith("Nothing has registered yet."), "that there is nothing")
    agent = make_agent("first", ctrl_url=nanoctrl)
    page.until(lambda: page.row("peers", "Name", "first"), "the first agent")
    assert not page.one("#token").is_displayed() and not page.one("#forget").is_displayed()
    agent.close()
    page.until(lambda: page.rows("peers") == [], "that it said goodbye")
    assert page.rows("events")[0]["Event"] == "deregistered"


def test_a_scope_may_be_chosen(lab, open_page):
    lab.register("gamma", "other")
    page = open_page(lab, [NO_TOKEN])
    page.open("/ui#scope=lab")
    page.sign_in(lab.token)
    page.until(lambda: page.row("peers", "Name", "alpha"), "alpha")
    page.one("#scope option[value=other]").click()
    page.until(lambda: [row["Name"] for row in page.rows("peers")] == ["gamma"], "only gamma")
    page.until(lambda: page.driver.current_url.endswith("#scope=other"), "the scope in the address")


def test_an_address_with_no_name_of_a_scope(lab, open_page):
    page = open_page(lab, [NO_TOKEN, "responded with a status of 400"])
    page.open("/ui#scope=a%3Cb")
    page.sign_in(lab.token)
    page.until(lambda: page.row("peers", "Name", "alpha"), "alpha")


def test_nanoctrl_goes_and_comes_back(lab, open_page):
    page = open_page(lab, [NO_TOKEN, "net::ERR_", "responded with a status of 503"])
    page.open("/ui#scope=lab")
    page.sign_in(lab.token)
    page.until_live()
    page.driver.execute_script("window.neverReloaded = true")
    lab.stop()
    page.until(lambda: page.text("#connection") == "Reconnecting", "Reconnecting")
    assert page.one("#connection").get_attribute("aria-live") == "polite"
    assert page.row("peers", "Name", "alpha")  # what was known is still there to read
    lab.start()
    page.until_live()
    lab.register("newcomer", "lab")
    page.until(lambda: page.row("peers", "Name", "newcomer"), "newcomer")
    # What was seen before is still there, and nothing twice.
    assert [row["Peer"].split()[0] for row in page.rows("events")] == ["newcomer", "alpha", "beta", "alpha"]
    assert page.driver.execute_script("return window.neverReloaded")


def test_a_nanoctrl_with_too_many_watches_is_asked_later(lab, open_page):
    page = open_page(lab, [NO_TOKEN, "responded with a status of 429"])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096) if hard > 0 else 4096, hard))
    try:
        with contextlib.ExitStack() as watches:
            since = lab.ask("GET", "/v1/peers?scope=lab")["revision"]
            request = f"GET /v1/watch?scope=lab&since={since}&wait_ms=30000 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {lab.token}\r\n\r\n"
            for _ in range(1024):
                watches.enter_context(socket.create_connection(("127.0.0.1", lab.port))).sendall(request.encode())
            page.open("/ui#scope=lab")
            page.sign_in(lab.token)
            page.until(lambda: page.text("#connection") == "nanoctrl is busy", "busy")
            assert page.row("peers", "Name", "alpha")
        page.until_live()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_ten_thousand_peers(crowd, open_page):
    page = open_page(crowd, [NO_TOKEN])
    page.open("/ui#scope=crowd")
    page.sign_in(crowd.token)
    page.until(lambda: page.count("peers") == 10_000, "10,000 peers")
    assert len(page.rows("peers")) == 200
    assert page.text("#view-peers .more") == "and 9,800 more: the filter finds them"
    page.filter("peer-09999")
    page.until(lambda: [row["Name"] for row in page.rows("peers")] == ["peer-09999"], "only the last one")


def test_more_changes_than_are_kept(crowd, open_page):
    page = open_page(crowd, [NO_TOKEN])
    page.open("/ui#scope=crowd")
    page.sign_in(crowd.token)
    page.until_live()
    page.until(lambda: page.count("peers") == 10_000, "10,000 peers")
    for i in range(400):
        crowd.register(f"late-{i:03}", "crowd", crowd.connection)
    page.until(lambda: page.count("peers") == 10_400, "400 more")
    page.until(lambda: page.text("#view-events .more") == "and 300 more: the filter finds them", "500 events")
    page.until(lambda: page.rows("events")[0]["Peer"].split()[0] == "late-399", "the last one on top")
    assert len(page.rows("events")) == 200


def test_keys_are_enough(lab, open_page):
    page = open_page(lab, [NO_TOKEN])
    page.open("/ui#scope=lab")
    page.sign_in(lab.token)
    page.until_live()
    page.one("#tab-peers").send_keys("\ue014")  # the right arrow
    page.until(lambda: page.one("#view-services").is_displayed(), "services")
    focused = page.driver.switch_to.active_element
    assert (focused.get_attribute("id"), focused.get_attribute("aria-selected")) == ("tab-services", "true")
    assert not page.one("#view-peers").is_displayed()
    unlabelled = """return [...document.querySelectorAll("input, select")].filter((field) => field.labels.length === 0).length
      + [...document.querySelectorAll("th")].filter((head) => head.scope !== "col").length
      + [...document.querySelectorAll("table")].filter((table) => !table.caption).length"""
    assert page.driver.execute_script(unlabelled) == 0
