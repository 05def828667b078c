#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "base/str.h"
#include "ctrl/api/backup_pages.h"
#include "ctrl/store/backup.h"
#include "ctrl/store/dirty.h"
#include "ctrl/store/engine.h"
#include "ctrl/store/records.h"
#include "ctrl/store/sqlite.h"
#include "tests/ctrl/backup_text.h"
#include "tests/ctrl/samples.h"
#include "tests/support/eventually.h"
#include "tests/support/folder.h"

namespace slime::ctrl::store_test {
namespace {

using namespace std::chrono_literals;
using slime::test::eventually;
using slime::test::Folder;
using test::decoded;
using test::registration;

constexpr Nanos kTtl = 10s;

// An engine in a file, which can be opened again as after a crash, at a chosen clock time.
class Kept {
 public:
  Kept() { open(1000); }
  void open(std::uint64_t epoch) {
    engine.reset();
    Result<std::unique_ptr<Engine>> opened = try_open(epoch);
    REQUIRE(opened);
    engine = std::move(*opened);
  }
  Result<std::unique_ptr<Engine>> try_open(std::uint64_t epoch = 1) const {
    return open_engine("sqlite:" + path, {.ttl = kTtl, .epoch = epoch}, clock);
  }
  Lease enroll(const std::string& name, std::uint8_t number) const {
    const Outcome out = engine->submit(RegisterCommand{registration(name, number), 0, Proof::trusted()});
    REQUIRE(out.status.ok());
    return out.lease;
  }
  std::optional<PeerInfo> find(const std::string& name) const {
    return engine->read([&](const Registry& registry) { return registry.find("default", name); });
  }

