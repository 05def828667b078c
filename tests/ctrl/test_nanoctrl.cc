#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/daemon.h"
#include "base/str.h"
#include "ctrl/api/auth.h"
#include "ctrl/client.h"
#include "ctrl/server.h"
#include "tests/ctrl/certificates.h"
#include "tests/ctrl/samples.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

namespace slime::ctrl {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using slime::test::Process;

struct Output {
  int exit_status = -1;
  std::string line;
  Json json;
};

// The program nanoctrl with its own runtime directory.
class Fixture {
 public:
  ~Fixture() {
    for (const int port : ports) run({"stop", "--port", std::to_string(port), "--force", "--timeout", "10"});
  }
  std::vector<std::string> environment() const { return {"SLIME_RUNTIME_DIR=" + dir}; }

  Output run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), slime::test::built_file("ctrl/nanoctrl"));
    Result<Process> process = Process::spawn(std::move(arguments), environment());
    REQUIRE(process);
    Output out;
    if (const Result<std::string> line = process->read_line(60s)) out.line = *line;
    const Result<slime::test::ExitState> exit = process->wait(60s);
    REQUIRE(exit);
    CHECK_FALSE(exit->signaled);
    out.exit_status = exit->value;
    out.json = Json::parse(out.line, nullptr, false);
    return out;
  }
  Output start() {
    Output out = run({"start", "--port", "0", "--wait", "60", "--json"});
    REQUIRE(out.exit_status == 0);
    const std::string url = out.json.at("url");
    ports.push_back(std::stoi(url.substr(url.rfind(':') + 1)));
    return out;
  }
  struct Foreground {
    Process process;
    std::string port;
  };
  // Starts a server in the foreground, which has printed its address.
  Foreground serve(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {slime::test::built_file("ctrl/nanoctrl"), "server", "--port", "0",
                                          "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Result<Process> process = Process::spawn(std::move(arguments), environment());
    REQUIRE(process);
    const Result<std::string> line = process->read_line(60s);
    REQUIRE(line);
    return {std::move(*process), std::to_string(Json::parse(*line).at("port").get<int>())};
  }
  std::string port() const { return std::to_string(ports.back()); }

  const slime::test::Folder folder;
  const std::string dir = folder.path().string();
  std::vector<int> ports;
};

// Returns true if the process is gone or a zombie.
bool ended(pid_t pid) {
  std::ifstream file(str("/proc/", pid, "/stat"));
  std::string text;
  if (!std::getline(file, text)) return true;
  return text.substr(text.rfind(')') + 2, 1) == "Z";
}

TEST_CASE("start, start again, status, stop, stop again") {
  Fixture f;
  const Output started = f.start();
  CHECK(started.json.at("state") == "started");
  const Output again = f.run({"start", "--port", f.port(), "--json"});
  CHECK(again.exit_status == 0);
  CHECK(again.json.at("state") == "already_running");
  CHECK(again.json.at("pid") == started.json.at("pid"));
  const Output status = f.run({"status", "--port", f.port(), "--json"});
  CHECK(status.exit_status == 0);
  CHECK(status.json.at("state") == "running");
  CHECK(status.json.at("pid") == started.json.at("pid"));
  CHECK(status.json.at("peers") == 0);
  CHECK(f.run({"status", "--port", f.port()}).line.find("runs: http://127.0.0.1:") != std::string::npos);
  CHECK(f.run({"stop", "--port", f.port(), "--json"}).json.at("state") == "stopped");
  CHECK(ended(started.json.at("pid")));
  const Output stopped = f.run({"stop", "--port", f.port(), "--json"});
  CHECK(stopped.exit_status == 3);
  CHECK(stopped.json.at("state") == "not_running");
  CHECK(f.run({"status", "--port", f.port(), "--json"}).exit_status == 3);
  CHECK(::access(str(f.dir, "/nanoctrl-", f.port(), ".pid").c_str(), F_OK) != 0);
}

