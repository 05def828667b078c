// The plugin refuses wrong arguments of a user and wrong metadata of a peer with a status. Nothing
// crashes.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "base/str.h"
#include "base/unique_fd.h"
#include "tests/nixl/pieces.h"
#include "tests/support/eventually.h"

namespace slime::test::nixl::errors_test {
namespace {

struct Two {
  Two() : local(a.add(4096)), remote(b.add(4096)) { REQUIRE(introduce(a, b)); }
  Host a{"a"};
  Host b{"b"};
  Memory& local;
  Memory& remote;

  [[nodiscard]] nixl_status_t prepare(const Piece& piece) const {
    return a.request(NIXL_WRITE, "b", std::span(&piece, 1)).prepare();
  }
  // An ordinary transfer still works.
  void check_works() const {
    fill_pattern(local.bytes, 8);
    CHECK(a.prepared(NIXL_WRITE, "b", local.piece(remote.address())).run() == NIXL_SUCCESS);
    CHECK(has_pattern(remote.bytes, 8));
  }
};

nixlMetaDesc desc(std::uintptr_t address, std::size_t length_bytes, nixlBackendMD* meta) {
  nixlMetaDesc out;
  out.addr = address;
  out.len = length_bytes;
  out.devId = 0;
  out.metadataP = meta;
  return out;
}

nixlBlobDesc blob(std::uintptr_t address, std::size_t length_bytes, std::string info = {}) {
  nixlBlobDesc out;
  out.addr = address;
  out.len = length_bytes;
  out.devId = 0;
  out.metaInfo = std::move(info);
  return out;
}

// Returns what this process writes to its stderr while `work` runs: the plugin has a log of its
// own.
std::string logged_while(const std::function<void()>& work) {
  const UniqueFd file(::memfd_create("log", MFD_CLOEXEC));
  const UniqueFd before(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  REQUIRE((file.valid() && before.valid()));
  REQUIRE(::dup2(file.get(), STDERR_FILENO) == STDERR_FILENO);
  work();
  REQUIRE(::dup2(before.get(), STDERR_FILENO) == STDERR_FILENO);
  std::string out(static_cast<std::size_t>(::lseek(file.get(), 0, SEEK_END)), '\0');
  REQUIRE(::pread(file.get(), out.data(), out.size(), 0) == static_cast<ssize_t>(out.size()));
  return out;
}

bool starts_with(const nixl_b_params_t& params) { return Host("picky", params).started(); }

}  // namespace

TEST_CASE("a descriptor that is not inside of its registration is refused at either end") {
  const Two two;
  const std::uintptr_t local = two.local.address();
  const std::uintptr_t remote = two.remote.address();
  CHECK(two.prepare({local, remote, 4096}) == NIXL_SUCCESS);
  CHECK(two.prepare({local + 1, remote, 4096}) == NIXL_ERR_INVALID_PARAM);
  CHECK(two.prepare({local, remote + 1, 4096}) == NIXL_ERR_INVALID_PARAM);
  CHECK(two.prepare({local + 4097, remote, 0}) == NIXL_ERR_INVALID_PARAM);
  CHECK(two.prepare({local, remote + 4097, 0}) == NIXL_ERR_INVALID_PARAM);
  CHECK(two.prepare({local, remote, SIZE_MAX}) == NIXL_ERR_INVALID_PARAM);
  CHECK(two.prepare({local + 16, remote + 16, SIZE_MAX - 15}) == NIXL_ERR_INVALID_PARAM);
  nixl_meta_dlist_t here(DRAM_SEG);
  nixl_meta_dlist_t there(DRAM_SEG);
  here.addDesc(desc(local - 1, 8, two.local.local));
  there.addDesc(desc(remote, 8, two.a.remote_meta("b", remote)));
  CHECK(Request(two.a.engine(), NIXL_READ, "b", here, there).prepare() == NIXL_ERR_INVALID_PARAM);
  two.check_works();
}

TEST_CASE("unequal lengths and counts, and descriptors without metadata, are refused") {
  const Two two;
  const nixlMetaDesc local = desc(two.local.address(), 8, two.local.local);
  const nixlMetaDesc remote = desc(two.remote.address(), 8, two.a.remote_meta("b", two.remote.address()));
  const auto prepare = [&two](const std::vector<nixlMetaDesc>& locals,
                              const std::vector<nixlMetaDesc>& remotes) {
    nixl_meta_dlist_t here(DRAM_SEG);
    nixl_meta_dlist_t there(DRAM_SEG);
    for (const auto& each : locals) here.addDesc(each);
    for (const auto& each : remotes) there.addDesc(each);
    return Request(two.a.engine(), NIXL_WRITE, "b", here, there).prepare();
  };
  CHECK(prepare({local}, {remote}) == NIXL_SUCCESS);
  CHECK(prepare({local, local}, {remote}) == NIXL_ERR_INVALID_PARAM);
  CHECK(prepare({local}, {}) == NIXL_ERR_INVALID_PARAM);
  CHECK(prepare({desc(local.addr, 7, local.metadataP)}, {remote}) == NIXL_ERR_INVALID_PARAM);
  CHECK(prepare({desc(local.addr, 8, nullptr)}, {remote}) == NIXL_ERR_INVALID_PARAM);
  CHECK(prepare({local}, {desc(remote.addr, 8, nullptr)}) == NIXL_ERR_INVALID_PARAM);
  two.check_works();
}

TEST_CASE("memory that is not the host's is refused, and is not among the supported kinds") {
  Two two;
  nixlBackendMD* meta = nullptr;
  for (const nixl_mem_t kind : {VRAM_SEG, BLK_SEG, OBJ_SEG, FILE_SEG}) {
    CAPTURE(kind);
    CHECK(two.a.engine().registerMem(blob(two.local.address(), 8), kind, meta) == NIXL_ERR_NOT_SUPPORTED);
    CHECK(two.a.engine().loadRemoteMD(blob(two.remote.address(), 8, two.remote.public_data), kind, "b",
                                      meta) == NIXL_ERR_NOT_SUPPORTED);
    CHECK(meta == nullptr);
  }
  CHECK(two.a.engine().getSupportedMems() == nixl_mem_list_t{DRAM_SEG});
  CHECK(plugin().get_backend_mems() == nixl_mem_list_t{DRAM_SEG});
  two.check_works();
}

TEST_CASE("registering no bytes, or no address, does not crash") {
  Host a("a");
  nixlBackendMD* meta = nullptr;
  std::byte byte{};
  for (const auto& [address, length] : {std::pair<std::uintptr_t, std::size_t>{0, 0},
                                        {0, 4096},
                                        {reinterpret_cast<std::uintptr_t>(&byte), 0}}) {
    const nixl_status_t status = a.engine().registerMem(blob(address, length), DRAM_SEG, meta);
    CAPTURE(status);
    if (status == NIXL_SUCCESS) CHECK(a.engine().deregisterMem(meta) == NIXL_SUCCESS);
  }
}

TEST_CASE("connection info that is garbage, cut off, too long or of another version is refused") {
  Two two;
  std::string good;
  REQUIRE(two.b.engine().getConnInfo(good) == NIXL_SUCCESS);
  const auto load = [&two](const std::string& info) {
    return two.a.engine().loadRemoteConnInfo("stranger", info);
  };
  CHECK(load(good + "x") != NIXL_SUCCESS);
  CHECK(load("garbage") != NIXL_SUCCESS);
  CHECK(load(std::string(100'000, '\xff')) != NIXL_SUCCESS);
  for (std::size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    CHECK(load(good.substr(0, size)) != NIXL_SUCCESS);
  }
  std::string other = good;
  other[4] = static_cast<char>(other[4] + 1);  // the version follows a word that names the plugin
  CHECK(load(other) == NIXL_ERR_NOT_SUPPORTED);
  // A refused agent stays unknown, and a known one as it was.
  CHECK(two.a.engine().genNotif("stranger", "hello") == NIXL_ERR_NOT_FOUND);
  CHECK(two.a.engine().loadRemoteConnInfo("b", "garbage") != NIXL_SUCCESS);
  two.check_works();
}

TEST_CASE("random changes of connection info are refused, or name an agent that cannot be reached") {
  Two two;
  std::string good;
  REQUIRE(two.b.engine().getConnInfo(good) == NIXL_SUCCESS);
  Rng rng(seed_of_test());
  for (int i = 0; i < 2000; ++i) {
    std::string changed = good;
    for (std::uint64_t n = 1 + rng.below(4); n > 0; --n)
      changed[rng.below(changed.size())] = static_cast<char>(rng.below(256));
    static_cast<void>(two.a.engine().loadRemoteConnInfo(str("changed ", i % 10), changed));
  }
  two.check_works();
}

TEST_CASE("the metadata of a registration that is garbage or cut off is refused") {
  Two two;
  const std::string good = two.remote.public_data;
  nixlBackendMD* meta = nullptr;
  const auto load = [&](const std::string& info) {
    return two.a.engine().loadRemoteMD(blob(two.remote.address(), 4096, info), DRAM_SEG, "b", meta);
  };
  for (std::size_t size = 0; size < good.size(); ++size) CHECK(load(good.substr(0, size)) != NIXL_SUCCESS);
  CHECK(load(good + "x") != NIXL_SUCCESS);
  CHECK(load(std::string(1000, 'x')) != NIXL_SUCCESS);
  CHECK(meta == nullptr);
  two.check_works();
}

TEST_CASE("a transfer to a registration that does not exist, or is shorter than told, ends with an error") {
  Two two;
  std::string wrong = two.remote.public_data;
  wrong[0] = static_cast<char>(wrong[0] + 77);
  for (const auto& [info, length] : {std::pair<std::string, std::size_t>{wrong, 4096},
                                     std::pair<std::string, std::size_t>{two.remote.public_data, 8192}}) {
    const std::size_t told = length;
    CAPTURE(told);
    nixlBackendMD* meta = nullptr;
    REQUIRE(two.a.engine().loadRemoteMD(blob(two.remote.address(), length, info), DRAM_SEG, "b", meta) ==
            NIXL_SUCCESS);
    nixl_meta_dlist_t here(DRAM_SEG);
    nixl_meta_dlist_t there(DRAM_SEG);
    here.addDesc(desc(two.local.address(), 8, two.local.local));
    there.addDesc(desc(two.remote.address(), 8, meta));
    {
      Request request(two.a.engine(), NIXL_WRITE, "b", here, there);
      REQUIRE(request.prepare() == NIXL_SUCCESS);
      CHECK(request.run("never") < NIXL_SUCCESS);
      CHECK(request.run("never") < NIXL_SUCCESS);
    }
    CHECK(two.a.engine().unloadMD(meta) == NIXL_SUCCESS);
  }
  CHECK(two.b.take_notifications().empty());
  two.check_works();
}

TEST_CASE("everything that names an unknown agent is refused") {
  Two two;
  nixlBackendMD* meta = nullptr;
  const Piece piece = two.local.piece(two.remote.address());
  CHECK(two.a.engine().genNotif("nobody", "hello") == NIXL_ERR_NOT_FOUND);
  CHECK(two.a.engine().connect("nobody") == NIXL_ERR_NOT_FOUND);
  CHECK(two.a.engine().disconnect("nobody") == NIXL_ERR_NOT_FOUND);
  CHECK(two.a.request(NIXL_READ, "nobody", std::span(&piece, 1)).prepare() == NIXL_ERR_NOT_FOUND);
  CHECK(two.a.engine().loadRemoteMD(blob(two.remote.address(), 4096, two.remote.public_data), DRAM_SEG,
                                    "nobody", meta) == NIXL_ERR_NOT_FOUND);
  two.a.unload("b");
  CHECK(two.a.engine().genNotif("b", "hello") == NIXL_ERR_NOT_FOUND);
  REQUIRE(two.a.load(two.b.metadata()) == NIXL_SUCCESS);
  two.check_works();
}

TEST_CASE(
    "a handle of a peer that deregistered its memory ends with an error, before and after its first post") {
  Two two;
  Memory& gone = two.b.add(4096);
  REQUIRE(two.a.load(two.b.metadata()) == NIXL_SUCCESS);
  const Piece piece = two.local.piece(gone.address());
  Request posted = two.a.prepared(NIXL_WRITE, "b", piece);
  Request fresh = two.a.prepared(NIXL_READ, "b", piece);
  REQUIRE(posted.run() == NIXL_SUCCESS);
  two.b.remove(gone);
  for (int round = 0; round < 3; ++round) {
    CHECK(posted.run("never") < NIXL_SUCCESS);
    CHECK(fresh.run("never") < NIXL_SUCCESS);
  }
  CHECK(two.b.take_notifications().empty());
  two.check_works();
}

TEST_CASE("a handle of which the local memory is deregistered ends with an error") {
  Two two;
  Memory& gone = two.a.add(4096);
  const Piece piece = gone.piece(two.remote.address());
  Request posted = two.a.prepared(NIXL_WRITE, "b", piece);
  Request fresh = two.a.prepared(NIXL_READ, "b", piece);
  REQUIRE(posted.run() == NIXL_SUCCESS);
  two.a.remove(gone);
  CHECK(posted.run() < NIXL_SUCCESS);
  CHECK(fresh.run() < NIXL_SUCCESS);
  two.check_works();
}

TEST_CASE("a handle is not posted while it is under way, and each post that is taken has its notification") {
  Host a("a");
  Host b("b");
  Memory& from = a.add(32 << 20);
  Memory& to = b.add(32 << 20);
  REQUIRE(introduce(a, b));
  fill_pattern(from.bytes, 2);
  Request request = a.prepared(NIXL_WRITE, "b", from.piece(to.address()));
  REQUIRE(request.run() == NIXL_SUCCESS);
  int sent = 0;
  for (int i = 0; i < 20; ++i) {
    const nixl_status_t status = request.post("once");
    CHECK_MESSAGE((status >= NIXL_SUCCESS || status == NIXL_ERR_REPOST_ACTIVE), static_cast<int>(status));
    if (status >= NIXL_SUCCESS) ++sent;
  }
  CHECK(request.wait() == NIXL_SUCCESS);
  int got = 0;
  eventually([&] {
    got += static_cast<int>(b.take_notifications().size());
    return got >= sent;
  });
  CHECK(got == sent);
  CHECK(has_pattern(to.bytes, 2));
}

TEST_CASE("functions without a handle refuse it") {
  const Two two;
  nixlBackendReqH* none = nullptr;
  const nixl_meta_dlist_t empty(DRAM_SEG);
  CHECK(two.a.engine().postXfer(NIXL_READ, empty, empty, "b", none, nullptr) == NIXL_ERR_INVALID_PARAM);
  CHECK(two.a.engine().checkXfer(none) == NIXL_ERR_INVALID_PARAM);
}

TEST_CASE("an engine does not start with a parameter that it cannot use, and says so") {
  CHECK(starts_with({}));
  const std::vector<std::pair<std::string, std::vector<std::string>>> bad = {
      {"provider", {"nonsense", "shm,tcp", "TCP "}},
      {"listen", {"nonsense", "127.0.0.1", "127.0.0.1:99999", "no.such.host.invalid:0", ":", "0.0.0.0:0"}},
      {"interface", {"no_such_interface", "127.0.0.1"}},
      {"advertise", {"nonsense", "0.0.0.0:1", "127.0.0.1:99999"}},
      {"token", {std::string(100'000, 'x')}},
      {"insecure", {"maybe", "2", "TRUE "}},
      {"timeout_ms", {"-1", "soon", "1.5", "99999999999999999999", "86400001"}},
      {"stall_timeout_ms", {"0", "9", "-1", "soon", "10 ", "99999999999999999999", "86400001"}},
      {"threads", {"0", "-1", "many", "65"}},
  };
  for (const auto& each : bad) {
    for (const std::string& value : each.second) {
      CHECK_FALSE_MESSAGE(starts_with({{each.first, value}}), each.first, " ", value.substr(0, 40));
    }
  }
  CHECK_FALSE(starts_with({{"interface", "lo"}, {"listen", "127.0.0.2:0"}}));
}

TEST_CASE("an engine starts with each parameter as it may be, and with ones that it does not know") {
  const std::vector<nixl_b_params_t> good = {
      plugin().get_backend_options(),
      {{"interface", "lo"}},
      {{"interface", "lo"}, {"listen", "127.0.0.1:0"}},  // the default, which NIXL hands back
      {{"listen", "[::1]:0"}},
      {{"listen", "0.0.0.0:0"}, {"token", "secret"}, {"advertise", "127.0.0.1:0"}},
      {{"listen", "0.0.0.0:0"}, {"insecure", "true"}, {"advertise", "127.0.0.1:0"}},
      {{"timeout_ms", "100"}, {"stall_timeout_ms", "10"}, {"threads", "4"}},
      {{"num_workers", "8"}, {"", ""}},
  };
  for (std::size_t i = 0; i < good.size(); ++i) {
    CAPTURE(i);
    CHECK(starts_with(good[i]));
  }
}

TEST_CASE("an agent's name of NIXL's may be empty or any bytes; one that is too long is refused") {
  CHECK(Host("").started());
  CHECK(Host(std::string("\0\xff /:\n", 6)).started());
  CHECK(Host(std::string(4096, 'n')).started());
  CHECK_FALSE(Host(std::string(4097, 'n')).started());
}

TEST_CASE("the plugin says its name, a version, and its options with their defaults") {
  CHECK(std::string(plugin().get_plugin_name()) == "SLIME");
  CHECK_FALSE(std::string(plugin().get_plugin_version()).empty());
  for (const char* const name : {"provider", "listen", "interface", "advertise", "token", "insecure",
                                 "timeout_ms", "stall_timeout_ms", "threads"}) {
    CAPTURE(name);
    CHECK(plugin().get_backend_options().count(name) == 1);
  }
}

TEST_CASE("a failed transfer is logged once for each post, however often it is checked") {
  Two two;
  Memory& gone = two.b.add(4096);
  REQUIRE(two.a.load(two.b.metadata()) == NIXL_SUCCESS);
  Request request = two.a.prepared(NIXL_WRITE, "b", two.local.piece(gone.address()));
  two.b.remove(gone);
  const std::string log = logged_while([&request] {
    for (int post = 0; post < 2; ++post) {
      const nixl_status_t status = request.run();
      CHECK(status < NIXL_SUCCESS);
      for (int i = 0; i < 100; ++i) CHECK(request.check() == status);
    }
  });
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = log.find("a transfer failed", at)) != std::string::npos; ++at) ++lines;
  CHECK_MESSAGE(lines == 2, log);
}

TEST_CASE("an agent with another token is refused, and its transfers end with an error") {
  Host a("a", {{"token", "one"}});
  Host b("b", {{"token", "another"}});
  Memory& local = a.add(4096);
  Memory& remote = b.add(4096);
  REQUIRE(introduce(a, b));
  Request request = a.prepared(NIXL_READ, "b", local.piece(remote.address()));
  CHECK(request.run() < NIXL_SUCCESS);
}

}  // namespace slime::test::nixl::errors_test
