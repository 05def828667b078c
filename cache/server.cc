#include "cache/server.h"

#include <span>
#include <string>
#include <utility>

#include "agent/peer_agent.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/str.h"
#include "cache/service.h"

namespace slime::cache {
namespace {

std::uint64_t random_number() {
  std::uint64_t value = 0;
  random_bytes(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

StoreOptions store_options(const CacheServerOptions& options) {
  return {.arena_bytes = options.memory_bytes,
          .slab_bytes = options.slab_bytes,
          .reservation_ttl = options.reservation_ttl,
          .lease_ttl = options.lease_ttl,
          .high_percent = options.high_percent,
          .low_percent = options.low_percent,
          .first_id = random_number() | 1,
          .hash_seed = random_number()};
}

Status check_memory(std::uint64_t wanted) {
  const std::uint64_t available = available_memory_bytes();
  if (available == 0 || wanted <= available) return {};
  return Status(Code::kResourceExhausted,
                str("a cache of ", wanted >> 20, " MiB does not fit: this machine has ", available >> 20,
                    " MiB of memory available"));
}

}  // namespace

class CacheServer::State {
 public:
  State(const CacheServerOptions& options, MemoryRegion arena, const Clock& clock)
      : clock_(clock),
        service_(std::make_shared<CacheService>(store_options(options), options.verify_on_seal, clock)),
        arena_(std::move(arena)) {}

  Status open(PeerAgent& agent);
  Status close(Nanos bound);
  StoreStats stats() const { return service_->stats(); }

 private:
  const Clock& clock_;
  const std::shared_ptr<CacheService> service_;
  Mutex closing_;  // one close() at a time
  MemoryRegion arena_;
  MemoryRegion for_readers_;
  MemoryRegion for_writers_;
};

Status CacheServer::State::open(PeerAgent& agent) {
  const auto publish = [&](const char* name, Rights rights, MemoryRegion& out) -> Status {
    auto region = agent.register_memory(arena_.data(), arena_.length_bytes(), rights);
    if (!region) return std::move(region).error().with_context(name);
    out = std::move(*region);
    return agent.publish(name, out);
  };
  SLIME_TRY(publish(wire::kReadRegion, Rights::kRemoteRead, for_readers_));
  SLIME_TRY(publish(wire::kWriteRegion, Rights::kRemoteWrite, for_writers_));

  agent.on_disconnect([service = service_](const std::string&, std::uint64_t connection) {
    service->client_gone(connection);
  });
  rpc::Service service(wire::kService);
  SLIME_TRY(service_->add_methods(service, arena_.bytes()));
  return agent.serve(service);
}

Status CacheServer::State::close(Nanos bound) {
  const MutexLock lock(closing_);
  service_->close();
  const TimePoint end = deadline_after(clock_.now(), bound);
  Status status = for_writers_.close(bound);
  Status readers = for_readers_.close(end - clock_.now());
  Status arena = arena_.close(end - clock_.now());
  for (Status* other : {&readers, &arena}) {
    if (status.ok()) status = std::move(*other);
  }
  arena_ = MemoryRegion();
  return status;
}

CacheServer::CacheServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
CacheServer::~CacheServer() { close().ignore(); }

Result<std::unique_ptr<CacheServer>> CacheServer::start(PeerAgent& agent, const CacheServerOptions& options,
                                                        const Clock& clock) {
  SLIME_TRY(store_options(options).validate());
  // Does not check the pool of huge pages: the kernel does not count it as available memory, and
  // allocate() fails if it is too small.
  if (options.pages == Pages::kDefault) SLIME_TRY(check_memory(options.memory_bytes));
  // Allocates the arena first: if it does not fit, nothing that grows with its size is allocated.
  auto arena = agent.allocate(options.memory_bytes, Rights::kLocal, MemoryKind::kHost, options.pages);
  if (!arena) return std::move(arena).error().with_context("the memory of the cache");
  std::unique_ptr<CacheServer> server(
      new CacheServer(std::make_unique<State>(options, std::move(*arena), clock)));
  SLIME_TRY(server->state_->open(agent));
  return server;
}

StoreStats CacheServer::stats() const { return state_->stats(); }
Status CacheServer::close(Nanos bound) { return state_->close(bound); }

}  // namespace slime::cache
