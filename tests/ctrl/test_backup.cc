#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/str.h"
#include "ctrl/store/backup.h"
#include "tests/ctrl/backup_text.h"
#include "tests/ctrl/nanoctrl.h"
#include "tests/ctrl/samples.h"
#include "tests/ctrl/tokens.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"
#include "tests/support/sanitizers.h"

// Backups larger than one reply.
namespace slime::ctrl::backup_test {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using slime::test::Folder;
using slime::test::Process;
using test::Nanoctrl;

// Returns a state with about `bytes` of metadata, in several scopes.
RegistryState large_state(std::size_t bytes) {
  RegistryState state{1'000'000, 1'000'000, 1'000'000, {}};
  constexpr std::size_t kScopes = 8;
  for (std::size_t i = 0; i < kScopes; ++i) state.revisions[str("scope", i)] = 2'000'000;
  constexpr std::size_t kEntries = 30;
  const std::string value(1000, 'v');
  for (std::size_t i = 0; i * kEntries * value.size() < bytes; ++i) {
    PeerInfo peer;
    static_cast<Registration&>(peer) = test::registration(str("peer", 100'000 + i), 1);
    peer.scope = str("scope", i % kScopes);
    for (std::size_t k = 0; k < kEntries; ++k) peer.metadata[str("key", k)] = value;
    peer.incarnation = ++state.last_incarnation;
    peer.revision = 1'000'001 + i;
    state.peers.push_back({.info = std::make_shared<const PeerInfo>(std::move(peer)), .expires_in = 600s});
  }
  return state;
}

std::ptrdiff_t folder_size(const Folder& folder) {
  return std::distance(std::filesystem::directory_iterator(folder.path()), {});
}

Json run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), slime::test::built_file("ctrl/nanoctrl"));
  arguments.push_back("--json");
  Result<Process> process = Process::spawn(std::move(arguments));
  REQUIRE(process);
  const Result<std::string> line = process->read_line(slime::test::patient(60s));
  REQUIRE(line);
  REQUIRE(process->wait(slime::test::patient(60s)));
  return Json::parse(*line);
}

Json back_up(const Nanoctrl& server, const std::string& file, const std::string& timeout_s = "60") {
  return run({"backup", file, "--ctrl", str("http://127.0.0.1:", server.port()), "--timeout", timeout_s});
}

