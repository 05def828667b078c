#include "tests/kv/fire.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <sstream>

#include "base/random.h"
#include "base/str.h"
#include "tests/support/bytes.h"
#include "tests/support/settings.h"

namespace slime::kv::fire {
namespace {

constexpr std::byte kMargin{0x5a};
constexpr std::uint64_t kMarginBytes = 4096;
constexpr std::uint64_t kTableBytes = 1 << 16;

Geometry geometry_of(const Plan& plan) {
  return {.layers = plan.layers,
          .blocks = plan.pool(),
          .block_tokens = 8,
          .heads = 1,
          .head_bytes = kBlockBytes / 8,
          .form = Form::kLatent};
}

// Returns `ids` with its runs of up to eight ids in another order.
Ids shuffled_runs(Rng& rng, const Ids& ids) {
  std::vector<std::pair<std::size_t, std::size_t>> runs;  // begin, end
  for (std::size_t at = 0; at < ids.size();) {
    const std::size_t end = std::min<std::size_t>(ids.size(), at + 1 + rng.below(8));
    runs.emplace_back(at, end);
    at = end;
  }
  for (std::size_t i = runs.size(); i > 1; --i) std::swap(runs[i - 1], runs[rng.below(i)]);
  Ids out;
  out.reserve(ids.size());
  for (const auto& [begin, end] : runs)
    for (std::size_t i = begin; i < end; ++i) out.push_back(ids[i]);
  return out;
}

}  // namespace

std::vector<std::string> Plan::arguments() const {
  std::string flags = "-";
  if (child_begins) flags += 'c';
  if (write) flags += 'w';
  if (kv) flags += 'k';
  if (told) flags += 't';
  if (allocated) flags += 'a';
  return {str(seed), str(blocks), str(layers), str(timeout_ms), flags};
}

Plan Plan::of(char** arguments) {
  const std::string_view flags = arguments[4];
  const auto has = [&](char flag) { return flags.find(flag) != std::string_view::npos; };
  return {.seed = std::strtoull(arguments[0], nullptr, 10),
          .blocks = std::strtoull(arguments[1], nullptr, 10),
          .layers = static_cast<std::uint32_t>(std::strtoul(arguments[2], nullptr, 10)),
          .child_begins = has('c'),
          .write = has('w'),
          .kv = has('k'),
          .told = has('t'),
          .allocated = has('a'),
          .timeout_ms = std::strtoull(arguments[3], nullptr, 10)};
}

std::string Plan::to_string() const {
  return str(child_begins ? "the child" : "the test", write ? " writes" : " reads",
             kv ? " as kv" : " as Peer", told ? ", with a request" : "",
             allocated ? ", memory of Slime" : ", memory of the caller", ", seed ", seed);
}

Lists::Lists(const Plan& plan) {
  Rng rng(plan.seed);
  Ids all(plan.pool());
  std::iota(all.begin(), all.end(), 0);
  targets = shuffled_runs(rng, all);
  targets.resize(plan.blocks);
  sources.reserve(plan.blocks);
  while (sources.size() < plan.blocks) {  // runs that may overlap
    const std::uint64_t first = rng.below(plan.pool());
    const std::uint64_t count = 1 + rng.below(8);
    for (std::uint64_t i = 0; i < count && first + i < plan.pool() && sources.size() < plan.blocks; ++i)
      sources.push_back(first + i);
  }
}

void fill_block(const Plan& plan, std::byte* at, std::uint64_t seed, std::uint32_t layer,
                std::uint64_t block) {
  // Random bytes, from a place that belongs to the block: a guest makes no new ones in time.
  static const ByteVector table = [] {
    ByteVector out(kTableBytes + kBlockBytes);
    Rng(1).fill(out);
    return out;
  }();
  Rng own((seed * plan.layers + layer) * plan.pool() + block);
  std::memcpy(at, table.data() + own.below(kTableBytes), kBlockBytes);
  const std::uint64_t word = own.next();
  std::memcpy(at, &word, sizeof word);
}

void fill(const Plan& plan, const Layers& layers, std::uint64_t seed) {
  for (std::uint32_t layer = 0; layer < plan.layers; ++layer)
    for (std::uint64_t block = 0; block < plan.pool(); ++block)
      fill_block(plan, layers[layer] + block * kBlockBytes, seed, layer, block);
}

Result<Arena> Arena::make(const Plan& plan) {
  Arena out;
  out.fd_ = ::memfd_create("fire", MFD_CLOEXEC);
  if (out.fd_ < 0) return from_errno("memfd_create", errno);
  if (::ftruncate(out.fd_, static_cast<off_t>(size_of(plan))) != 0) return from_errno("ftruncate", errno);
  out.size_ = size_of(plan);
  for (std::byte** place : {&out.base_, &out.view_}) {
    void* const at =
        ::mmap(nullptr, out.size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, out.fd_, 0);
    if (at == MAP_FAILED) return from_errno("mmap", errno);
    *place = static_cast<std::byte*>(at);
  }
  std::memset(out.view_, std::to_integer<int>(kMargin), out.size_);
  return out;
}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(view_, other.view_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

Arena::~Arena() {
  if (base_ != nullptr) ::munmap(base_, size_);
  if (view_ != nullptr) ::munmap(view_, size_);
  if (fd_ >= 0) ::close(fd_);
}

std::uint64_t Arena::size_of(const Plan& plan) {
  return kMarginBytes + plan.layers * (plan.layer_bytes() + kMarginBytes);
}

Layers Arena::layers_at(const Plan& plan, std::byte* base) {
  Layers out;
  for (std::uint32_t layer = 0; layer < plan.layers; ++layer)
    out.push_back(base + kMarginBytes + layer * (plan.layer_bytes() + kMarginBytes));
  return out;
}

bool Arena::margins_are_whole(const Plan& plan, std::byte* base) {
  const auto is_whole = [](std::byte* at) { return test::all_are({at, kMarginBytes}, kMargin); };
  const Layers layers = layers_at(plan, base);
  return is_whole(base) && std::all_of(layers.begin(), layers.end(), [&](std::byte* layer) {
           return is_whole(layer + plan.layer_bytes());
         });
}

Result<std::unique_ptr<Side>> Side::start(const Plan& plan) {
  auto out = std::make_unique<Side>();
  PeerAgentOptions options;
  options.provider = test::provider();
  auto agent = PeerAgent::start(std::move(options));
  if (!agent) return agent.status();
  out->agent = std::move(*agent);
  const auto keep = [&](Result<Cache> made) -> Status {
    if (!made) return made.status();
    out->cache = std::move(*made);
    return {};
  };
  if (plan.allocated) {
    SLIME_TRY(keep(Cache::allocate(*out->agent, geometry_of(plan))));
    for (std::uint32_t layer = 0; layer < plan.layers; ++layer)
      out->layers.push_back(out->cache.region(layer, 0).data());
    return out;
  }
  auto arena = Arena::make(plan);
  if (!arena) return arena.status();
  out->arena = std::move(*arena);
  out->layers = Arena::layers_at(plan, out->arena.view());
  std::vector<MutableBytes> memory;
  memory.reserve(plan.layers);
  for (std::byte* layer : Arena::layers_at(plan, out->arena.base()))
    memory.emplace_back(layer, plan.layer_bytes());
  SLIME_TRY(keep(Cache::over(*out->agent, geometry_of(plan), memory)));
  return out;
}

Result<Route> connect(Side& side, const Plan& plan, std::string_view address, Nanos timeout) {
  Route out;
  auto remote = kv::connect(side.agent->peer(address), side.cache, {}, timeout);
  if (!remote) return remote.status();
  out.remote = std::move(*remote);
  out.peer = out.remote.peer();
  for (std::uint32_t layer = 0; layer < plan.layers; ++layer) {
    auto region = out.peer.region(str("kv/cache/", layer, "/latent"), timeout);
    if (!region) return region.status();
    out.regions.push_back(std::move(*region));
  }
  return out;
}

namespace {

// Starts the call of the plan with these lists: one operation for each layer, or one for all.
std::vector<Future<None>> begin(Side& side, Route& route, const Plan& plan, const Ids& sources,
                                const Ids& targets) {
  const Ids& local = plan.write ? sources : targets;
  const Ids& remote = plan.write ? targets : sources;
  std::vector<Future<None>> out;
  if (plan.kv) {
    MoveOptions options{.timeout = plan.timeout()};
    if (plan.told) options.request = kRequest;
    out.push_back(plan.write ? route.remote.write_blocks(local, remote, options).future()
                             : route.remote.read_blocks(local, remote, options).future());
    return out;
  }
  out.reserve(plan.layers);
  for (std::uint32_t layer = 0; layer < plan.layers; ++layer) {
    const BlockIds blocks{side.cache.region(layer, 0), route.regions[layer], local, remote, kBlockBytes};
    out.push_back(plan.write ? route.peer.write_blocks(blocks, plan.timeout())
                             : route.peer.read_blocks(blocks, plan.timeout()));
  }
  return out;
}

}  // namespace

Status make_wrong_calls(Side& side, Route& route, const Plan& plan) {
  Rng rng(plan.seed + 1);
  Ids targets(plan.pool());  // every block, so that no byte that moves is overlooked
  std::iota(targets.begin(), targets.end(), 0);
  Ids sources(targets.rbegin(), targets.rend());
  const std::size_t place = rng.below(plan.pool());
  const std::uint64_t beyond[] = {plan.pool(), plan.pool() + 1 + rng.below(1 << 20), ~std::uint64_t{0}};
  const auto refused = [&](std::string_view what, const Ids& from, const Ids& to) -> Status {
    for (Future<None>& each : begin(side, route, plan, from, to)) {
      const Status status = each.wait(test::patient(std::chrono::seconds(10))).status();
      if (status.code() != Code::kInvalidArgument)
        return Status(Code::kInternal, str(what, " ended with ", status.to_string()));
    }
    return {};
  };
  const auto with = [&](Ids ids, std::uint64_t wrong) {
    ids[place] = wrong;
    return ids;
  };
  SLIME_TRY(refused("a source that is out of range", with(sources, beyond[rng.below(3)]), targets));
  SLIME_TRY(refused("a target that is out of range", sources, with(targets, beyond[rng.below(3)])));
  if (plan.kv)
    SLIME_TRY(refused("a target that is there twice", sources,
                      with(targets, targets[(place + 1 + rng.below(plan.pool() - 1)) % plan.pool()])));
  sources.pop_back();
  return refused("lists of different sizes", sources, targets);
}

std::uint32_t Outcome::succeeded() const {
  return static_cast<std::uint32_t>(std::count(codes.begin(), codes.end(), Code::kOk));
}

std::string Outcome::encode() const {
  std::string out = str("ENDED ", took.count());
  for (const Code code : codes) out += str(" ", static_cast<int>(code));
  std::string line = text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  return out + " : " + line;
}

Outcome Outcome::decode(std::string_view line) {
  const std::size_t colon = line.find(" : ");
  std::istringstream numbers{std::string(line.substr(6, colon - 6))};
  Outcome out;
  std::int64_t number = 0;
  numbers >> number;
  out.took = Nanos(number);
  while (numbers >> number) out.codes.push_back(static_cast<Code>(number));
  out.text = line.substr(colon + 3);
  return out;
}

Outcome Outcome::unknown(const Plan& plan, Code code) {
  Outcome out;
  out.codes.assign(plan.layers, code);
  out.text = "the call has not ended";
  return out;
}

Outcome transfer(Side& side, Route& route, const Plan& plan, const Lists& lists) {
  Outcome out;
  const TimePoint began = steady_clock().now();
  std::vector<Future<None>> calls = begin(side, route, plan, lists.sources, lists.targets);
  for (Future<None>& each : calls) {
    const Status status = each.wait().status();
    if (!status.ok() && out.text.empty()) out.text = status.to_string();
    out.codes.push_back(status.code());
  }
  out.took = steady_clock().now() - began;
  out.codes.resize(plan.layers, out.codes.front());  // one call for all layers has one outcome
  return out;
}

Nanos destroy(Side& side, Route route) {
  Nanos longest{};
  const auto timed = [&](auto drop) {
    const TimePoint began = steady_clock().now();
    drop();
    longest = std::max<Nanos>(longest, steady_clock().now() - began);
  };
  timed([&] { route = Route(); });
  timed([&] { side.cache = Cache(); });
  timed([&] { side.agent.reset(); });
  return longest;
}

}  // namespace slime::kv::fire
