"""What ctrl/deploy has, run for real: its arguments and environment, with paths and ports of the test's own."""

import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import ssl
import stat
import subprocess
import urllib.error
import urllib.request

import pytest

from conftest import BUILD, PATIENCE, ROOT, program, wait_until

DEPLOY = ROOT / "ctrl" / "deploy"
MANIFESTS = ("nanoctrl.yaml", "nanoctrl-redis.yaml")

if not DEPLOY.is_dir():
    pytest.skip("the tree is not here, only its tests", allow_module_level=True)


def run(*command, **options):
    return subprocess.run(
        [str(one) for one in command], capture_output=True, text=True, timeout=120 * PATIENCE, check=False, **options
    )


def flags_of(binary, *command):
    help_text = run(binary, *command, "--help").stdout
    return set(re.findall(r"^\s+(?:-\w,)?(--[a-z-]+)", help_text, re.MULTILINE))


def pairs(arguments, known):
    """(flag, value) of arguments in either way to write them. Nothing but flags that are known may be there."""
    rest, out = list(arguments), []
    while rest:
        flag, _, value = rest.pop(0).partition("=")
        assert flag in known, f"{flag} is not a flag of this program"
        if not value and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        out.append((flag, value))
    return out


class Site:
    """A folder with the files that a deployment names, and nanoctrl run in it as that deployment says."""

    def __init__(self, folder, start):
        self.folder = folder
        self.start = start
        self.nanoctrl = program("nanoctrl", "ctrl")
        self.known = flags_of(self.nanoctrl, "server")
        token = run(self.nanoctrl, "token", "new").stdout
        for name in ("admin.token", "admin-token"):
            self.write(name, token)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def make_certificate(self):
        if shutil.which("openssl") is None:
            pytest.skip("no openssl to make a certificate with")
        made = run(
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", self.folder / "tls.key", "-out", self.folder / "tls.crt", "-days", "2"),
            *("-subj", "/CN=nanoctrl", "-addext", "subjectAltName=IP:127.0.0.1"),
        )
        assert made.returncode == 0, made.stderr

    def own(self, path):
        """The test's own file for an absolute path of the deployment."""
        return str(self.folder / pathlib.PurePath(path).name)

    def environment(self, of):
        out = {}
        for name, value in of.items():
            if value.startswith("sqlite:/"):
                value = f"sqlite:{self.own(value)}"
            out[name] = self.own(value) if value.startswith("/") else value
        if (self.folder / "tls.crt").exists():
            out["SLIME_CTRL_CA_FILE"] = str(self.folder / "tls.crt")
        return out

    def serve(self, arguments, environment):
        """Starts `nanoctrl` with these arguments, of which only paths, the host and the port are replaced."""
        command, *rest = arguments
        assert command == "server"
        replaced = {"--host": "127.0.0.1", "--port": "0"}
        own = [(f, replaced.get(f, self.own(v) if v.startswith("/") else v)) for f, v in pairs(rest, self.known)]
        assert ("--host", "127.0.0.1") in own
        if "--port" not in dict(own):
            own.append(("--port", "0"))  # else the default one, which another test may have
        given = [word for pair in own for word in pair if word]
        return Served(self, self.start(self.nanoctrl, command, *given, env=self.environment(environment)), environment)


