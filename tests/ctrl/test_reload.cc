#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/str.h"
#include "ctrl/api/auth.h"
#include "ctrl/client.h"
#include "tests/ctrl/certificates.h"
#include "tests/ctrl/raw_http.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/process.h"
#include "tests/support/settings.h"

// SIGHUP: nanoctrl reads its certificate and its administrator's token again.
namespace slime::ctrl::reload_test {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using slime::test::Folder;
using slime::test::Process;
using test::has;
using test::Identity;

// nanoctrl with a certificate of one of two CAs, and a token file, in the background or the
// foreground.
class Reloadable {
 public:
  explicit Reloadable(bool background) : background_(background) {
    show(first);
    write_token(old_token);
    std::vector<std::string> arguments = {slime::test::built_file("ctrl/nanoctrl"),
                                          background ? "start" : "server",
                                          "--port",
                                          "0",
                                          "--json",
                                          "--store",
                                          "memory",
                                          "--tls-cert",
                                          folder.file("server.pem"),
                                          "--tls-key",
                                          folder.file("key.pem"),
                                          "--admin-token-file",
                                          folder.file("token")};
    Result<Process> spawned = Process::spawn(arguments, environment());
    REQUIRE(spawned);
    process_.emplace(std::move(*spawned));
    const Result<std::string> line = process_->read_line(slime::test::patient(60s));
    REQUIRE(line);
    const auto said = nlohmann::json::parse(*line);
    REQUIRE_MESSAGE(said.contains("url"), *line);
    url = said.at("url");
    pid_ = said.at("pid");
    if (background) log_ = said.at("log");
  }
  ~Reloadable() {
    if (!background_) return;
    Result<Process> stop = Process::spawn({slime::test::built_file("ctrl/nanoctrl"), "stop", "--force",
                                           "--port", url.substr(url.rfind(':') + 1)},
                                          environment());
    REQUIRE(stop);
    REQUIRE(stop->wait(slime::test::patient(60s)));
  }
  void show(const Identity& issuer) const {
    const Identity identity = test::make_identity("nanoctrl", "IP:127.0.0.1", &issuer);
    write_certificate(folder, "server.pem", identity);
    write_key(folder, "key.pem", identity);
  }
  void write_token(const std::string& text) const {
    std::ofstream(folder.file("token")) << text << "\n";
    REQUIRE(::chmod(folder.file("token").c_str(), 0600) == 0);
  }
  void hang_up() const { REQUIRE(::kill(pid_, SIGHUP) == 0); }
  [[nodiscard]] std::unique_ptr<Client> client(const std::string& ca, const std::string& token) const {
    Result<std::unique_ptr<Client>> made =
        Client::create({.url = url, .token = token, .timeout = slime::test::patient(20s), .ca_file = ca});
    REQUIRE_MESSAGE(made, made.status().to_string());
    return std::move(*made);
  }
  [[nodiscard]] Code code(const std::string& ca, const std::string& token) const {
    return client(ca, token)->list_tokens().status().code();
  }
  [[nodiscard]] bool logs(std::string_view text) const {
    return eventually([&] {
      std::ifstream file(log_);
      return has(std::string(std::istreambuf_iterator<char>(file), {}), text);
    });
  }

  const Folder folder;
  const Identity first = test::make_identity("first authority", nullptr, nullptr);
  const Identity second = test::make_identity("second authority", nullptr, nullptr);
  const std::string first_ca = write_certificate(folder, "first.pem", first);
  const std::string second_ca = write_certificate(folder, "second.pem", second);
  const std::string old_token = make_token(Role::kAdmin, "*", "", 0, 0).text;
  const std::string new_token = make_token(Role::kAdmin, "*", "", 0, 0).text;
  std::string url;

 private:
  [[nodiscard]] std::vector<std::string> environment() const {
    return {"SLIME_RUNTIME_DIR=" + folder.path().string()};
  }
  const bool background_;
  std::optional<Process> process_;
  pid_t pid_ = 0;
  std::string log_;
};

void check_reload(bool background) {
  const Reloadable f(background);
  // Connections that stay open and must not be disturbed. Their token is in the store.
  const std::unique_ptr<Client> admin = f.client(f.first_ca, f.old_token);
  const Result<TokenInfo> member = admin->create_token({Role::kJoin, "default"});
  REQUIRE_MESSAGE(member, member.status().to_string());
  REQUIRE(admin->list_tokens());
  std::array<std::atomic<int>, 4> answers{};
  std::atomic<bool> stop{false};
  std::atomic<int> errors{0};
  std::vector<std::thread> threads;
  threads.reserve(answers.size());
  for (std::atomic<int>& mine : answers) {
    threads.emplace_back([&, client = f.client(f.first_ca, member->token)] {
      while (!stop) ++(client->list_peers().status().ok() ? mine : errors);
    });
  }
  // Returns whether each connection has had replies since.
  const auto go_on = [&] {
    return std::all_of(answers.begin(), answers.end(), [&](const std::atomic<int>& mine) {
      const int before = mine.load();
      return eventually([&] { return mine.load() > before + 10 || errors.load() > 0; });
    });
  };
  CHECK(go_on());
  f.show(f.second);
  f.write_token(f.new_token);
  f.hang_up();
  CHECK(eventually([&] { return f.code(f.second_ca, f.new_token) == Code::kOk; }));
  CHECK(f.code(f.second_ca, f.old_token) == Code::kUnauthenticated);
  CHECK(f.code(f.first_ca, f.new_token) == Code::kUnauthenticated);  // the certificate has changed
  CHECK(go_on());
  // The earlier connection still exists, and its token is invalid now.
  const Status refused = admin->list_tokens().status();
  CHECK(refused.code() == Code::kUnauthenticated);
  CHECK_FALSE(has(refused.text(), "certificate"));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(errors.load() == 0);
}

TEST_CASE("SIGHUP has a server in the foreground show another certificate, and no connection breaks") {
  check_reload(false);
}

TEST_CASE("SIGHUP has a server in the background show another certificate, and no connection breaks") {
  check_reload(true);
}

TEST_CASE("a bad file leaves what was there, and the log says which file and why") {
  const Reloadable f(true);
  std::ofstream(f.folder.file("key.pem")) << "nothing\n";
  f.write_token("no token");
  f.hang_up();
  CHECK(f.logs("key.pem"));
  CHECK(f.logs("not a token"));
  CHECK(f.code(f.first_ca, f.old_token) == Code::kOk);
  // Valid files are used again, with one log line.
  f.show(f.second);
  f.write_token(f.new_token);
  f.hang_up();
  CHECK(f.logs("reloaded the certificate"));
  CHECK(eventually([&] { return f.code(f.second_ca, f.new_token) == Code::kOk; }));
  CHECK(f.code(f.second_ca, f.old_token) == Code::kUnauthenticated);
}

}  // namespace
}  // namespace slime::ctrl::reload_test
