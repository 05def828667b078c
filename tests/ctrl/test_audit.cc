#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "ctrl/audit.h"
#include "tests/ctrl/every_route.h"
#include "tests/ctrl/fake_agent.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"

// The audit lines of nanoctrl's log.
namespace slime::ctrl {
namespace {

using slime::test::eventually;
using slime::test::Folder;
using slime::test::Process;
using test::Asker;
using test::Json;
using test::request;

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) out.push_back(line);
  return out;
}

std::string run(std::vector<std::string> arguments, const Folder& folder) {
  arguments.insert(arguments.begin(), slime::test::built_file("ctrl/nanoctrl"));
  Result<Process> process =
      Process::spawn(std::move(arguments), {"SLIME_RUNTIME_DIR=" + folder.path().string()});
  REQUIRE(process);
  const Result<std::string> line = process->read_line(slime::test::patient(std::chrono::seconds(60)));
  REQUIRE(process->wait(slime::test::patient(std::chrono::seconds(60))));
  return line ? *line : "";
}

// A nanoctrl in the background, so that it logs to a file.
class Background {
 public:
  explicit Background(const std::string& format) {
    const std::string root = folder_.file("root");
    std::ofstream(root) << test::kRoot << "\n";
    REQUIRE(::chmod(root.c_str(), 0600) == 0);
    const Json said = Json::parse(
        run({"start", "--port", "0", "--json", "--log-format", format, "--admin-token-file", root}, folder_));
    url_ = said.at("url");
    log_ = said.at("log");
  }
  ~Background() { run({"stop", "--port", std::to_string(port()), "--force"}, folder_); }
  [[nodiscard]] std::uint16_t port() const {
    return static_cast<std::uint16_t>(std::stoi(url_.substr(url_.rfind(':') + 1)));
  }
  // Returns the audit lines so far; every line of the log is one object.
  [[nodiscard]] std::vector<Json> audit() const {
    std::vector<Json> out;
    for (const std::string& line : lines_of(log_)) {
      const Json json = Json::parse(line, nullptr, false);
      REQUIRE_MESSAGE(json.is_object(), line);
      for (const char* key : {"time", "level", "component", "message"}) REQUIRE(json.at(key).is_string());
      if (json.at("component") == "audit") out.push_back(json);
    }
    return out;
  }
  // Waits for an audit line that contains all of `wanted`.
  [[nodiscard]] bool tells(const Json& wanted) const {
    return eventually([&] {
      const std::vector<Json> lines = audit();
      return std::any_of(lines.begin(), lines.end(), [&](const Json& line) {
        return std::all_of(wanted.items().begin(), wanted.items().end(), [&](const auto& item) {
          return line.contains(item.key()) && line.at(item.key()) == item.value();
        });
      });
    });
  }
  [[nodiscard]] const std::string& log() const { return log_; }

 private:
  const Folder folder_;
  std::string url_, log_;
};

TEST_CASE(
    "each line of the JSON log is an object, and it records registrations, removals, refusals and new "
    "tokens") {
  const Background server("json");
  test::World world(server.port());
  CHECK(server.tells({{"message", "registered"},
                      {"level", "info"},
                      {"scope", "a"},
                      {"peer", "w"},
                      {"address", "127.0.0.1:1"},
                      {"token_id", world.admin.substr(6, 16)}}));
  CHECK(server.tells({{"message", "a token was made"}, {"role", "read"}, {"scope", "a"}}));
  const auto ask = [&](const char* method, const std::string& target, const std::string& token,
                       const Json& json) {
    const std::string body = json.dump();
    return world.ask(request(method, target, token, json.is_null() ? nullptr : &body)).status;
  };
  CHECK(ask("GET", "/v1/peers/w?scope=a", "", nullptr) == 401);
  CHECK(server.tells({{"message", "refused"},
                      {"status", "401"},
                      {"client", "127.0.0.1"},
                      {"path", "/v1/peers/w"},
                      {"scope", "a"},
                      {"peer", "w"}}));
  CHECK(ask("DELETE", "/v1/peers/w?scope=a&incarnation=1", world.reader, nullptr) == 403);
  CHECK(server.tells({{"message", "refused"},
                      {"status", "403"},
                      {"method", "DELETE"},
                      {"peer", "w"},
                      {"token_id", world.reader.substr(6, 16)}}));
  CHECK(ask("POST", "/v1/peers", world.member,
            {{"name", "s"},
             {"scope", "a"},
             {"address", "h:1"},
             {"instance", "00000000000000000000000000000002"}}) == 409);
  CHECK(server.tells({{"message", "refused"}, {"status", "409"}, {"scope", "a"}, {"peer", "s"}}));
  CHECK(ask("DELETE", "/v1/tokens/" + world.spare, world.owner, nullptr) == 200);
  CHECK(server.tells({{"message", "a token was revoked"},
                      {"token_id", world.spare},
                      {"by_token_id", world.owner.substr(6, 16)}}));
  const std::string removal = str("/v1/peers/w?scope=a&incarnation=", world.incarnation);
  const std::string session = str("Slime-Session: ", test::kSession, "\r\n");
  CHECK(world.ask(request("DELETE", removal, world.member, nullptr, session)).status == 200);
  CHECK(server.tells({{"message", "deregistered"},
                      {"scope", "a"},
                      {"peer", "w"},
                      {"token_id", world.member.substr(6, 16)}}));
  // The log contains no token's secret, right or wrong, and not the path of a revocation with a
  // whole token.
  ask("GET", "/v1/peers", world.wrong, nullptr);
  CHECK(server.tells({{"status", "401"}, {"path", "/v1/peers"}}));
  CHECK(ask("DELETE", "/v1/tokens/" + world.owner, world.reader, nullptr) == 403);
  CHECK(server.tells({{"status", "403"}, {"path", "/v1/tokens/..."}}));
  for (const std::string& line : lines_of(server.log())) {
    for (const std::string& token : {world.admin, world.reader, world.member, world.owner, world.wrong})
      CHECK(line.find(token.substr(24)) == std::string::npos);
    CHECK(line.find(test::kSession) == std::string::npos);
  }
}

