#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "ctrl/server.h"
#include "tests/support/files.h"
#include "tests/support/process.h"
#include "tests/support/settings.h"

using nlohmann::json;
using slime::test::Process;
using namespace std::chrono_literals;

namespace {

const slime::Nanos kPatience = slime::test::patient(60s);

// The real program with its stderr in its stdout, which is how a person sees it.
Process start(const std::vector<std::string>& arguments, std::vector<std::string> environment = {}) {
  environment.push_back("SLIME_PROVIDER=" + slime::test::provider());
  std::vector<std::string> argv{"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>&1",
                                slime::test::built_file("cli/slime")};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  auto process = Process::spawn(std::move(argv), std::move(environment));
  REQUIRE_MESSAGE(process.has_value(), process.status().to_string());
  return *std::move(process);
}

struct Outcome {
  int exit_code = -1;
  std::string text;
};

Outcome finish(Process process) {
  Outcome out;
  for (;;) {
    const auto line = process.read_line(kPatience);
    if (!line) break;
    out.text.append(*line).append("\n");
  }
  const auto ended = process.wait(kPatience);
  REQUIRE_MESSAGE(ended.has_value(), ended.status().to_string());
  CHECK_FALSE(ended->signaled);
  out.exit_code = ended->value;
  return out;
}

Outcome run(const std::vector<std::string>& arguments, std::vector<std::string> environment = {}) {
  return finish(start(arguments, std::move(environment)));
}

bool contains(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

// An agent of this process with a service that the program can call.
class Served {
 public:
  explicit Served(const std::string& ctrl_url = "", const std::string& name = "served") {
    slime::PeerAgentOptions options;
    options.name = name;
    options.ctrl_url = ctrl_url;
    options.provider = slime::test::provider();
    auto agent = slime::PeerAgent::start(std::move(options));
    REQUIRE_MESSAGE(agent.has_value(), agent.status().to_string());
    agent_ = *std::move(agent);
    slime::rpc::Service service("test.calc");
    REQUIRE(service
                .add("add", [](std::int64_t a, std::int64_t b) { return a + b; },
                     {.parameters = {"a", "b"}, .doc = "The sum.\nOf two."})
                .ok());
    REQUIRE(service
                .add_bytes("same",
                           [](slime::Bytes bytes) { return slime::ByteVector(bytes.begin(), bytes.end()); })
                .ok());
    REQUIRE(service
                .add("refuse",
                     []() -> slime::Result<int> {
                       return slime::Status(slime::Code::kPermissionDenied, "not for you");
                     })
                .ok());
    REQUIRE(service
                .add_raw("hang",
                         [this](slime::rpc::Request request) {
                           const std::lock_guard lock(mutex_);
                           held_.push_back(std::move(request));
                           ++hanging_;
                         })
                .ok());
    REQUIRE(agent_->serve(service).ok());
  }
  ~Served() {
    {
      const std::lock_guard lock(mutex_);
      held_.clear();
    }
    CHECK(agent_->close().ok());
  }
  [[nodiscard]] std::string address() const { return agent_->address(); }
  [[nodiscard]] int hanging() const { return hanging_; }

 private:
  std::mutex mutex_;  // guards held_
  std::vector<slime::rpc::Request> held_;
  std::atomic<int> hanging_{0};
  std::unique_ptr<slime::PeerAgent> agent_;
};

}  // namespace

TEST_CASE("every command explains itself") {
  const Outcome all = run({"--help"});
  CHECK(all.exit_code == 0);
  for (const char* command :
       {"doctor", "peers", "call", "services", "stubs", "nixl-plugin-dir", "bench", "version"}) {
    CHECK(contains(all.text, command));
    const Outcome one = run({command, "--help"});
    CHECK(one.exit_code == 0);
    CHECK(contains(one.text, "--help"));
  }
  CHECK_FALSE(contains(all.text, "bench-server"));
}

TEST_CASE("a wrong command line is told so, with exit code 2") {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"frobnicate"},
                                             {"peers", "--ctrl"},
                                             {"call", "only-a-peer"},
                                             {"call", "127.0.0.1:1", "no_dot"},
                                             {"call", "127.0.0.1:1", "a.b", "not json"},
                                             {"call", "127.0.0.1:1", "a.b", "--timeout", "0"},
                                             {"call", "127.0.0.1:1", "a.b", "--provider", "pigeons"},
                                             {"call", "--service", "calc"},
                                             {"call", "--service", "calc", "add"},  // no registry
                                             {"call", "--service", "calc", "add", "not json"},
                                             {"services"},
                                             {"services", "127.0.0.1:1", "--service", "calc"},
                                             {"stubs"},
                                             {"stubs", "127.0.0.1:1", "--language", "cobol"},
                                             {"stubs", "127.0.0.1:1", "--namespace", "a b"},
                                             {"services", "127.0.0.1:1", "--timeout", "0"},
                                             {"services", "127.0.0.1:1", "--provider", "pigeons"},
                                             {"bench", "rpc", "--size", "0"},
                                             {"--log", "loud", "version"}}) {
    const Outcome outcome = run(arguments);
    CAPTURE(outcome.text);
    CHECK(outcome.exit_code == 2);
    CHECK_FALSE(outcome.text.empty());
  }
}

