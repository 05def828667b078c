// A server of the matrix in C++:  matrix_server PROVIDER [--ctrl URL --scope SCOPE] [--name NAME]
// [--provider-only]
//
// Prints READY and its address; ends when its stdin does.
#include "tests/matrix/server.h"

#include <cstdio>
#include <iostream>
#include <string>
#include <utility>

#include "base/str.h"
#include "rpc/tracing.h"

namespace slime::matrix {
namespace {

constexpr std::size_t kAreaBytes = 1 << 20;
constexpr std::size_t kWorkers = 12;  // some handlers wait for effects of other calls

std::byte pattern(std::size_t at) { return static_cast<std::byte>((at * 7 + 3) & 0xff); }

}  // namespace

Status World::publish() {
  auto area = agent_->allocate(kAreaBytes, Rights::kReadWrite);
  if (!area) return std::move(area).error();
  area_ = std::move(*area);
  auto fixed = agent_->allocate(4096, Rights::kRemoteRead);
  if (!fixed) return std::move(fixed).error();
  fixed_ = std::move(*fixed);
  for (std::size_t at = 0; at < fixed_.length_bytes(); ++at) fixed_.data()[at] = pattern(at);
  SLIME_TRY(agent_->publish("area", area_));
  return agent_->publish("fixed", fixed_);
}

Status World::start(bool everything) {
  PeerAgentOptions options = options_;
  options.server.workers = kWorkers;
  auto agent = PeerAgent::start(std::move(options));
  if (!agent) return std::move(agent).error();
  agent_ = std::move(*agent);
  if (everything) {
    SLIME_TRY(publish());
    agent_->on_imm([this](const Peer&, std::uint32_t imm) { board_.bump(str("imm:", imm)); });
    agent_->add_interceptor(rpc::server_tracing());
    agent_->add_interceptor(watcher(board_));
    rpc::Service matrix("Matrix");
    SLIME_TRY(add_calls(*this, matrix));
    SLIME_TRY(add_board(*this, matrix));
    SLIME_TRY(add_peers(*this, matrix));
    SLIME_TRY(agent_->serve(matrix));
    rpc::Service streams("Streams");
    SLIME_TRY(add_streams(*this, streams));
    SLIME_TRY(agent_->serve(streams));
    rpc::Service attached("Attached");
    SLIME_TRY(add_attachments(attached));
    SLIME_TRY(agent_->serve(attached));
  }
  rpc::Service provider("Provider");
  SLIME_TRY(add_provider(*this, provider));
  return agent_->serve(provider);
}

Result<std::string> World::start_small(const std::string& name, std::size_t workers,
                                       std::size_t queue_limit) {
  PeerAgentOptions options;
  options.name = name;
  options.provider = options_.provider;
  options.server.workers = workers;
  options.server.queue_limit = queue_limit;
  auto agent = PeerAgent::start(std::move(options));
  if (!agent) return std::move(agent).error();
  rpc::Service service("Small");
  SLIME_TRY(add_small(*this, service));
  SLIME_TRY((*agent)->serve(service));
  const std::lock_guard lock(mutex_);
  auto& place = small_[name];
  place = std::move(*agent);
  return place->address();
}

Status World::drain_small(const std::string& name, Nanos bound) {
  std::shared_ptr<PeerAgent> agent;
  {
    const std::lock_guard lock(mutex_);
    const auto found = small_.find(name);
    if (found == small_.end()) return {Code::kNotFound, str("no agent ", name)};
    agent = found->second;
  }
  return agent->drain(bound);
}

void World::close() {
  board_.open_all();
  board_.drop_held();
  for (auto& [name, agent] : small_) agent->close().ignore();
  agent_->close().ignore();
}

}  // namespace slime::matrix

namespace {

int run(slime::PeerAgentOptions options, bool everything) {
  slime::matrix::World world(std::move(options));
  if (const auto status = world.start(everything); !status.ok()) {
    std::printf("ERROR %s\n", status.to_string().c_str());
    return 1;
  }
  std::printf("READY %s\n", world.agent().address().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
  }
  world.close();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  slime::PeerAgentOptions options;
  bool everything = true;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--provider-only") {
      everything = false;
    } else if (i == 1) {
      options.provider = word;
    } else if (i + 1 < argc && word == "--ctrl") {
      options.ctrl_url = argv[++i];
    } else if (i + 1 < argc && word == "--scope") {
      options.scope = argv[++i];
    } else if (i + 1 < argc && word == "--name") {
      options.name = argv[++i];
    } else {
      std::fprintf(stderr, "matrix_server: wrong option %s\n", argv[i]);
      return 2;
    }
  }
  return run(std::move(options), everything);
}
