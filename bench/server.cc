#include <atomic>
#include <cstdlib>
#include <thread>

#include "agent/peer_agent.h"
#include "base/random.h"
#include "base/str.h"
#include "bench/bench.h"
#include "bench/direct.h"
#include "bench/load.h"
#include "bench/machine_limits.h"
#include "bench/pages.h"
#include "bench/process.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

void answer_commands(const Options& options, LimitServer& limits) {
  while (const auto command = read_command()) {
    if (*command == "CPU") {
      answer(str("CPU ", cpu_seconds(), " ", page_faults()));
    } else if (command->rfind("RAW ", 0) == 0) {
      const auto word = limits.prepare(command->substr(4));
      answer(word ? str("RAW ", *word) : str("ERROR ", word.error().to_string()));
    } else if (*command == "ACCEPT") {
      // The thread blocks in the kernel while no client connects, so no thread must pause for it.
      const auto port =
          serve_tcp(TcpRole::kAccept, {.size = options.size}, std::make_shared<std::atomic<int>>());
      answer(port ? str("ACCEPT ", *port) : str("ERROR ", port.error().to_string()));
    } else {
      answer(str("ERROR unknown command ", *command));
    }
  }
}

Status serve_channels(const Options& options) {
  auto direct = Direct::create(options, "bench-server",
                               std::max<std::uint64_t>(region_bytes(options) * options.clients, 4096));
  if (!direct) return std::move(direct).error();
  Rng(kSeed).fill((*direct)->region().bytes().first(region_bytes(options) * options.clients));
  if (options.bench == "notify") (*direct)->answer_notifications(options.size);
  SLIME_TRY((*direct)->serve());
  answer(str("READY ", (*direct)->address()));
  serve_commands(options, [&] { (*direct)->loop().poll(kServerPoll); });
  return {};
}

Status serve(const Options& options) {
  if (options.face == "channel") return serve_channels(options);
  auto agent = PeerAgent::start(agent_options(options, "bench-server"));
  if (!agent) return std::move(agent).error();
  rpc::Service service("bench");
  SLIME_TRY(service.add("echo", [](const ByteVector& data) { return data; }, {.run = rpc::Run::kInline}));
  SLIME_TRY((*agent)->serve(service));
  Pages foreign;
  MemoryRegion region;
  if (options.bench == "bulk") {
    auto allocated =
        make_region(**agent, options, region_bytes(options) * options.clients, Rights::kReadWrite, foreign);
    if (!allocated) return std::move(allocated).error();
    region = std::move(*allocated);
    Rng(kSeed).fill(region.bytes());
    SLIME_TRY((*agent)->publish("bulk", region));
  }
  answer(str("READY ", (*agent)->address()));
  if (options.mode == "caller") {
    serve_commands(options, [&] { (*agent)->poll(kServerPoll); });
  } else {
    serve_commands(options);
  }
  return (*agent)->close();
}

}  // namespace

void serve_commands(const Options& options, const std::function<void()>& poll) {
  LimitServer limits(options);
  if (!poll) return answer_commands(options, limits);
  std::atomic<bool> over{false};
  std::thread commands([&] {
    answer_commands(options, limits);
    over.store(true, std::memory_order_relaxed);
    // A thread may still serve a limit that is no longer measured; it can simply be cut off.
    if (limits.busy()) std::_Exit(0);
  });
  while (!over.load(std::memory_order_relaxed)) {
    poll();
    limits.pause_while_busy();
  }
  commands.join();
}

int run_server(const Options& options) {
  const Status status = serve(options);
  if (status.ok()) return 0;
  answer(str("ERROR ", status.to_string()));
  return 1;
}

}  // namespace slime::bench
