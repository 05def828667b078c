"""The dashboard and the alerts of ctrl/deploy ask for what a real nanoctrl prints: metrics, labels, routes and events."""

import json
import pathlib
import re
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest

from conftest import PATIENCE, ROOT, program, wait_until

DEPLOY = ROOT / "ctrl" / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
SELECTOR = re.compile(r"\b((?:nanoctrl|slime|process)_[a-z_]+)(?:\{([^}]*)\})?")
NAMELESS = re.compile(r"\{__name__=~\"([^\"]+)\"")
MATCHER = re.compile(r"(\w+)(=~|!~|!=|=)\"([^\"]*)\"")

if not DEPLOY.is_dir():
    pytest.skip("the tree is not here, only its tests", allow_module_level=True)


def alerts():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def dashboard():
    return json.loads((DEPLOY / "grafana" / "nanoctrl.json").read_text())


def dashboard_queries():
    board = dashboard()
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]


def ask(url, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30 * PATIENCE) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


@pytest.fixture
def printed(start):
    """Name and labels of all that a nanoctrl prints whose agents report to it."""
    quick = start(program("nanoctrl", "ctrl"), "server", "--port", "0", "--ttl", "1", "--log-level", "error")
    nanoctrl = quick.line().rpartition(" ")[2]
    # An agent as it is, and one that says that it has a connection.
    start(program("slime-cache", "cache"), "server", "--ctrl", nanoctrl, "--memory-size", "1M").line()
    who = {"instance": "0123456789abcdef0123456789abcdef", "address": "127.0.0.1:1"}
    lease = json.loads(ask(nanoctrl, "/v1/peers", {"name": "a", "ttl_ms": 600000, **who}))
    link = {"peer": "b", "provider": "tcp", "state": "ready", "sent_bytes": 1, "received_bytes": 2, "calls": 3}
    mine = {"incarnation": lease["incarnation"], "session": lease["session"]}
    beat = {**mine, "report": {"links": [link], "counters": {}}}
    assert "events" in ask(nanoctrl, "/v1/peers/a/heartbeat", beat)
    ask(nanoctrl, "/v1/heartbeats", {"peers": [{"name": "a", **mine}]})
    wait_until(lambda: 'peer="cache:0"' in ask(nanoctrl, "/metrics"))
    out = {}
    for line in ask(nanoctrl, "/metrics").splitlines():
        if line and not line.startswith("#"):
            name, labels = re.match(r"(\w+)(?:\{(.*)\})? ", line).groups()
            out.setdefault(name, []).append(dict(re.findall(r'(\w+)="([^"]*)"', labels or "")))
    return out


def unknown(query, printed):
    """What of a query nothing that was printed could answer."""
    for pattern in NAMELESS.findall(query):
        if not any(re.fullmatch(pattern, name) for name in printed):
            yield pattern
    for name, matchers in SELECTOR.findall(re.sub(r"\{__name__[^}]*\}|\"slime_agent[^\"]*\"", "", query)):
        if name not in printed:
            yield name
            continue
        for label, operator, value in MATCHER.findall(matchers):
            if label in ("instance", "job") or value.startswith("$"):
                continue  # Prometheus' own, or a choice of the viewer
            values = {labels.get(label, "") for labels in printed[name]}
            # Of a status that is no pattern there may be none yet.
            matched = [any(re.fullmatch(part, each) for each in values) for part in value.split("|")]
            if values == {""} or (label in ("route", "event") and not all(matched)):
                yield f"{name}{{{label}{operator}{value!r}}}"


def test_the_dashboard_shows_what_nanoctrl_prints(printed):
    queries = list(dashboard_queries())
    assert len(queries) > 20
    assert [(title, what) for title, query in queries for what in unknown(query, printed)] == []


def test_the_alerts_watch_what_nanoctrl_prints(printed):
    rules = alerts()
    assert [(rule["alert"], what) for rule in rules for what in unknown(rule["expr"], printed)] == []


def test_all_that_nanoctrl_prints_of_itself_is_on_the_dashboard(printed):
    queries = "\n".join(query for _, query in dashboard_queries())
    own = {re.sub(r"_(bucket|count|sum)$", "", name) for name in printed if name.startswith("nanoctrl_")}
    assert {name for name in own if name not in queries} == set()


def test_an_error_in_a_query_is_found(printed):
    assert list(unknown('rate(nanoctrl_request_total{status="200"}[5m])', printed)) == ["nanoctrl_request_total"]
    assert list(unknown('nanoctrl_peers{room="a"}', printed)) == ["nanoctrl_peers{room='a'}"]
    assert list(unknown('sum(nanoctrl_requests_total{route=~"/v1/beats"})', printed))
    assert list(unknown('{__name__=~"slime_peer_.+_total"}', printed)) == ["slime_peer_.+_total"]


def test_every_panel_lets_the_data_source_and_the_nanoctrl_be_chosen():
    board = dashboard()
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert {"instance", "scope"} <= variables.keys()
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    places = [tuple(panel["gridPos"].items()) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all("$instance" in target["expr"] for target in panel["targets"])


def test_every_alert_says_what_it_means_and_is_explained():
    text = (ROOT / "docs" / "operations.md").read_text()
    for rule in alerts():
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert f"`{rule['alert']}`" in text


def test_prometheus_takes_the_alerts_and_they_fire_when_they_should(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    shutil.copy(ALERTS, tmp_path)
    shutil.copy(pathlib.Path(__file__).with_name("alerts_test.yaml"), tmp_path)
    for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
        done = subprocess.run([promtool, *command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
