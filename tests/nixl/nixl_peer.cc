// An agent of NIXL's in a process of its own, for tests that stop, kill and replace it.
//
//   nixl_peer NAME REGION_BYTES [PARAMETER=VALUE]...
//
// Registers one region. Prints READY and its metadata; then answers each line of stdin with one
// line:
//   load METADATA    OK, or ERROR and NIXL's status
//   fill SEED        OK: the region has the pattern of tests/e2e/pattern.h
//   matches SEED     YES or NO
//   take             the next notification: GOT SENDER MESSAGE
//   hammer AGENT     OK once a WRITE of the region to the first registration of AGENT is done; then
//                    posts it again and again, until the process is killed
// Ends with its stdin.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "base/unique_fd.h"
#include "tests/e2e/pattern.h"
#include "tests/nixl/host.h"
#include "tests/support/eventually.h"

namespace {

using slime::str;
using namespace slime::test;

// Memory that is mapped twice. What orders our accesses after those of the plugin happens in
// another process, where the thread sanitizer does not see it; so they go by another address.
struct Twice {
  explicit Twice(std::size_t bytes) {
    const slime::UniqueFd file(::memfd_create("nixl_peer", MFD_CLOEXEC));
    SLIME_CHECK(file.valid() && ::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
    for (slime::MutableBytes* const each : {&registered, &ours}) {
      void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
      SLIME_CHECK(at != MAP_FAILED);
      *each = {static_cast<std::byte*>(at), bytes};
    }
  }
  ~Twice() {
    for (const slime::MutableBytes each : {registered, ours}) ::munmap(each.data(), each.size());
  }
  Twice(const Twice&) = delete;
  Twice& operator=(const Twice&) = delete;
  slime::MutableBytes registered;
  slime::MutableBytes ours;
};

class Peer {
 public:
  Peer(const char* name, std::size_t bytes, const nixl_b_params_t& params)
      : memory_(bytes), host_(name, params) {
    SLIME_CHECK(host_.started() && host_.add(memory_.registered, region_) == NIXL_SUCCESS);
  }
  [[nodiscard]] std::string metadata() const { return host_.metadata().encode(); }

  std::string answer(const std::string& line) {
    std::istringstream in(line);
    std::string command;
    std::string argument;
    in >> command;
    std::getline(in >> std::ws, argument);
    if (command == "load") return load(argument);
    if (command == "take") return take();
    if (command == "hammer") return hammer(argument);
    const std::uint64_t seed = std::strtoull(argument.c_str(), nullptr, 10);
    if (command == "matches") return has_pattern(memory_.ours, seed) ? "YES" : "NO";
    if (command != "fill") return "ERROR no such command";
    fill_pattern(memory_.ours, seed);
    return "OK";
  }

 private:
  std::string load(const std::string& text) {
    auto metadata = nixl::Metadata::decode(text);
    if (!metadata) return "ERROR no metadata";
    const nixl_status_t status = host_.load(*metadata);
    other_ = *std::move(metadata);
    return status == NIXL_SUCCESS ? "OK" : str("ERROR ", static_cast<int>(status));
  }
  std::string take() {
    eventually([this] {
      for (auto& each : host_.take_notifications()) got_.push_back(std::move(each));
      return !got_.empty();
    });
    if (got_.empty()) return "ERROR none came";
    const auto [sender, message] = got_.front();
    got_.erase(got_.begin());
    return str("GOT ", sender, " ", message);
  }
  std::string hammer(const std::string& agent) {
    nixl::Request request = host_.prepared(NIXL_WRITE, agent, region_->piece(other_.sections.at(0).address));
    if (const auto status = request.run("first"); status != NIXL_SUCCESS)
      return str("ERROR ", static_cast<int>(status));
    std::puts("OK");
    std::fflush(stdout);
    while (request.run("again") == NIXL_SUCCESS) {
    }
    return "ERROR the transfers ended";
  }

  const Twice memory_;
  nixl::Host host_;
  nixl::Memory* region_ = nullptr;
  nixl::Metadata other_;
  notif_list_t got_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  nixl_b_params_t params;
  for (int i = 3; i < argc; ++i) {
    const std::string text = argv[i];
    const auto equals = text.find('=');
    if (equals == std::string::npos) return 2;
    params[text.substr(0, equals)] = text.substr(equals + 1);
  }
  Peer peer(argv[1], std::strtoull(argv[2], nullptr, 10), params);
  std::printf("READY %s\n", peer.metadata().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::printf("%s\n", peer.answer(line).c_str());
    std::fflush(stdout);
  }
  return 0;
}