TEST_CASE("status asks a server that listens everywhere at localhost, which its certificate has") {
  Fixture f;
  const test::Identity authority = test::make_identity("test authority", nullptr, nullptr);
  const test::Identity identity = test::make_identity("nanoctrl", "DNS:localhost", &authority);
  const std::string ca = write_certificate(f.folder, "ca.pem", authority);
  const auto server = f.serve({"--host", "0.0.0.0", "--insecure", "--tls-cert",
                               write_certificate(f.folder, "server.pem", identity), "--tls-key",
                               write_key(f.folder, "key.pem", identity)});
  REQUIRE(::setenv("SLIME_CTRL_CA_FILE", ca.c_str(), 1) == 0);
  const Output status = f.run({"status", "--port", server.port, "--json"});
  REQUIRE(::unsetenv("SLIME_CTRL_CA_FILE") == 0);
  CHECK(status.exit_status == 0);
  CHECK(status.json.at("peers") == 0);
}

TEST_CASE("status says whether a token is missing or the certificate is not trusted") {
  Fixture f;
  const test::Identity authority = test::make_identity("test authority", nullptr, nullptr);
  const test::Identity identity = test::make_identity("nanoctrl", "IP:127.0.0.1", &authority);
  const std::string token = f.folder.file("token");
  std::ofstream(token) << make_token(Role::kAdmin, "*", "", 0, 0).text << "\n";
  REQUIRE(::chmod(token.c_str(), S_IRUSR) == 0);
  const auto server =
      f.serve({"--admin-token-file", token, "--tls-cert", write_certificate(f.folder, "server.pem", identity),
               "--tls-key", write_key(f.folder, "key.pem", identity)});
  const Output untrusted = f.run({"status", "--port", server.port});
  CHECK(untrusted.exit_status == 0);
  CHECK_MESSAGE(untrusted.line.find("certificate is not trusted") != std::string::npos, untrusted.line);
  const std::string ca = write_certificate(f.folder, "ca.pem", authority);
  REQUIRE(::setenv("SLIME_CTRL_CA_FILE", ca.c_str(), 1) == 0);
  const Output trusted = f.run({"status", "--port", server.port});
  REQUIRE(::unsetenv("SLIME_CTRL_CA_FILE") == 0);
  CHECK(trusted.exit_status == 0);
  CHECK_MESSAGE(trusted.line.find("with a token") != std::string::npos, trusted.line);
}

TEST_CASE("two on different ports live side by side") {
  Fixture f;
  f.start();
  const std::string first = f.port();
  f.start();
  CHECK(f.run({"stop", "--port", first}).exit_status == 0);
  CHECK(f.run({"status", "--port", f.port()}).exit_status == 0);
}

TEST_CASE("the pid file of a killed nanoctrl does not mislead, also when another process has its pid now") {
  Fixture f;
  const Output started = f.start();
  const std::string pid_path = str(f.dir, "/nanoctrl-", f.port(), ".pid");
  REQUIRE(::kill(started.json.at("pid").get<pid_t>(), SIGKILL) == 0);
  const TimePoint deadline = steady_clock().now() + 30s;
  while (f.run({"status", "--port", f.port()}).exit_status != 3) REQUIRE(steady_clock().now() < deadline);
  std::ofstream(pid_path) << ::getpid() << "\nhttp://127.0.0.1:" << f.port() << "\n";
  CHECK(f.run({"status", "--port", f.port()}).exit_status == 3);
  CHECK(f.run({"stop", "--port", f.port(), "--force"}).exit_status == 3);
  const Output restarted = f.run({"start", "--port", f.port(), "--wait", "60", "--json"});
  CHECK(restarted.exit_status == 0);
  CHECK(restarted.json.at("state") == "started");
  CHECK(restarted.json.at("pid") != started.json.at("pid"));
}

TEST_CASE("a port that another program has is an error that says so") {
  Fixture f;
  ServerOptions options;
  options.port = 0;
  const Result<std::unique_ptr<Server>> other = Server::bind(options);
  REQUIRE(other);
  const Output out = f.run({"start", "--port", std::to_string((*other)->port()), "--json"});
  CHECK(out.exit_status == 1);
  CHECK(out.json.at("code") == "unavailable");
  CHECK(out.json.at("message").get<std::string>().find("--port") != std::string::npos);
}