TEST_CASE("a registry of more than 48 MiB is backed up and restored, and nothing of it is lost") {
  const Folder folder;
  const std::string store = "sqlite:" + folder.file("large.db");
  // Several pages in both cases; a larger state would take minutes under a sanitizer.
  const std::size_t bytes = std::size_t{slime::test::kSanitized ? 4 : 52} << 20;
  const RegistryState state = large_state(bytes);
  REQUIRE(restore_backup(store, {.ttl = 600s, .epoch = 1'000'000}, state, steady_clock()).ok());
  const std::string file = folder.file("backup.json");
  {
    const Nanoctrl server(store);
    const Json said = back_up(server, file);
    REQUIRE_MESSAGE(said.contains("bytes"), said.dump());
    CHECK(said.at("bytes") > bytes);
    CHECK(said.at("bytes") == std::filesystem::file_size(file));
    CHECK(said.at("peers") == state.peers.size());
  }
  CHECK((std::filesystem::status(file).permissions() & std::filesystem::perms::mask) ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
  CHECK_FALSE(std::filesystem::exists(file + ".part"));
  const std::string again = "sqlite:" + folder.file("again.db");
  CHECK(run({"restore", file, "--store", again, "--ttl", "600"}).at("peers") == state.peers.size());
  const Result<std::unique_ptr<Engine>> engine =
      open_engine(again, {.ttl = 600s, .epoch = 1'000'000}, steady_clock());
  REQUIRE_MESSAGE(engine, engine.status().to_string());
  const RegistryState kept = (*engine)->read([](const Registry& registry) { return registry.state(); });
  REQUIRE(kept.peers.size() == state.peers.size());
  const bool same = std::all_of(state.peers.begin(), state.peers.end(), [&](const PeerView& peer) {
    const auto found = std::find_if(kept.peers.begin(), kept.peers.end(), [&](const PeerView& other) {
      return other.info->scope == peer.info->scope && other.info->name == peer.info->name;
    });
    return found != kept.peers.end() && found->info->incarnation == peer.info->incarnation &&
           found->info->metadata == peer.info->metadata;
  });
  CHECK(same);
}

// A server with a manual clock, and more than a page of records.
struct Paged : test::Fixture {
  Paged() { fill(); }
  void fill() {
    for (int i = 0; i < 40; ++i) add(str("peer", i));
  }
  void add(const std::string& name) {
    Registration peer = test::registration(name, 1);
    peer.scope = "a";
    for (int k = 0; k < 30; ++k) peer.metadata[str("key", k)] = std::string(1000, 'v');
    REQUIRE(send("POST", "/v1/peers", wire::encode(wire::RegisterRequest{peer, false}), admin).status == 200);
  }
  ApiReply page(const std::string& after = {}) {
    return send("GET", after.empty() ? "/v1/backup" : "/v1/backup?after=" + after, "", admin);
  }
  BackupPage good_page(const std::string& after = {}) {
    const ApiReply reply = page(after);
    REQUIRE_MESSAGE(reply.status == 200, reply.body);
    CHECK(reply.body.size() < 2 * limits::kPageBytes);
    Result<BackupPage> out = decode_backup_page(reply.body);
    REQUIRE(out);
    return std::move(*out);
  }
  const std::string admin = make(Role::kAdmin, "*", "").token;
};

std::size_t peers_in(const BackupPage& page) {
  return static_cast<std::size_t>(
      std::count_if(page.records.begin(), page.records.end(),
                    [](const Record& record) { return record.key.table == Table::kPeer; }));
}

TEST_CASE("the pages of a backup are of one moment, and a page that is asked for again is the same") {
  Paged f;
  const BackupPage first = f.good_page();
  REQUIRE(first.next);
  f.add("late");
  const BackupPage second = f.good_page(*first.next);
  CHECK_FALSE(second.next);
  CHECK(peers_in(first) + peers_in(second) == 40);
  CHECK(f.page(*first.next).body == f.page(*first.next).body);
  // Its first page cannot be read as a whole backup, unlike the reply of a small registry.
  CHECK_FALSE(test::decoded(f.page().body));
}

TEST_CASE("one backup at a time, until it has its last page or is not asked for any more") {
  Paged f;
  const BackupPage first = f.good_page();
  const ApiReply busy = f.page();
  CHECK(busy.status == 503);
  CHECK(busy.retry_after > Nanos::zero());
  REQUIRE_FALSE(f.good_page(*first.next).next);
  const BackupPage other = f.good_page();
  f.clock.advance(limits::kBackupIdle);
  f.api.tick();
  CHECK(f.page(*other.next).status == 404);
  f.fill();  // the leases have expired, too
  const BackupPage last = f.good_page();
  f.clock.advance(limits::kBackupIdle);
  f.fill();
  CHECK(f.good_page().next);  // works before expire_backup() has freed the old copy
  CHECK(f.page(*last.next).status == 404);
}

TEST_CASE("what names no page is refused") {
  Paged f;
  const std::string next = *f.good_page().next;
  const std::string id = next.substr(0, next.find(':') + 1);
  for (const std::string& wrong :
       {std::string("x"), id, id + "x", id + "0", id + "-1", id + "100000", id + "99999999999999999999999"}) {
    CAPTURE(wrong);
    CHECK(f.page(wrong).status == 400);
  }
  CHECK(f.page("0123456789abcdef0123456789abcdef:1").status == 404);
  CHECK(f.send("GET", "/v1/backup?after=", "", f.admin).status == 400);
}

TEST_CASE("a backup that fails leaves the file that was there, and nothing half beside it") {
  const Folder folder;
  const std::string file = folder.file("backup.json");
  std::ofstream(file) << "an earlier one";
  std::string url;
  {
    const Nanoctrl server("memory");
    url = str("http://127.0.0.1:", server.port());
  }
  CHECK(run({"backup", file, "--ctrl", url}).at("code") == "unavailable");
  std::string text;
  std::getline(std::ifstream(file), text);
  CHECK(text == "an earlier one");
  CHECK(folder_size(folder) == 1);
}

TEST_CASE("a backup takes nothing of another one to the same file away") {
  const Folder folder;
  const std::string file = folder.file("backup.json");
  const std::string first = file + ".part-abcdef";  // of a backup under way
  std::ofstream(first) << "half of it";
  Nanoctrl server("memory");
  CHECK(back_up(server, file).contains("bytes"));
  CHECK(std::filesystem::exists(first));
  CHECK(folder_size(folder) == 2);
}

TEST_CASE("a backup of a nanoctrl that does not answer ends after --timeout, and leaves nothing") {
  const Folder folder;
  Nanoctrl server("memory");
  REQUIRE(server.process().stop().ok());
  CHECK(back_up(server, folder.file("backup.json"), "0.2").at("code") == "deadline_exceeded");
  CHECK(std::filesystem::is_empty(folder.path()));
  REQUIRE(server.process().resume().ok());
}

TEST_CASE("a backup that is interrupted leaves nothing") {
  const Folder folder;
  const std::string file = folder.file("backup.json");
  Nanoctrl server("memory");
  REQUIRE(server.process().stop().ok());
  Result<Process> backup = Process::spawn({slime::test::built_file("ctrl/nanoctrl"), "backup", file, "--ctrl",
                                           str("http://127.0.0.1:", server.port())});
  REQUIRE(backup);
  REQUIRE(slime::test::eventually([&] { return folder_size(folder) == 1; }));
  REQUIRE(backup->interrupt().ok());
  REQUIRE(server.process().resume().ok());
  const Result<slime::test::ExitState> exit = backup->wait(slime::test::patient(60s));
  REQUIRE(exit);
  CHECK_FALSE(exit->signaled);
  CHECK(exit->value == 1);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a backup onto a full disk fails, and takes its part away") {
  const Folder folder;
  const std::string file = folder.file("backup.json");
  const Nanoctrl server("memory");
  // The child inherits this limit: exceeding it looks like a full disk.
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit full = before;
  full.rlim_cur = 16;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
  const Json said = back_up(server, file);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(said.at("state") == "failed");
  CHECK(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace slime::ctrl::backup_test