TEST_CASE("a takeover from a live holder is a warning, and an audit line with both owners and the token") {
  const Background server("json");
  test::World world(server.port());
  const test::FakeAgent holder(std::string("SLP1\x01", 5));
  Json peer = {{"name", "cache:0"},
               {"scope", "a"},
               {"instance", "00000000000000000000000000000007"},
               {"address", holder.address}};
  const std::uint64_t before = world.post("/v1/peers", peer).at("incarnation");
  peer["instance"] = "00000000000000000000000000000008";
  peer["address"] = "127.0.0.1:2";
  peer["takeover"] = true;
  const std::uint64_t after = world.post("/v1/peers", peer, world.member).at("incarnation");
  CHECK(server.tells({{"message", "a name was taken over"},
                      {"scope", "a"},
                      {"peer", "cache:0"},
                      {"old_incarnation", std::to_string(before)},
                      {"incarnation", std::to_string(after)},
                      {"holder", "alive"},
                      {"token_id", world.member.substr(6, 16)}}));
  CHECK(eventually([&] {
    const std::vector<std::string> lines = lines_of(server.log());
    return std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
      return line.find("\"warning\"") != std::string::npos && line.find("cache:0") != std::string::npos &&
             line.find("which is alive") != std::string::npos;
    });
  }));
}

TEST_CASE("what a client sends is data in a line, and never a line of its own") {
  const Background server("json");
  const test::World world(server.port());
  Asker ask(server.port());
  CHECK(ask(request("GET", "/v1/peers?scope=%22%0A%7B%22", "", nullptr)).status == 401);
  CHECK(server.tells({{"status", "401"}, {"scope", "\"\n{\""}}));
}

TEST_CASE("a flood of refusals leaves lines out") {
  const Background server("json");
  const test::World world(server.port());
  Asker ask(server.port());
  const auto flood = static_cast<std::size_t>(Audit::kRefusals.burst) * 10;
  for (std::size_t i = 0; i < flood; ++i) CHECK(ask(request("GET", "/v1/peers", "", nullptr)).status == 401);
  CHECK(server.audit().size() < flood / 2);
}

TEST_CASE("how many lines were left out is told as soon as there is room again") {
  const Folder folder;
  const std::string path = folder.file("log");
  REQUIRE(log_to_file(path).ok());
  REQUIRE(set_log_format("json").ok());
  set_log_level(LogLevel::kInfo);
  ManualClock clock;
  Audit audit({.per_second = 1, .burst = 2}, clock);
  for (int i = 0; i < 5; ++i) audit("it", {{"number", std::to_string(i)}});
  clock.advance(std::chrono::seconds(1));
  audit("it", {{"number", "5"}});
  const std::vector<std::string> lines = lines_of(path);
  REQUIRE(lines.size() == 4);
  CHECK(Json::parse(lines[1]).at("number") == "1");
  CHECK(Json::parse(lines[2]).at("left_out") == "3");
  CHECK(Json::parse(lines[3]).at("number") == "5");
  CHECK(set_log_format("xml").code() == Code::kInvalidArgument);
  REQUIRE(set_log_format("text").ok());
  audit("it", {{"number", "6"}, {"empty", ""}});
  clock.advance(std::chrono::seconds(1));
  audit("it", {{"number", "7\n"}, {"empty", ""}});
  CHECK(lines_of(path).back().ends_with("audit: it, number 7\\x0a"));
}

}  // namespace
}  // namespace slime::ctrl