TEST_CASE("wrong usage is 2, a non-loopback host is 1, help is 0") {
  Fixture f;
  CHECK(f.run({}).exit_status == 2);
  CHECK(f.run({"bogus"}).exit_status == 2);
  CHECK(f.run({"start", "--port", "99999"}).exit_status == 2);
  CHECK(f.run({"start", "--ttl", "0"}).exit_status == 2);
  CHECK(f.run({"start", "--log-level", "loud"}).exit_status == 2);
  CHECK(f.run({"start", "--help"}).exit_status == 0);
  CHECK(f.run({"version", "--json"}).json.contains("version"));
  const Output open = f.run({"start", "--host", "0.0.0.0", "--port", "0", "--json"});
  CHECK(open.exit_status == 1);
  CHECK(open.json.at("code") == "permission_denied");
}

TEST_CASE("a server without tokens makes none over HTTP, and token create says where it is made") {
  Fixture f;
  const auto server = f.serve();
  const Output refused = f.run({"token", "create", "--role", "admin", "--scope", "*", "--json", "--ctrl",
                                "http://127.0.0.1:" + server.port});
  CHECK(refused.exit_status == 1);
  CHECK(refused.json.at("code") == "permission_denied");
  const std::string why = refused.json.at("message");
  CHECK(why.find("nanoctrl token create --store") != std::string::npos);
  CHECK(why.find("--admin-token-file") != std::string::npos);
}

TEST_CASE("the first token is made in the store, further ones by asking, and a revoked one is refused") {
  Fixture f;
  const std::string store = "sqlite:" + f.folder.file("tokens.db");
  const Output first =
      f.run({"token", "create", "--store", store, "--role", "admin", "--scope", "*", "--json"});
  REQUIRE(first.exit_status == 0);
  const std::string admin = f.folder.file("admin");
  const auto keep = [](const std::string& path, const Json& token) {
    std::ofstream(path) << token.at("token").get<std::string>() << "\n";
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
  };
  keep(admin, first.json);
  auto [server, port] = f.serve({"--store", store});
  const std::string url = "http://127.0.0.1:" + port;
  const auto ask = [&](std::vector<std::string> arguments, const std::string& file) {
    arguments.insert(arguments.begin(), "token");
    for (const std::string& more : {std::string("--ctrl"), url, std::string("--json")})
      arguments.push_back(more);
    if (!file.empty()) arguments.insert(arguments.end(), {"--token-file", file});
    return f.run(std::move(arguments));
  };
  CHECK(ask({"list"}, "").json.at("code") == "unauthenticated");
  const Output made = ask({"create", "--role", "read", "--note", "for the page", "--days", "1"}, admin);
  REQUIRE(made.exit_status == 0);
  CHECK(made.json.at("expires_unix_s") == made.json.at("created_unix_s").get<std::uint64_t>() + 86400);
  const std::string reader = f.folder.file("reader");
  keep(reader, made.json);
  CHECK(ask({"list"}, reader).json.at("code") == "permission_denied");
  CHECK(ask({"list"}, admin).json.at("tokens").size() == 2);
  CHECK(ask({"revoke", made.json.at("id").get<std::string>()}, admin).exit_status == 0);
  CHECK(ask({"list"}, reader).json.at("code") == "unauthenticated");
  REQUIRE(::chmod(admin.c_str(), 0644) == 0);
  CHECK(ask({"list"}, admin).json.at("message").get<std::string>().find("chmod 600") != std::string::npos);
}

// Registers a peer with the client that agents use.
std::uint64_t enroll(const std::string& url, const std::string& name, std::uint8_t number) {
  ClientOptions options;
  options.url = url;
  Result<std::unique_ptr<Client>> client = Client::create(std::move(options));
  REQUIRE(client);
  Registration peer = test::registration(name, number);
  peer.metadata = {{"rack", std::string(1, static_cast<char>('a' + number % 2))}};
  peer.services = {{"calc", "math", {"add"}}};
  const Result<Lease> lease = (*client)->register_peer(peer);
  REQUIRE(lease);
  return lease->incarnation;
}