TEST_CASE("a token on the command line is refused, and not told") {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"call", "127.0.0.1:1", "a.b"},
                                             {"services", "127.0.0.1:1"},
                                             {"stubs", "127.0.0.1:1"},
                                             {"bench", "ctrl"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--token", "a-secret"});
    const Outcome outcome = run(arguments);
    CAPTURE(outcome.text);
    CHECK(outcome.exit_code == 2);
    CHECK(contains(outcome.text, "--token-file"));
    CHECK_FALSE(contains(outcome.text, "a-secret"));
  }
}

TEST_CASE("version prints one line") {
  const Outcome outcome = run({"version"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.text.find("slime 0.") == 0);
  CHECK(run({"--version"}).text == outcome.text);
}

TEST_CASE("doctor describes this machine") {
  const Outcome text = run({"doctor"});
  CAPTURE(text.text);
  CHECK(text.exit_code == 0);
  CHECK(contains(text.text, "provider tcp"));
  CHECK(contains(text.text, "memory of local peers"));

  const Outcome machine = run({"doctor", "--json"});
  const json parsed = json::parse(machine.text, nullptr, false);
  REQUIRE(parsed.is_object());
  CHECK(parsed["usable"] == true);
  bool tcp_works = false;
  bool tells_the_pool = false;
  for (const json& finding : parsed["findings"]) {
    if (finding["name"] == "provider tcp") tcp_works = finding["verdict"] == "ok";
    tells_the_pool = tells_the_pool || finding["name"] == "pool of huge pages";
    CHECK_FALSE(finding["value"].get<std::string>().empty());
  }
  CHECK(tells_the_pool);
  CHECK(tcp_works);
}

TEST_CASE("doctor says what is broken, and fails") {
  // No process listens on port 1 of loopback.
  const Outcome outcome = run({"doctor", "--json", "--ctrl", "http://127.0.0.1:1"});
  CHECK(outcome.exit_code == 1);
  const json parsed = json::parse(outcome.text, nullptr, false);
  REQUIRE(parsed.is_object());
  CHECK(parsed["usable"] == false);
  // The environment gives the same default.
  CHECK(run({"doctor"}, {"SLIME_CTRL_URL=http://127.0.0.1:1"}).exit_code == 1);
  CHECK(run({"doctor"}, {"SLIME_RUNTIME_DIR=/proc/slime-no-such-place"}).exit_code == 1);
  const Outcome outage = run({"doctor"}, {"SLIME_OUTAGE_TOLERATED=soon"});
  CHECK(outage.exit_code == 1);
  CHECK(contains(outage.text, "SLIME_OUTAGE_TOLERATED is 'soon', must be 1 to 3600 s"));
}

TEST_CASE("doctor: a machine without a usable libibverbs is told what to install, and is not broken") {
  // The directory holds a libibverbs.so.1 that has one function only.
  const Outcome outcome =
      run({"doctor", "--json"}, {"LD_LIBRARY_PATH=" + slime::test::built_file("tests/cli/old_ibverbs")});
  CHECK(outcome.exit_code == 0);
  const json parsed = json::parse(outcome.text, nullptr, false);
  REQUIRE(parsed.is_object());
  int found = 0;
  for (const json& finding : parsed["findings"]) {
    if (finding["name"] != "libibverbs") continue;
    ++found;
    CHECK(finding["verdict"] == "advice");
    const std::string advice = finding["advice"];
    CHECK(contains(advice, "too old"));
    CHECK(contains(advice, "ibv_open_device"));
    CHECK_FALSE(contains(advice, "ibv_get_device_list"));
    CHECK(contains(advice, "apt-get install libibverbs1 ibverbs-providers"));
  }
  CHECK(found == 1);
  // Once, also for people.
  const Outcome text =
      run({"doctor"}, {"LD_LIBRARY_PATH=" + slime::test::built_file("tests/cli/old_ibverbs")});
  const auto first = text.text.find("too old");
  REQUIRE(first != std::string::npos);
  CHECK(text.text.find("too old", first + 1) == std::string::npos);
  CHECK(contains(text.text, "provider verbs"));
}

TEST_CASE("doctor refuses settings of verbs that it does not know") {
  for (const char* setting : {"SLIME_VERBS_TIMEOUT=32", "SLIME_VERBS_TIMEOUTS=14"}) {
    const Outcome outcome = run({"doctor"}, {setting});
    CAPTURE(outcome.text);
    CHECK(outcome.exit_code == 1);
    CHECK(contains(outcome.text, "SLIME_VERBS_TIMEOUT"));
  }
}

TEST_CASE("peers reports a registry that does not answer") {
  const Outcome outcome = run({"peers", "--ctrl", "http://127.0.0.1:1"});
  CHECK(outcome.exit_code == 1);
  CHECK(contains(outcome.text, "slime peers: unavailable: "));
}

TEST_CASE("call prints the result of a method") {
  const Served served;
  const Outcome outcome = run({"call", served.address(), "test.calc.add", "40", "2"});
  CHECK(outcome.text == "42\n");
  CHECK(outcome.exit_code == 0);
}

TEST_CASE("call --raw sends standard input as it is, and writes the answer so") {
  const Served served;
  Process process = start({"call", "--raw", served.address(), "test.calc.same"});
  for (const char* line : {"first\t\xff\x01", "second"}) REQUIRE(process.write_line(line).ok());
  process.close_stdin();
  const Outcome done = finish(std::move(process));
  CHECK(done.exit_code == 0);
  CHECK(done.text == "first\t\xff\x01\nsecond\n");
}

TEST_CASE("call says which of the two ways a method is called") {
  const Served served;
  const Outcome bare = run({"call", served.address(), "test.calc.same", "1"});
  CHECK(bare.exit_code == 1);
  CHECK(contains(bare.text, "test.calc.same takes bytes"));
  CHECK(contains(bare.text, "test.calc.same(body: raw) -> raw: called with --raw"));
  Process process = start({"call", "--raw", served.address(), "test.calc.add"});
  process.close_stdin();
  const Outcome raw = finish(std::move(process));
  CHECK(raw.exit_code == 1);
  CHECK(contains(raw.text, "test.calc.add takes arguments"));
  CHECK(run({"call", "--raw", served.address(), "test.calc.same", "1"}).exit_code == 2);
}

TEST_CASE("call reports the error of a method, of a missing one, and of wrong arguments") {
  const Served served;
  const Outcome refused = run({"call", served.address(), "test.calc.refuse"});
  CHECK(refused.exit_code == 1);
  CHECK(contains(refused.text, "slime call: permission_denied: "));
  CHECK(contains(refused.text, "not for you"));
  const Outcome missing = run({"call", served.address(), "test.calc.divide"});
  CHECK(missing.exit_code == 1);
  CHECK(contains(missing.text, "slime call: not_found: "));
  CHECK(contains(missing.text,
                 "\n  methods of test.calc: add(a: int, b: int), hang(...), refuse(), same(body: raw)\n"));
  const Outcome wrong = run({"call", served.address(), "test.calc.add", "\"x\"", "2"});
  CHECK(wrong.exit_code != 0);
  CHECK(contains(wrong.text, "invalid_argument: "));
  CHECK(contains(wrong.text, "\n  it is test.calc.add(a: int, b: int) -> int\n"));
  const Outcome no_service = run({"call", served.address(), "test.calculator.add"});
  CHECK(no_service.exit_code == 1);
  CHECK(contains(no_service.text, "\n  services there: slime.Health, slime.Reflection, test.calc\n"));
  // What the handler itself refuses is no matter of the arguments' form.
  CHECK_FALSE(contains(refused.text, "it is "));
}

TEST_CASE("services shows what a peer serves, as a table") {
  const Served served;
  const Outcome all = run({"services", served.address()});
  CAPTURE(all.text);
  CHECK(all.exit_code == 0);
  CHECK(all.text.find("SERVICE ") == 0);
  CHECK(contains(all.text, "slime.Health "));
  const Outcome one = run({"services", served.address(), "test.calc"});
  CHECK(one.exit_code == 0);
  CHECK(one.text ==
        "SERVICE    METHOD  PARAMETERS        RESULT  DOC\n"
        "test.calc  add     (a: int, b: int)  int     The sum.\n"
        "test.calc  hang    (...)             any\n"
        "test.calc  refuse  ()                int\n"
        "test.calc  same    (body: raw)       raw\n");
}

TEST_CASE("services shows the same as one JSON object") {
  const Served served;
  const Outcome outcome = run({"services", served.address(), "--json"});
  CHECK(outcome.exit_code == 0);
  const json parsed = json::parse(outcome.text, nullptr, false);
  REQUIRE(parsed.is_object());
  CHECK(parsed["peer"] == served.address());
  REQUIRE(parsed["services"].size() == 3);
  const json& calc = parsed["services"][2];
  CHECK(calc["name"] == "test.calc");
  CHECK(calc["methods"][0] == json::parse(R"({"name": "add", "parameters": [
          {"name": "a", "type": "int", "optional": false, "rest": false},
          {"name": "b", "type": "int", "optional": false, "rest": false}],
          "result": "int", "doc": "The sum.\nOf two."})"));
  CHECK(calc["methods"][1]["parameters"] ==
        json::parse(R"([{"name": "", "type": "any", "optional": false, "rest": true}])"));
  const Outcome one = run({"services", served.address(), "test.calc", "--json"});
  CHECK(json::parse(one.text, nullptr, false)["services"] == json::array({calc}));
}

