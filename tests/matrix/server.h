#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "agent/peer_agent.h"
#include "tests/matrix/board.h"

namespace slime::matrix {

// A struct encoded by the names of its fields.
struct Point {
  double x = 0;
  double y = 0;
  std::string name;
  std::map<std::string, std::int64_t> tags;
  MSGPACK_DEFINE_MAP(x, y, name, tags)
};

// One server process: the agent for all clients of its row, and agents with few threads and short
// queues that features request. Thread: any.
class World {
 public:
  explicit World(PeerAgentOptions options) : options_(std::move(options)) {}
  // Starts the first agent. It serves only "Provider" unless `everything`.
  Status start(bool everything);
  [[nodiscard]] PeerAgent& agent() { return *agent_; }
  Board& board() { return board_; }
  MemoryRegion& area() { return area_; }

  // Starts another agent, which serves "Small"; returns its address.
  Result<std::string> start_small(const std::string& name, std::size_t workers, std::size_t queue_limit);
  Status drain_small(const std::string& name, Nanos bound);
  void close();

 private:
  Status publish();
  const PeerAgentOptions options_;
  Board board_;
  std::unique_ptr<PeerAgent> agent_;
  MemoryRegion area_;
  MemoryRegion fixed_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<PeerAgent>> small_;
};

// Adds the services that README.md describes.
Status add_calls(World& world, rpc::Service& service);     // "Matrix": values, errors, time, metadata
Status add_board(World& world, rpc::Service& service);     // "Matrix": counts, notes, gates
Status add_peers(World& world, rpc::Service& service);     // "Matrix": callbacks, messages, memory, agents
Status add_small(World& world, rpc::Service& service);     // "Small"
Status add_provider(World& world, rpc::Service& service);  // "Provider"
Status add_streams(World& world, rpc::Service& service);   // "Streams"
Status add_attachments(rpc::Service& service);             // "Attached"

// Refuses calls with metadata "refuse", and notes calls with "watch".
std::shared_ptr<rpc::ServerInterceptor> watcher(Board& board);

}  // namespace slime::matrix