class Served:
    def __init__(self, site, process, environment):
        self.site = site
        self.process = process
        self.environment = site.environment(environment)
        self.url = process.line().rpartition(" ")[2]
        self.port = self.url.rpartition(":")[2]

    def get(self, path, token=""):
        """Status and body; without a token unless there is one."""
        context = ssl.create_default_context(cafile=self.environment.get("SLIME_CTRL_CA_FILE"))
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {token}"} if token else {})
        try:
            with urllib.request.urlopen(request, timeout=30 * PATIENCE, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def ask(self, *arguments):
        """What the program says with the deployment's environment and the admin's token."""
        token_file = str(self.site.folder / "admin.token")
        environment = {**os.environ, "SLIME_CTRL_TOKEN_FILE": token_file, **self.environment}
        return run(self.site.nanoctrl, *arguments, "--json", env=environment)

    def check(self):
        """It is open to probes, closed to strangers, and tells its administrator what it has."""
        assert self.get("/healthz") == (200, '{"status":"ok"}')
        assert self.get("/v1/status")[0] == 401
        status = self.ask("status", "--port", self.port)
        assert status.returncode == 0, status.stdout
        assert json.loads(status.stdout)["peers"] == 0

    def stop(self):
        """SIGTERM ends it well."""
        self.process.process.terminate()
        assert self.process.finish()[0] == 0


@pytest.fixture
def site(tmp_path, start):
    tmp_path.chmod(0o700)
    return Site(tmp_path, start)


# ------------------------------------------------------------------------------------------ systemd


@pytest.fixture
def unit(tmp_path):
    """The unit as it is installed, with the program where it says."""
    if shutil.which("cmake") is None or not (BUILD / "cmake_install.cmake").exists():
        pytest.skip("no build to install from")
    prefix = tmp_path / "prefix"
    installed = run("cmake", "--install", BUILD, "--prefix", prefix, "--component", "systemd")
    assert installed.returncode == 0, installed.stderr
    (prefix / "bin").mkdir()
    shutil.copy(program("nanoctrl", "ctrl"), prefix / "bin" / "nanoctrl")
    return prefix / "lib" / "systemd" / "system" / "nanoctrl.service"


def settings(path, name):
    return [line.partition("=")[2] for line in path.read_text().splitlines() if line.startswith(f"{name}=")]


def test_the_unit_starts_nanoctrl(unit, site):
    folder = site.folder / "systemd"
    known = {"CREDENTIALS_DIRECTORY": str(folder)}
    for line in settings(unit, "Environment"):
        for word in shlex.split(line):
            name, _, value = word.partition("=")
            known[name] = value.replace("%S", str(folder)).replace("%t", str(folder))
    (command,) = settings(unit, "ExecStart")
    binary, *arguments = re.sub(r"\$\{?(\w+)\}?", lambda found: known[found.group(1)], command).split()
    assert binary == str(unit.parents[3] / "bin" / "nanoctrl")
    served = site.serve(arguments, {name: known[name] for name in ("SLIME_CTRL_STORE", "SLIME_RUNTIME_DIR")})
    served.check()
    served.stop()
    assert (site.folder / "nanoctrl.db").exists()


def test_a_reload_of_the_unit_is_a_signal_that_nanoctrl_goes_on_after(unit, site):
    (command,) = settings(unit, "ExecReload")
    binary, option, process = command.split()
    assert process == "$MAINPID"
    admin = site.own("/etc/nanoctrl/admin.token")
    served = site.serve(["server", "--host", "0.0.0.0", "--admin-token-file", admin], {"SLIME_CTRL_STORE": "memory"})
    old = pathlib.Path(admin).read_text().strip()
    new = run(site.nanoctrl, "token", "new").stdout
    site.write("admin.token", new)
    assert run(binary, option, served.process.process.pid).returncode == 0
    wait_until(lambda: served.get("/v1/status", new.strip())[0] == 200)
    assert served.get("/v1/status", old)[0] == 401
    served.stop()


def test_the_credential_of_the_unit_is_the_one_that_it_uses(unit):
    (credential,) = settings(unit, "LoadCredential")
    (command,) = settings(unit, "ExecStart")
    assert f"--admin-token-file ${{CREDENTIALS_DIRECTORY}}/{credential.partition(':')[0]} " in command


def systemd_analyze(*arguments):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    return run("systemd-analyze", *arguments)


def test_systemd_takes_the_unit(unit):
    verified = systemd_analyze("verify", "--man=no", unit)
    said = [line for line in (verified.stdout + verified.stderr).splitlines() if "nanoctrl" in line]
    assert verified.returncode == 0 and not said, verified.stderr


def test_systemd_finds_the_unit_hard_to_abuse(unit):
    version = systemd_analyze("--version").stdout.split()[1]
    if int(re.match(r"\d+", version).group()) < 250:
        pytest.skip(f"systemd {version} rates only units that are loaded")
    rated = systemd_analyze("security", "--offline=true", "--threshold=20", unit)
    assert rated.returncode == 0, rated.stdout


# ------------------------------------------------------------------------------------------- Docker


def instructions(path):
    """(instruction, text) of a Dockerfile, without comments and continued lines."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, text = line.strip().partition(" ")
            yield name.upper(), text.strip()


@pytest.fixture
def image():
    """The instructions of the Dockerfile's last stage; some name but once."""
    all_of_it = list(instructions(DEPLOY / "Dockerfile"))
    last = max(i for i, (name, _) in enumerate(all_of_it) if name == "FROM")
    return dict(all_of_it[last:])


def test_the_image_starts_nanoctrl_and_its_health_check_tells_how_it_is(image, site):
    environment = dict(word.split("=", 1) for word in shlex.split(image["ENV"]))
    binary, *arguments = json.loads(image["ENTRYPOINT"]) + json.loads(image["CMD"])
    assert binary == "nanoctrl"
    assert image["STOPSIGNAL"] == "SIGTERM"
    site.make_certificate()
    served = site.serve(arguments, environment)
    served.check()
    binary, *check = json.loads(image["HEALTHCHECK"].partition("CMD ")[2])
    assert binary == "nanoctrl"
    assert served.ask(*check[:-1], "--port", served.port).returncode == 0
    served.stop()
    assert served.ask(*check[:-1], "--port", served.port).returncode == 3


def test_the_image_runs_as_nobody_in_particular_and_names_no_registry(image):
    user = int(image["USER"].partition(":")[0])
    assert user > 0
    bases = [text.split()[0] for name, text in instructions(DEPLOY / "Dockerfile") if name == "FROM"]
    assert set(bases) == {"debian:bookworm-slim"}
    assert "://" not in (DEPLOY / "Dockerfile").read_text()


def test_what_the_image_is_built_from_is_in_its_context():
    wanted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / name).exists() for name in wanted)
    layers = re.search(r"foreach\(layer ([a-z ]+)\)", (ROOT / "CMakeLists.txt").read_text()).group(1).split()
    assert {*layers, "CMakeLists.txt", "cmake", "scripts"} <= wanted