TEST_CASE("the quotas of a scope are flags, and out of their ranges an error") {
  Fixture f;
  const auto server = f.serve({"--scope-peers", "1", "--scope-bytes", "1048576"});
  const std::string url = "http://127.0.0.1:" + server.port;
  enroll(url, "one", 1);
  ClientOptions options;
  options.url = url;
  Result<std::unique_ptr<Client>> client = Client::create(std::move(options));
  REQUIRE(client);
  const Result<Lease> refused = (*client)->register_peer(test::registration("two", 2));
  CHECK(refused.status().code() == Code::kResourceExhausted);
  CHECK(refused.status().text().find("--scope-peers") != std::string::npos);
  const Json scope = f.run({"top", "--json", "--ctrl", url}).json.at("scopes")[0];
  CHECK(scope.at("peers_max") == 1);
  CHECK(scope.at("record_bytes_max") == 1048576);
  for (const char* flag : {"--scope-peers", "--scope-bytes"})
    CHECK(f.run({"server", "--port", "0", flag, "0"}).exit_status != 0);
}

TEST_CASE("peers, services, links, scopes and changes are printed, as tables and as JSON") {
  Fixture f;
  const auto server = f.serve();
  const std::string url = "http://127.0.0.1:" + server.port;
  const auto ask = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--ctrl", url});
    return f.run(std::move(arguments));
  };
  CHECK(ask({"peers"}).line == "no such peers in scope default");
  enroll(url, "one", 1);
  const auto since = ask({"peers", "--json"}).json.at("revision").get<std::uint64_t>();
  enroll(url, "two", 2);
  CHECK(ask({"peers"}).line.starts_with("NAME "));
  CHECK(ask({"peers", "--json"}).json.at("peers").size() == 2);
  const Output filtered = ask({"peers", "--label", "rack=b", "--json"});
  REQUIRE(filtered.json.at("peers").size() == 1);
  CHECK(filtered.json.at("peers")[0].at("name") == "one");
  CHECK(ask({"peers", "--label", "rack"}).exit_status == 1);
  CHECK(ask({"services", "--health", "serving", "--json"}).json.at("services").size() == 2);
  CHECK(ask({"links"}).line == "no links in scope default");
  CHECK(ask({"top", "--json"}).json.at("scopes")[0].at("peers") == 2);
  CHECK(ask({"top", "--once"}).exit_status == 0);
  const Output change = ask({"watch", "--since", std::to_string(since), "--count", "1", "--json"});
  CHECK(change.exit_status == 0);
  CHECK(change.json.at("event") == "registered");
  CHECK(change.json.at("name") == "two");
}

TEST_CASE("a backup of a running one is restored into an empty store") {
  Fixture f;
  const std::string file = f.folder.file("backup.json");
  const std::string store = "sqlite:" + f.folder.file("restored.db");
  std::uint64_t incarnation = 0;
  {
    const auto server = f.serve();
    const std::string url = "http://127.0.0.1:" + server.port;
    incarnation = enroll(url, "one", 1);
    CHECK(f.run({"backup", file, "--ctrl", url, "--json"}).json.at("peers") == 1);
  }
  CHECK(f.run({"restore", file, "--store", store, "--json"}).json.at("peers") == 1);
  CHECK(f.run({"restore", file, "--store", store, "--json"}).json.at("code") == "already_exists");
  CHECK(f.run({"restore", f.folder.file("none"), "--store", store, "--json"}).exit_status == 1);
  const auto server = f.serve({"--store", store});
  const Output peers = f.run({"peers", "--ctrl", "http://127.0.0.1:" + server.port, "--json"});
  REQUIRE(peers.json.at("peers").size() == 1);
  CHECK(peers.json.at("peers")[0].at("incarnation") == incarnation);
}

