#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "agent/peer_agent.h"
#include "base/random.h"
#include "base/str.h"
#include "bench/direct.h"
#include "bench/process.h"
#include "bench/raw.h"
#include "bench/roles.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

// Answers the driver's commands until stdin ends.
void serve_commands(const Options& options) {
  while (const auto command = read_command()) {
    if (*command == "CPU") {
      answer(str("CPU ", cpu_seconds()));
    } else if (*command == "RAW") {
      const auto port = serve_raw(options.size, options.inflight, options.mode == "caller");
      answer(port ? str("RAW ", *port) : str("ERROR ", port.error().to_string()));
    } else {
      answer(str("ERROR unknown command ", *command));
    }
  }
}

// The same, while this thread drives a loop.
template <class Poll>
void drive(const Options& options, Poll poll) {
  std::atomic<bool> over{false};
  std::thread commands([&] {
    serve_commands(options);
    over.store(true, std::memory_order_relaxed);
  });
  while (!over.load(std::memory_order_relaxed)) poll();
  commands.join();
}

Status serve_channels(const Options& options) {
  auto direct = Direct::create(options, "bench-server",
                               std::max<std::uint64_t>(region_bytes(options) * options.clients, 4096));
  if (!direct) return std::move(direct).error();
  Rng(kSeed).fill((*direct)->region().bytes().first(region_bytes(options) * options.clients));
  if (options.bench == "notify") (*direct)->answer_notifications(options.size);
  SLIME_TRY((*direct)->serve());
  answer(str("READY ", (*direct)->address()));
  drive(options, [&] { (*direct)->loop().poll(kServerPoll); });
  return {};
}

Status serve(const Options& options) {
  if (options.face == "channel") return serve_channels(options);
  auto agent = PeerAgent::start(agent_options(options, "bench-server"));
  if (!agent) return std::move(agent).error();
  rpc::Service service("bench");
  SLIME_TRY(service.add("echo", [](const ByteVector& data) { return data; }, {.run = rpc::Run::kInline}));
  SLIME_TRY((*agent)->serve(service));
  MemoryRegion region;
  if (options.bench == "bulk") {
    auto allocated = (*agent)->allocate(region_bytes(options) * options.clients, Rights::kReadWrite);
    if (!allocated) return std::move(allocated).error();
    region = std::move(*allocated);
    Rng(kSeed).fill(region.bytes());
    SLIME_TRY((*agent)->publish("bulk", region));
  }
  answer(str("READY ", (*agent)->address()));
  if (options.mode == "caller") {
    drive(options, [&] { (*agent)->poll(kServerPoll); });
  } else {
    serve_commands(options);
  }
  return (*agent)->close();
}

}  // namespace

int run_server(const Options& options) {
  const Status status = serve(options);
  if (status.ok()) return 0;
  answer(str("ERROR ", status.to_string()));
  return 1;
}

}  // namespace slime::bench