TEST_CASE("services says what a method that streams reads and writes") {
  slime::PeerAgentOptions options;
  options.provider = slime::test::provider();
  auto agent = slime::PeerAgent::start(std::move(options));
  REQUIRE(agent.has_value());
  slime::rpc::Service service("streams");
  REQUIRE(service.add("both", [](slime::rpc::ServerStream<int, std::string>&, bool) { return 1.5; }).ok());
  REQUIRE((*agent)->serve(service).ok());
  CHECK(run({"services", (*agent)->address(), "streams"}).text ==
        "SERVICE  METHOD  PARAMETERS  RESULT                        DOC\n"
        "streams  both    (bool)      float, reads int, writes str\n");
  const json parsed =
      json::parse(run({"services", (*agent)->address(), "streams", "--json"}).text, nullptr, false);
  const json& method = parsed["services"][0]["methods"][0];
  CHECK(method["reads"] == "int");
  CHECK(method["writes"] == "str");
}

TEST_CASE("services lists the services when one is missing, and reports a peer that does not answer") {
  const Served served;
  const Outcome missing = run({"services", served.address(), "test.calculator"});
  CHECK(missing.exit_code == 1);
  CHECK(contains(missing.text, "slime services: not_found: "));
  CHECK(contains(missing.text, "no service 'test.calculator'"));
  CHECK(contains(missing.text, "\n  services there: slime.Health, slime.Reflection, test.calc\n"));
  const Outcome nobody = run({"services", "127.0.0.1:1", "--timeout", "5"});
  CHECK(nobody.exit_code == 1);
  CHECK(contains(nobody.text, "slime services: unavailable: "));
}

