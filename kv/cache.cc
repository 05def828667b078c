#include "kv/cache.h"

#include <algorithm>

#include "base/str.h"
#include "kv/cache_state.h"
#include "kv/served.h"

namespace slime::kv {
namespace {

constexpr std::size_t kNameLength = 64;

bool may_be_in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

Status check_new_cache(const Geometry& geometry, const CacheOptions& options) {
  SLIME_TRY(geometry.validate());
  return check_cache_name(options.name);
}

}  // namespace

std::string service_name(std::string_view cache) { return str("kv.", cache); }

std::string region_name(std::string_view cache, std::uint32_t layer, std::string_view region) {
  return str("kv/", cache, "/", layer, "/", region);
}

Status check_cache_name(std::string_view name) {
  if (!name.empty() && name.size() <= kNameLength && std::all_of(name.begin(), name.end(), may_be_in_name))
    return {};
  return Status(Code::kInvalidArgument, str("\"", name, "\" is no name of a KV cache: 1 to ", kNameLength,
                                            " letters, digits, '_', '-'"));
}

Status Cache::State::add_region(PeerAgent& agent, Result<MemoryRegion> region) {
  const std::size_t number = regions.size();
  const auto layer = static_cast<std::uint32_t>(geometry.first_layer + number / shapes.size());
  const std::string published = region_name(name, layer, shapes[number % shapes.size()].name);
  if (!region) return std::move(region).error().with_context(published);
  regions.push_back(std::move(*region));
  return agent.publish(published, regions.back());
}

Status Cache::State::serve(PeerAgent& agent) const {
  return Served::serve(agent, name, geometry.encode(), arrivals);
}

Status close_all(std::vector<MemoryRegion>& regions, Nanos timeout) {
  const TimePoint end = deadline_after(steady_clock().now(), timeout);
  Status status;
  for (MemoryRegion& region : regions) {
    Status closed = region.close(std::max(end - steady_clock().now(), Nanos::zero()));
    if (status.ok()) status = std::move(closed);
  }
  return status;
}

Status Cache::State::close(Nanos timeout) {
  arrivals->close();
  return close_all(regions, timeout);
}

Result<Cache> Cache::allocate(PeerAgent& agent, const Geometry& geometry, CacheOptions options) {
  SLIME_TRY(check_new_cache(geometry, options));
  Cache out(std::make_shared<State>(agent, geometry, std::move(options.name)));
  State& state = *out.state_;
  for (std::uint32_t layer = 0; layer < geometry.layers; ++layer)
    for (const RegionShape& shape : state.shapes)
      SLIME_TRY(state.add_region(agent, agent.allocate(geometry.blocks * shape.block_bytes, options.rights)));
  SLIME_TRY(state.serve(agent));
  return out;
}

Result<Cache> Cache::over(PeerAgent& agent, const Geometry& geometry, std::span<const MutableBytes> memory,
                          CacheOptions options) {
  SLIME_TRY(check_new_cache(geometry, options));
  Cache out(std::make_shared<State>(agent, geometry, std::move(options.name)));
  State& state = *out.state_;
  const std::size_t each = state.shapes.size();
  if (memory.size() != geometry.layers * each)
    return Status(Code::kInvalidArgument, str(memory.size(), " regions of memory for ", geometry.layers,
                                              " layers with ", each, " regions each"));
  for (std::size_t i = 0; i < memory.size(); ++i) {  // all are checked before one is registered
    const RegionShape& shape = state.shapes[i % each];
    const std::uint64_t needed = geometry.blocks * shape.block_bytes;
    if (memory[i].size() < needed)
      return Status(Code::kInvalidArgument,
                    str("layer ", geometry.first_layer + i / each, ", ", shape.name, ": ", memory[i].size(),
                        " bytes, ", geometry.blocks, " blocks have ", needed));
  }
  for (std::size_t i = 0; i < memory.size(); ++i)
    SLIME_TRY(state.add_region(
        agent, agent.register_memory(memory[i].data(), geometry.blocks * state.shapes[i % each].block_bytes,
                                     options.rights)));
  SLIME_TRY(state.serve(agent));
  return out;
}

Cache::~Cache() { close(limits::kDestructorBound).ignore(); }

Cache& Cache::operator=(Cache&& other) noexcept {
  if (this != &other) {
    close().ignore();
    state_ = std::move(other.state_);
  }
  return *this;
}

const Geometry& Cache::geometry() const { return state_->geometry; }
const std::string& Cache::name() const { return state_->name; }
const MemoryRegion& Cache::region(std::uint32_t layer, std::uint32_t region) const {
  return state_->region(layer, region);
}

Status Cache::wait_layer(std::uint64_t request, std::uint32_t layer, Nanos timeout) {
  return state_->arrivals->wait(request, layer, timeout);
}
void Cache::on_layer(std::function<void(std::uint32_t layer, std::uint64_t request)> handler) {
  state_->arrivals->on_layer(std::move(handler));
}
void Cache::forget(std::uint64_t request) { state_->arrivals->forget(request); }

Status Cache::close(Nanos timeout) { return state_ ? state_->close(timeout) : Status(); }

}  // namespace slime::kv