# --------------------------------------------------------------------------------------- Kubernetes


def documents(name):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))


def of_kind(objects, kind):
    (found,) = (one for one in objects if one["kind"] == kind)
    return found


def deployment(objects):
    pod = of_kind(objects, "Deployment")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    return pod, container


@pytest.fixture
def redis(tmp_path, start):
    """The URL of a Redis of this test's own."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    for _ in range(5):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server = start("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", tmp_path)
        while (line := server.line()) and "Ready to accept connections" not in line:
            if "Address already in use" in line:
                break
        else:
            return f"redis://127.0.0.1:{port}/0?prefix=slime"
    pytest.fail("no free port for Redis")


def environment_of(container, secrets):
    def value(entry):
        return entry["value"] if "value" in entry else secrets[entry["valueFrom"]["secretKeyRef"]["name"]]

    return {entry["name"]: value(entry) for entry in container["env"]}


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_manifests_start_nanoctrl_and_their_probes_need_no_token(name, site, request):
    objects = documents(name)
    _, container = deployment(objects)
    site.make_certificate()
    secrets = {"nanoctrl-redis": request.getfixturevalue("redis")} if "redis" in name else {}
    environment = environment_of(container, secrets)
    assert container["command"] == ["nanoctrl"]
    replicas = []
    for number in range(of_kind(objects, "Deployment")["spec"]["replicas"]):
        own = {**environment, "SLIME_RUNTIME_DIR": f"/run/nanoctrl/replica-{number}"}
        replicas.append(site.serve(container["args"], own))
    for served in replicas:
        served.check()
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert served.url.startswith(container[probe]["httpGet"]["scheme"].lower() + "://")
            assert served.get(container[probe]["httpGet"]["path"])[0] == 200
        # A store that is away takes the Pod out of its Service, and does not have it restarted.
        paths = [container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe", "startupProbe")]
        assert paths == ["/readyz", "/healthz", "/healthz"]
    # A token made at one of them is valid at all.
    made = replicas[0].ask("token", "create", "--role", "read", "--scope", "*", "--ctrl", replicas[0].url)
    token = json.loads(made.stdout)["token"]
    for served in replicas:
        wait_until(lambda one=served: one.get("/v1/status", token)[0] == 200)
        served.stop()


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_objects_of_a_manifest_fit_together(name):
    objects = documents(name)
    pod, container = deployment(objects)
    labels = pod["metadata"]["labels"]
    selectors = [
        of_kind(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        of_kind(objects, "Service")["spec"]["selector"],
        of_kind(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert f"--port={ports['ctrl']}" in container["args"]
    assert [port["targetPort"] for port in of_kind(objects, "Service")["spec"]["ports"]] == ["ctrl"]
    assert of_kind(objects, "NetworkPolicy")["spec"]["ingress"][0]["ports"] == [{"port": ports["ctrl"]}]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert volumes.keys() == mounts.keys()
    # Each path that the program gets is in something that is mounted, for the rest is read-only.
    words = [*container["args"], *(entry.get("value", "") for entry in container["env"])]
    paths = [path for word in words for path in re.findall(r"(?:=|:|^)(/[^\s=]+)", word)]
    assert len(paths) >= 4
    assert all(any(path.startswith(mount + "/") for mount in mounts.values()) for path in paths)
    modes = [volume["secret"]["defaultMode"] for volume in volumes.values() if "secret" in volume]
    assert modes and not any(mode & stat.S_IRWXO for mode in modes)


def test_the_agent_of_the_example_knows_its_arguments():
    (pod,) = documents("agent.yaml")
    (container,) = pod["spec"]["containers"]
    (name,) = container["command"]
    binary = program(name, "cache")
    command, *arguments = container["args"]
    pairs(arguments, flags_of(binary, command))
    named = {e["name"] for e in container["env"]}
    assert {"SLIME_CTRL_URL", "SLIME_CTRL_TOKEN_FILE", "SLIME_CTRL_CA_FILE"} <= named
    assert set(re.findall(r"\$\((\w+)\)", " ".join(arguments))) <= named
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}
    for policy in (of_kind(documents(one), "NetworkPolicy") for one in MANIFESTS):
        selector = policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
        assert selector.items() <= pod["metadata"]["labels"].items()


@pytest.mark.parametrize("name", [*MANIFESTS, "agent.yaml"])
def test_kubernetes_takes_the_manifests(name):
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for one in documents(name):
        validate.validate(one, validate.latest_version(), strict=True)