// nanoctrl in this process.
class Registry {
 public:
  Registry() {
    slime::ctrl::ServerOptions options;
    options.port = 0;
    options.threads = 8;
    auto bound = slime::ctrl::Server::bind(options);
    REQUIRE_MESSAGE(bound.has_value(), bound.status().to_string());
    server_ = *std::move(bound);
    REQUIRE(server_->start().ok());
  }
  [[nodiscard]] std::string url() const { return server_->url(); }

 private:
  std::unique_ptr<slime::ctrl::Server> server_;
};

TEST_CASE("call, services and stubs find any live server of a service") {
  const Registry registry;
  const Served one(registry.url(), "one");
  const Served two(registry.url(), "two");
  const std::vector<std::string> ctrl{"SLIME_CTRL_URL=" + registry.url()};
  const Outcome sum = run({"call", "--service", "test.calc", "add", "40", "2"}, ctrl);
  CHECK(sum.text == "42\n");
  CHECK(sum.exit_code == 0);
  const Outcome missing = run({"call", "--service", "test.calc", "divide"}, ctrl);
  CHECK(missing.exit_code == 1);
  CHECK(contains(missing.text, "slime call: not_found: "));
  CHECK(contains(missing.text,
                 "\n  methods of test.calc: add(a: int, b: int), hang(...), refuse(), same(body: raw)\n"));
  const Outcome none = run({"call", "--service", "nothing", "add", "--timeout", "5"}, ctrl);
  CHECK(none.exit_code == 1);
  CHECK(contains(none.text,
                 "slime call: unavailable: service \"nothing\" has no live server in scope \"default\""));
  const Outcome described = run({"services", "--service", "test.calc"}, ctrl);
  CHECK(described.exit_code == 0);
  CHECK(contains(described.text, "test.calc  add     (a: int, b: int)  int     The sum.\n"));
  const Outcome stubs =
      run({"stubs", "--service", "test.calc", "--language", "cpp", "--namespace", "a::b"}, ctrl);
  CHECK(stubs.exit_code == 0);
  CHECK(contains(stubs.text, "namespace a::b {\n"));
  CHECK(contains(stubs.text, "slime::Future<std::int64_t> add(std::int64_t a, std::int64_t b)"));
  CHECK_FALSE(contains(stubs.text, "slime_Health"));
}