  const Folder folder;
  const std::string path = folder.file("registry.db");
  ManualClock clock;
  std::unique_ptr<Engine> engine;
};

std::string refusal(const Kept& kept) {
  const Result<std::unique_ptr<Engine>> opened = kept.try_open();
  return opened ? "" : opened.error().to_string();
}

TEST_CASE("a peer is there again after a restart, with its incarnation and a whole lease") {
  Kept kept;
  Registration peer = registration("a", 1);
  peer.metadata = {{"gpu", "0"}};
  peer.services = {{"calc", "math", {"add"}}};
  peer.regions = {{"kv", 4096, RegionRights::kReadWrite}};
  const Outcome registered = kept.engine->submit(RegisterCommand{peer, 0, Proof::trusted()});
  REQUIRE(registered.status.ok());
  kept.clock.advance(9s);
  kept.open(2000);
  const std::optional<PeerInfo> found = kept.find("a");
  REQUIRE(found);
  CHECK(static_cast<const Registration&>(*found) == peer);
  CHECK(found->incarnation == registered.lease.incarnation);
  CHECK(found->expires_in == kTtl);
  CHECK(kept.engine->submit(HeartbeatCommand{"default", "a", registered.lease.incarnation, Proof::trusted()})
            .status.ok());
}

TEST_CASE("tokens, wanted links and keys are there again after a restart, and dropped keys are not") {
  Kept kept;
  TokenRecord token{"0123456789abcdef", Role::kAdmin, "*", "mine", std::string(64, 'a'), 1, 2};
  REQUIRE(kept.engine->submit(PutTokenCommand{token}).status.ok());
  REQUIRE(kept.engine->submit(SetLinksCommand{"default", "a", {"b", "c"}, Proof::trusted()}).status.ok());
  const Secret secret = Secret::random(limits::kScopeKeyBytes);
  REQUIRE(kept.engine->submit(RotateKeysCommand{"default", 0, false, secret, 7}).status.ok());
  kept.open(2000);
  kept.engine->look([&](const Registry& registry) {
    REQUIRE(registry.tokens().size() == 1);
    CHECK(registry.tokens().begin()->second == token);
    REQUIRE(registry.links("default", "a") != nullptr);
    CHECK(*registry.links("default", "a") == std::vector<std::string>{"b", "c"});
    REQUIRE(registry.keys("default").size() == 1);
    CHECK(registry.keys("default")[0].secret == secret);
  });
  REQUIRE(kept.engine->submit(RevokeTokenCommand{token.id, true}).status.ok());
  kept.open(3000);
  kept.engine->look([&](const Registry& registry) { CHECK(registry.keys("default").empty()); });
}

TEST_CASE("what was removed or has expired stays away after a restart") {
  Kept kept;
  const Lease gone = kept.enroll("gone", 1);
  kept.enroll("dead", 2);
  REQUIRE(kept.engine->submit(DeregisterCommand{"default", "gone", gone.incarnation, Proof::trusted()})
              .status.ok());
  kept.clock.advance(kTtl);
  kept.enroll("later", 3);  // the expiry is stored with this change
  kept.open(2000);
  CHECK_FALSE(kept.find("gone"));
  CHECK_FALSE(kept.find("dead"));
  CHECK(kept.find("later"));
}

TEST_CASE("incarnations and revisions go on after a restart, also when the clock went back") {
  for (const std::uint64_t epoch : {std::uint64_t{5000}, std::uint64_t{1}}) {
    CAPTURE(epoch);
    Kept kept;
    kept.enroll("a", 1);
    const Lease before = kept.enroll("a", 1);
    kept.open(epoch);
    const Changes changes = kept.engine->read(
        [&](const Registry& registry) { return registry.changes("default", before.revision); });
    CHECK(changes.resync);
    CHECK(changes.revision > before.revision);
    CHECK(changes.server_epoch == before.server_epoch);
    CHECK(kept.enroll("b", 2).incarnation > before.incarnation);
    const Lease elsewhere = kept.engine
                                ->submit(RegisterCommand{[] {
                                                           Registration other = registration("c", 3);
                                                           other.scope = "other";
                                                           return other;
                                                         }(),
                                                         0, Proof::trusted()})
                                .lease;
    CHECK(elsewhere.incarnation > before.incarnation);
    CHECK(elsewhere.revision >= epoch);
  }
}

TEST_CASE("a file that another one has open is refused, and says so") {
  const Kept kept;
  CHECK(refusal(kept).find("another nanoctrl") != std::string::npos);
}

TEST_CASE("a file that is no registry of this version is refused and left as it is") {
  Kept kept;
  kept.engine.reset();
  const auto change = [&](const char* sql) {
    Result<sqlite::Connection> connection = sqlite::Connection::open(kept.path);
    REQUIRE(connection);
    REQUIRE(connection->run(sql).ok());
  };
  change("PRAGMA user_version=4");
  CHECK(refusal(kept).find("schema version 4") != std::string::npos);
  change("PRAGMA user_version=3; PRAGMA application_id=7");
  CHECK(refusal(kept).find("another program's") != std::string::npos);
  const std::string text =
      "this is somebody's diary, and longer than a header of SQLite would be, by far ...";
  std::ofstream(kept.path) << text;
  CHECK(refusal(kept).find("corrupt") == 0);
  std::ifstream file(kept.path);
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == text);
}

// A file from before scopes had keys, in the form of `.dump`.
constexpr const char* kVersionOne =
    "BEGIN;"
    "CREATE TABLE records (kind TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,"
    " PRIMARY KEY (kind, scope, name)) WITHOUT ROWID;"
    "INSERT INTO records VALUES('links','default','worker:0','{\"targets\":[\"worker:1\"]}');"
    "INSERT INTO records "
    "VALUES('peer','default','worker:0','{\"address\":\"127.0.0.1:7001\",\"expires_in_ms\":"
    "15000,\"incarnation\":1795458065528035,\"instance\":\"00000000000000000000000000000001\",\"kind\":"
    "\"worker\",\"metadata\":{},\"name\":\"worker:0\",\"providers\":[],\"regions\":[],\"revision\":"
    "1795458065528035,\"scope\":\"default\",\"services\":[{\"health\":\"serving\",\"kind\":\"math\","
    "\"methods\":[\"add\"],\"name\":\"calc\"}]}');"
    "INSERT INTO records VALUES('registry','','','{\"epoch\":1795458065484930,\"last_incarnation\":"
    "1795458065528035,\"revision_floor\":1795458065528034}');"
    "INSERT INTO records VALUES('scope','default','','{\"revision\":1795458065528036}');"
    "INSERT INTO records VALUES('token','','cf94135d68d8047f','{\"created_unix_s\":1795458065,"
    "\"expires_unix_s\":0,\"id\":\"cf94135d68d8047f\",\"note\":\"boss\",\"role\":\"admin\",\"scope\":\"*\","
    "\"secret_sha256\":\"a5997fb2daf01eb657d30818077cad62c3af2efd2c691f42b2c00ac592362db3\"}');"
    "PRAGMA application_id=1399606851; PRAGMA user_version=1; COMMIT";

// Replaces the file of `kept` by an older file.
void make_older(Kept& kept, const std::string& sql) {
  kept.engine.reset();
  std::filesystem::remove(kept.path);
  Result<sqlite::Connection> connection = sqlite::Connection::open(kept.path);
  REQUIRE(connection);
  REQUIRE(connection->run(sql.c_str()).ok());
}

// Returns the version, and whether rows have ids.
std::pair<std::int64_t, bool> layout(const Kept& kept) {
  Result<sqlite::Connection> connection = sqlite::Connection::open(kept.path);
  REQUIRE(connection);
  return {*connection->integer("PRAGMA user_version"),
          connection->prepare("SELECT id FROM records").has_value()};
}

TEST_CASE("a file of schema version 1 is taken over, has keys from then on, and is one of version 3") {
  Kept kept;
  make_older(kept, kVersionOne);
  kept.open(1);
  const std::optional<PeerInfo> peer = kept.find("worker:0");
  REQUIRE(peer);
  CHECK(peer->incarnation == 1795458065528035);
  const Secret secret = Secret::random(limits::kScopeKeyBytes);
  REQUIRE(kept.engine->submit(RotateKeysCommand{"default", 0, false, secret, 7}).status.ok());
  kept.open(1);
  kept.engine->look([&](const Registry& registry) {
    CHECK(registry.tokens().contains("cf94135d68d8047f"));
    CHECK(*registry.links("default", "worker:0") == std::vector<std::string>{"worker:1"});
    REQUIRE(registry.keys("default").size() == 1);
    CHECK(registry.keys("default")[0].secret == secret);
    CHECK(registry.keys("default")[0].made_unix_s == 7);
  });
  kept.engine.reset();
  CHECK(layout(kept) == std::pair<std::int64_t, bool>{3, true});
}

TEST_CASE("a file of schema version 2 gets rows with ids, and has all that it had") {
  Kept kept;
  make_older(kept, str(kVersionOne,
                       "; INSERT INTO records VALUES('keys','default','','{\"keys\":[]}');"
                       "PRAGMA user_version=2"));
  CHECK(layout(kept) == std::pair<std::int64_t, bool>{2, false});
  kept.open(1);
  CHECK(kept.find("worker:0"));
  kept.engine->look([&](const Registry& registry) {
    CHECK(registry.tokens().contains("cf94135d68d8047f"));
    CHECK(*registry.links("default", "worker:0") == std::vector<std::string>{"worker:1"});
  });
  kept.enroll("b", 2);
  kept.open(2);
  CHECK(kept.find("worker:0"));
  CHECK(kept.find("b"));
  kept.engine.reset();
  CHECK(layout(kept) == std::pair<std::int64_t, bool>{3, true});
}

// Limits the size of files: exceeding the limit looks like a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    rlimit full = before_;
    full.rlim_cur = bytes;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST_CASE("an upgrade that ends in the middle leaves the older file whole, and the next one begins again") {
  Kept kept;
  constexpr int kLinks = 500;
  std::string sql(kVersionOne);
  for (int i = 0; i < kLinks; ++i) {
    sql += str("; INSERT INTO records VALUES('links','default','from-", i, "','{\"targets\":[\"to\"");
    for (int j = 0; j < 500; ++j) sql += str(",\"target-", j, "\"");
    sql += "]}')";
  }
  make_older(kept, sql);
  {
    const FullDisk disk(rlim_t{1} << 20);
    CHECK(refusal(kept).find("unavailable") == 0);
  }
  CHECK(layout(kept) == std::pair<std::int64_t, bool>{1, false});
  kept.open(1);
  CHECK(kept.find("worker:0"));
  kept.engine->look([&](const Registry& registry) {
    CHECK(registry.uses().at("default").links == kLinks + 1);
    CHECK(registry.links("default", "from-9")->size() == 501);
  });
  kept.engine.reset();
  CHECK(layout(kept) == std::pair<std::int64_t, bool>{3, true});
}

TEST_CASE("a damaged file is refused with what to do") {
  Kept kept;
  for (int i = 0; i < 200; ++i) kept.enroll(str("peer-", i), 1);
  kept.engine.reset();
  {
    std::fstream file(kept.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(4096, '\xa5');
  }
  const std::string text = refusal(kept);
  CHECK(text.find("corrupt") == 0);
  CHECK(text.find("restore a backup") != std::string::npos);
}

TEST_CASE("records that do not fit together are corrupt") {
  const auto restored = [](const std::vector<Record>& records) {
    Result<RegistryState> state = decode_records(records);
    return state ? Registry::restore({}, std::move(*state), TimePoint{}).status() : state.error();
  };
  ManualClock clock;
  Registry registry({.epoch = 500});
  REQUIRE(
      registry.apply(RegisterCommand{registration("a", 1), 0, Proof::trusted()}, clock.now()).status.ok());
  const std::vector<Record> whole = encode_records(registry);
  REQUIRE(restored(whole).ok());
  for (std::size_t missing = 0; missing < 2; ++missing) {  // the counters, the scope
    std::vector<Record> part = whole;
    part.erase(part.begin() + static_cast<std::ptrdiff_t>(missing));
    CHECK(restored(part).code() == Code::kCorrupt);
  }
  std::vector<Record> old = whole;
  old[1].value = R"({"revision":500})";
  CHECK(restored(old).text().find("later time") != std::string::npos);
}

TEST_CASE("a backup brings everything but keys back into an empty store, and numbers go on") {
  Kept kept;
  const Lease lease = kept.enroll("a", 1);
  TokenRecord token{"0123456789abcdef", Role::kAdmin, "*", "mine", std::string(64, 'a'), 1, 2};
  REQUIRE(kept.engine->submit(PutTokenCommand{token}).status.ok());
  REQUIRE(kept.engine->submit(SetLinksCommand{"default", "a", {"b"}, Proof::trusted()}).status.ok());
  const RotateKeysCommand rotation{"default", 0, false, Secret::random(limits::kScopeKeyBytes), 7};
  REQUIRE(kept.engine->submit(rotation).status.ok());
  const auto state = [](const Registry& registry) { return registry.state(); };
  BackupPages pages;
  const Result<std::string> backup = pages.first([&] { return kept.engine->read(state); }, TimePoint{});
  REQUIRE(backup);
  kept.clock.advance(9s);

  Kept other;
  other.engine.reset();
  std::filesystem::remove(other.path);
  const auto restore = [&](std::uint64_t epoch) {
    Result<RegistryState> read = decoded(*backup);
    REQUIRE(read);
    return restore_backup("sqlite:" + other.path, {.ttl = kTtl, .epoch = epoch}, std::move(*read),
                          other.clock);
  };
  REQUIRE(restore(lease.incarnation + 1000).ok());
  CHECK(restore(1).code() == Code::kAlreadyExists);
  other.open(1);
  const std::optional<PeerInfo> peer = other.find("a");
  REQUIRE(peer);
  CHECK(peer->incarnation == lease.incarnation);
  CHECK(peer->expires_in == kTtl);
  CHECK(other.enroll("b", 2).incarnation > lease.incarnation + 1000);
  other.engine->look([&](const Registry& registry) {
    CHECK(registry.tokens().at(token.id) == token);
    CHECK(*registry.links("default", "a") == std::vector<std::string>{"b"});
    CHECK(registry.keys("default").empty());  // a token revoked since the backup may know them
  });
}

TEST_CASE("what is no backup of this version is refused, and says why") {
  const auto code = [](const char* text) { return decoded(text).status().code(); };
  CHECK(code("") == Code::kInvalidArgument);
  CHECK(code("{}") == Code::kInvalidArgument);
  CHECK(code(R"({"format":"nanoctrl backup","version":2,"records":[]})") == Code::kInvalidArgument);
  CHECK(code(R"({"format":"nanoctrl backup","version":1,"records":[]})") == Code::kCorrupt);
  CHECK(code(R"({"format":"nanoctrl backup","version":1,"records":[["peer","s"]]})") == Code::kCorrupt);
  CHECK(code(R"({"format":"nanoctrl backup","version":1,"records":[["pear","s","n",""]]})") ==
        Code::kCorrupt);
  const Status memory = restore_backup("memory", {}, RegistryState{1, 1, 1, {}}, steady_clock());
  CHECK(memory.code() == Code::kInvalidArgument);
}

TEST_CASE("a file that strangers must not read is made so") {
  const Kept kept;
  struct stat info {};
  REQUIRE(::stat(kept.path.c_str(), &info) == 0);
  CHECK((info.st_mode & 077) == 0);
}

mode_t mode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

TEST_CASE("a file of ours that strangers may read is taken away from them, and so are those beside it") {
  Kept kept;
  const Lease lease = kept.enroll("a", 1);
  kept.engine.reset();
  const std::string log = kept.path + "-wal";
  std::ofstream(log).flush();
  for (const std::string& file : {kept.path, log}) REQUIRE(::chmod(file.c_str(), 0644) == 0);
  kept.open(1000);
  for (const std::string& file : {kept.path, log}) CHECK(mode_of(file) == 0600);
  REQUIRE(kept.find("a"));
  CHECK(kept.find("a")->incarnation == lease.incarnation);
}

TEST_CASE("a file of another user that strangers may read is refused, and stays as it is") {
  Kept kept;
  kept.engine.reset();
  if (::chown(kept.path.c_str(), ::geteuid() + 1, static_cast<gid_t>(-1)) != 0) {
    MESSAGE("skipped: this process may not give a file away");
    return;
  }
  REQUIRE(::chmod(kept.path.c_str(), 0640) == 0);
  const std::string why = refusal(kept);
  CHECK(why.find("another user's") != std::string::npos);
  CHECK(why.find("chmod 600 " + kept.path) != std::string::npos);
  CHECK(mode_of(kept.path) == 0640);
  REQUIRE(::chmod(kept.path.c_str(), 0600) == 0);
  CHECK(refusal(kept).empty());
}

TEST_CASE("a full disk refuses changes, goes on with heartbeats, and mends itself") {
  Kept kept;
  const Lease lease = kept.enroll("a", 1);
  std::optional<FullDisk> disk(0);
  const Outcome lost = kept.engine->submit(RegisterCommand{registration("b", 2), 0, Proof::trusted()});
  const Outcome refused = kept.engine->submit(RegisterCommand{registration("c", 3), 0, Proof::trusted()});
  const Outcome beat =
      kept.engine->submit(HeartbeatCommand{"default", "a", lease.incarnation, Proof::trusted()});
  disk.reset();
  CHECK(lost.status.code() == Code::kUnavailable);
  CHECK(lost.status.maybe_executed());
  CHECK(refused.status.code() == Code::kUnavailable);
  CHECK_FALSE(refused.status.maybe_executed());
  CHECK(beat.status.ok());
  REQUIRE(eventually([&] {
    return kept.engine->submit(RegisterCommand{registration("d", 4), 0, Proof::trusted()}).status.ok();
  }));
  kept.open(2000);
  CHECK(kept.find("a"));
  CHECK(kept.find("b"));  // it took effect, and was stored as soon as possible
  CHECK_FALSE(kept.find("c"));
  CHECK(kept.find("d"));
}

TEST_CASE("changed records are written oldest first, counters with every batch") {
  const RecordKey registry{Table::kRegistry, {}, {}};
  const RecordKey a{Table::kPeer, "s", "a"};
  const RecordKey b{Table::kPeer, "s", "b"};
  const RecordKey keys{Table::kKeys, "s", {}};  // written together with the record of their scope
  DirtyRecords dirty;
  CHECK(dirty.add({registry, b}) == 1);
  CHECK(dirty.add({registry, a}) == 2);
  CHECK(dirty.add({b}) == 3);
  const std::vector<DirtyRecords::Entry> first = dirty.take(1);
  REQUIRE(first.size() == 2);
  CHECK(first[0].key == registry);
  CHECK(first[1].key == b);
  CHECK(dirty.taken() == 1);  // includes b's second change, but a's change is between the two
  dirty.add({b, registry, keys});
  dirty.give_back(first);
  CHECK(dirty.size() == 4);
  const std::vector<DirtyRecords::Entry> rest = dirty.take(10);
  REQUIRE(rest.size() == 4);
  CHECK(rest[1].key == keys);
  CHECK(rest[2].key == b);
  CHECK(rest[2].change == 1);
  CHECK(rest[3].key == a);
  CHECK(dirty.empty());
  CHECK(dirty.taken() == 4);
}

}  // namespace
}  // namespace slime::ctrl::store_test