TEST_CASE("the registry is in a file of the state directory unless the port is 0") {
  Fixture f;
  Output again;
  // Another program may get the port between the two: then this starts with a new one.
  for (int i = 0; i < 5 && (i == 0 || again.exit_status != 0); ++i) {
    const Output started = f.start();
    CHECK_FALSE(std::filesystem::exists(f.dir + "/nanoctrl-" + f.port() + ".db"));
    REQUIRE(f.run({"stop", "--port", f.port(), "--json"}).exit_status == 0);
    again = f.run({"start", "--port", f.port(), "--wait", "60", "--json"});
  }
  REQUIRE(again.exit_status == 0);
  CHECK(std::filesystem::exists(f.dir + "/nanoctrl-" + f.port() + ".db"));
}

TEST_CASE("a relative path of the store means the directory in which nanoctrl was started") {
  Fixture f;
  const std::string name = "relative.db";
  const std::string path = std::filesystem::relative(f.dir) / name;
  const Output first =
      f.run({"token", "create", "--store", "sqlite:" + path, "--role", "admin", "--scope", "*", "--json"});
  REQUIRE(first.exit_status == 0);
  const Output started =
      f.run({"start", "--port", "0", "--store", "sqlite:" + path, "--wait", "60", "--json"});
  REQUIRE(started.exit_status == 0);
  const std::string url = started.json.at("url");
  f.ports.push_back(std::stoi(url.substr(url.rfind(':') + 1)));
  // The store has a token, so a request without one is refused.
  CHECK(f.run({"peers", "--ctrl", url, "--json"}).exit_status != 0);
  CHECK(std::filesystem::exists(f.dir + "/" + name));
}

TEST_CASE("a runtime directory that others may write is refused") {
  Fixture f;
  REQUIRE(::chmod(f.dir.c_str(), 0777) == 0);
  const Output out = f.run({"status", "--json"});
  CHECK(out.exit_status == 1);
  CHECK(out.json.at("code") == "permission_denied");
  REQUIRE(::chmod(f.dir.c_str(), 0700) == 0);
}

TEST_CASE("in the foreground it prints where it listens, and ends well on SIGTERM and SIGINT") {
  for (const bool interrupt : {false, true}) {
    Fixture f;
    auto [server, port] = f.serve();
    CHECK(f.run({"status", "--port", port}).exit_status == 0);
    REQUIRE((interrupt ? server.interrupt() : server.terminate()).ok());
    const Result<slime::test::ExitState> exit = server.wait(30s);
    REQUIRE(exit);
    CHECK(exit->success());
  }
}

TEST_CASE("stop gives up on a frozen one in time, and --force ends it") {
  Fixture f;
  auto [server, port] = f.serve();
  f.ports.push_back(std::stoi(port));
  REQUIRE(server.stop().ok());
  CHECK(f.run({"status", "--port", port, "--timeout", "0.2", "--json"}).exit_status == 1);
  const Output gave_up = f.run({"stop", "--port", port, "--timeout", "0.2", "--json"});
  CHECK(gave_up.exit_status == 1);
  CHECK(gave_up.json.at("code") == "deadline_exceeded");
  CHECK(f.run({"stop", "--port", port, "--timeout", "0.2", "--force", "--json"}).json.at("state") ==
        "killed");
  CHECK(server.wait(30s)->signaled);
}

TEST_CASE("a log on a full disk does not end it") {
  if (::access("/dev/full", W_OK) != 0) return;
  Fixture f;
  // The foreground server logs to stderr.
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const UniqueFd saved(::dup(STDERR_FILENO));
  ::dup2(full.get(), STDERR_FILENO);
  auto [server, port] = f.serve({"--log-level", "debug"});
  ::dup2(saved.get(), STDERR_FILENO);
  for (int i = 0; i < 3; ++i) CHECK(f.run({"status", "--port", port}).exit_status == 0);
  REQUIRE(server.terminate().ok());
  CHECK(server.wait(30s)->success());
}

}  // namespace
}  // namespace slime::ctrl