TEST_CASE("services without a peer shows the services of the scope and their servers") {
  const Registry registry;
  const Served one(registry.url(), "one");
  const Served two(registry.url(), "two");
  const Outcome table = run({"services", "--ctrl", registry.url()});
  CHECK(table.exit_code == 0);
  CHECK(table.text ==
        "SERVICE    SERVERS  METHODS\n"
        "test.calc  one,two  add,hang,refuse,same\n");
  const Outcome machine = run({"services", "--ctrl", registry.url(), "--json"});
  const json parsed = json::parse(machine.text, nullptr, false);
  REQUIRE(parsed.is_object());
  CHECK(parsed["scope"] == "default");
  REQUIRE(parsed["services"].size() == 1);
  CHECK(parsed["services"][0]["name"] == "test.calc");
  const json& servers = parsed["services"][0]["servers"];
  REQUIRE(servers.size() == 2);
  CHECK(servers[0]["peer"] == "one");
  CHECK(servers[1]["address"] == two.address());
  CHECK(servers[1]["methods"] == json::array({"add", "hang", "refuse", "same"}));
  const Outcome empty = run({"services", "--ctrl", registry.url(), "--scope", "other"});
  CHECK(empty.text == "no services in scope other\n");
  CHECK(run({"services", "--ctrl", registry.url()}, {"SLIME_SCOPE=other"}).text == empty.text);
  CHECK(run({"services", "--ctrl", "http://127.0.0.1:1"}).exit_code == 1);
}

