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
#include "bench/messages.h"
#include "bench/pages.h"
#include "bench/process.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

void answer_commands(LimitServer& limits) {
  while (const auto command = read_command()) {
    if (*command == "CPU") {
      answer(str("CPU ", cpu_seconds(), " ", page_faults()));
    } else if (command->rfind("RAW ", 0) == 0) {
      const auto word = limits.prepare(command->substr(4));
      answer(word ? str("RAW ", *word) : str("ERROR ", word.error().to_string()));
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
  PeerAgentOptions self = agent_options(options, "bench-server");
  self.listen = listen_address(options);
  self.insecure = options.insecure;
  auto agent = PeerAgent::start(std::move(self));
  if (!agent) return std::move(agent).error();
  rpc::Service service("bench");
  SLIME_TRY(service.add("echo", [](ByteVector data) { return data; }, {.run = rpc::Run::kInline}));
  std::unique_ptr<MessageServer> messages;
  if (options.sends()) {
    auto started = MessageServer::start(**agent, service, options);
    if (!started) return std::move(started).error();
    messages = std::move(*started);
  }
  SLIME_TRY((*agent)->serve(service));
  Pages foreign;
  MemoryRegion region;
  if (options.moves_blocks()) {
    auto allocated =
        make_region(**agent, options, region_bytes(options) * options.clients, Rights::kReadWrite, foreign);
    if (!allocated) return std::move(allocated).error();
    region = std::move(*allocated);
    Rng(kSeed).fill(region.bytes());
    SLIME_TRY((*agent)->publish("bulk", region));
  }
  MemoryRegion beside;
  if (options.beside_bytes > 0) {
    auto allocated = (*agent)->allocate(options.beside_bytes, Rights::kReadWrite);
    if (!allocated) return std::move(allocated).error();
    beside = std::move(*allocated);
    Rng(kSeed).fill(beside.bytes());
    SLIME_TRY((*agent)->publish("beside", beside));
  }
  std::unique_ptr<cache::CacheServer> cache;
  if (options.bench == "cache") {
    auto started = start_cache_server(**agent, options);
    if (!started) return std::move(started).error();
    cache = std::move(*started);
  }
  answer(str("READY ", (*agent)->address()));
  serve_commands(options, [&] { (*agent)->poll(kServerPoll); });
  messages.reset();
  if (cache) SLIME_TRY(cache->close());
  return (*agent)->close();
}

}  // namespace

void serve_commands(const Options& options, const std::function<void()>& poll) {
  LimitServer limits(limit_options(options));
  if (options.mode != "caller") return answer_commands(limits);
  std::atomic<bool> over{false};
  std::thread commands([&] {
    answer_commands(limits);
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

int run_server(const Options& options) { return exit_status_of(serve(options)); }

}  // namespace slime::bench