TEST_CASE("call to a port without a listener says so") {
  const Outcome outcome = run({"call", "127.0.0.1:1", "a.b", "--timeout", "5"});
  CHECK(outcome.exit_code == 1);
  CHECK(contains(outcome.text, "slime call: unavailable: "));
  CHECK(contains(outcome.text, "127.0.0.1:1"));
}

TEST_CASE("a call ends after its timeout") {
  const Served served;
  const Outcome outcome = run({"call", served.address(), "test.calc.hang", "--timeout", "0.3"});
  CHECK(outcome.exit_code == 1);
  CHECK(contains(outcome.text, "slime call: deadline_exceeded: "));
}

TEST_CASE("Ctrl-C ends a call") {
  const Served served;
  Process process = start({"call", served.address(), "test.calc.hang"});
  const slime::TimePoint give_up = slime::steady_clock().now() + kPatience;
  while (served.hanging() == 0 && slime::steady_clock().now() < give_up) {
    // Nothing to wait on but the handler's count.
    (void)process.read_line(10ms);
  }
  REQUIRE(served.hanging() == 1);
  REQUIRE(process.interrupt().ok());
  const Outcome outcome = finish(std::move(process));
  CHECK(outcome.exit_code == 130);
}

TEST_CASE("bench prints one JSON object with verified data") {
  const std::vector<std::vector<std::string>> kinds = {
      {"rpc", "--inflight", "2", "--size", "4096"},
      {"bulk", "--inflight", "2", "--size", "4096"},
      {"rpc", "--face", "channel", "--mode", "caller"},
      {"bulk", "--face", "channel", "--mode", "caller", "--op", "read", "--size", "4096"},
      {"blocks", "--count", "50"},
      {"blocks", "--count", "50", "--adjacent", "--op", "read"},
      {"notify"}};
  for (const auto& kind : kinds) {
    std::vector<std::string> arguments = {"bench"};
    arguments.insert(arguments.end(), kind.begin(), kind.end());
    for (const char* more : {"--seconds", "0.3", "--warmup", "0.1", "--json"}) arguments.emplace_back(more);
    const bool endpoints = kind[0] == "blocks" || kind[0] == "notify" ||
                           std::find(kind.begin(), kind.end(), "channel") != kind.end();
    if (endpoints) arguments.insert(arguments.end(), {"--provider", slime::test::endpoint_provider()});
    const Outcome outcome = run(arguments);
    CAPTURE(outcome.text);
    CHECK(outcome.exit_code == 0);
    const json parsed = json::parse(outcome.text, nullptr, false);
    REQUIRE(parsed.is_object());
    for (const char* key : {"bench", "provider", "mode", "face", "size", "inflight", "clients", "seconds",
                            "p50_us", "p99_us", "p999_us", "ops_per_s", "gb_per_s", "cpu_s_per_gib",
                            "verified", "limit", "ratio_to_limit", "machine"}) {
      CHECK_MESSAGE(parsed.contains(key), key);
    }
    CHECK(parsed["verified"] == true);
    CHECK(parsed["ops_per_s"] > 0);
    CHECK(parsed["p50_us"] <= parsed["p99_us"]);
    CHECK(parsed["limit"]["value"] > 0);
    // Of agents that choose, the report says what they took: these are two processes of one user.
    const std::string asked = endpoints ? slime::test::endpoint_provider() : slime::test::provider();
    CHECK(parsed["provider"] == (asked == "auto" ? "shm" : asked));
  }
}

TEST_CASE("bench below agents wants a provider by name") {
  const Outcome outcome = run(
      {"bench", "rpc", "--face", "channel", "--mode", "caller", "--provider", "auto", "--seconds", "0.1"});
  CHECK(outcome.exit_code == 2);
  CHECK(contains(outcome.text, "--provider auto"));
  CHECK(contains(outcome.text, "name one"));
}
