#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <deque>
#include <nlohmann/json.hpp>
#include <vector>

#include "agent/peer_agent.h"
#include "base/random.h"
#include "base/str.h"
#include "bench/histogram.h"
#include "bench/process.h"
#include "bench/raw.h"
#include "bench/roles.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

using nlohmann::json;

struct Outcome {
  Histogram latency;
  std::uint64_t operations = 0;
  double seconds = 0;
  double cpu = 0;
  bool verified = true;
};

// Keeps `inflight` operations of start(slot) under way for `span`, waits for them in order, and gives each
// outcome to check(slot, result).
template <class T, class Start, class Check>
Status load(std::uint32_t inflight, Nanos span, Outcome& out, Start start, Check check) {
  struct Slot {
    TimePoint started;
    Future<T> future;
  };
  std::vector<Slot> slots(inflight);
  const double cpu_before = cpu_seconds();
  const TimePoint begin = steady_clock().now();
  for (std::uint32_t i = 0; i < inflight; ++i) slots[i] = {begin, start(i)};
  TimePoint now = begin;
  std::uint32_t live = inflight;
  for (std::uint32_t i = 0; live > 0; i = (i + 1) % inflight) {
    if (!slots[i].future.valid()) continue;
    Result<T> result = slots[i].future.wait();
    now = steady_clock().now();
    if (!result) return std::move(result).error();
    out.latency.add(static_cast<std::uint64_t>((now - slots[i].started).count()));
    ++out.operations;
    out.verified = check(i, *result) && out.verified;
    if (now - begin < span && !interrupted()) {
      slots[i] = {now, start(i)};
    } else {
      slots[i].future = {};
      --live;
    }
  }
  out.seconds = std::chrono::duration<double>(now - begin).count();
  out.cpu = cpu_seconds() - cpu_before;
  return {};
}

Status run_rpc(Peer& peer, const Options& options, Nanos span, Outcome& out) {
  // A different payload for each slot, so that a reply to another call shows.
  std::vector<ByteVector> payloads(options.inflight, ByteVector(options.size));
  for (std::uint32_t i = 0; i < options.inflight; ++i) Rng(kSeed + i).fill(payloads[i]);
  return load<ByteVector>(
      options.inflight, span, out,
      [&](std::uint32_t i) { return peer.call<ByteVector>("bench", "echo", payloads[i]); },
      [&](std::uint32_t i, const ByteVector& reply) { return reply == payloads[i]; });
}

// Blocks of one client in its own part of the server's region.
class Bulk {
 public:
  static Result<std::unique_ptr<Bulk>> create(PeerAgent& agent, Peer peer, const Options& options,
                                              std::uint32_t index) {
    auto local = agent.allocate(region_bytes(options), Rights::kLocal);
    if (!local) return std::move(local).error();
    auto remote = peer.region("bulk");
    if (!remote) return std::move(remote).error();
    return std::unique_ptr<Bulk>(new Bulk(std::move(peer), options, index, std::move(*local), *remote));
  }

  Status run(Nanos span, Outcome& out) {
    return load<None>(
        options_.inflight, span, out,
        [this](std::uint32_t i) {
          const Copy copy[] = {block(i)};
          return options_.operation == "write" ? peer_.write(copy) : peer_.read(copy);
        },
        [](std::uint32_t, const None&) { return true; });
  }

  // Reads: what came is what the server holds. Writes: bytes that were never there before come back as they
  // were sent.
  Result<bool> verify() {
    ByteVector expected(region_bytes(options_));
    if (options_.operation == "read") {
      ByteVector all(region_bytes(options_) * options_.clients);
      Rng(kSeed).fill(all);
      expected.assign(all.begin() + static_cast<std::ptrdiff_t>(base_),
                      all.begin() + static_cast<std::ptrdiff_t>(base_ + expected.size()));
      return std::equal(expected.begin(), expected.end(), local_.data());
    }
    Rng(kSeed + 1000 + base_).fill(expected);
    std::copy(expected.begin(), expected.end(), local_.data());
    const Copy whole[] = {{local_, 0, remote_, base_, expected.size()}};
    if (auto written = peer_.write(whole).wait(); !written) return std::move(written).error();
    std::fill(local_.bytes().begin(), local_.bytes().end(), std::byte{0});
    if (auto read = peer_.read(whole).wait(); !read) return std::move(read).error();
    return std::equal(expected.begin(), expected.end(), local_.data());
  }

 private:
  Bulk(Peer peer, const Options& options, std::uint32_t index, MemoryRegion local, RemoteRegion remote)
      : peer_(std::move(peer)),
        options_(options),
        base_(index * region_bytes(options)),
        local_(std::move(local)),
        remote_(remote) {}
  Copy block(std::uint32_t i) {
    return {local_, i * options_.size, remote_, base_ + i * options_.size, options_.size};
  }

  Peer peer_;
  const Options options_;
  const std::uint64_t base_;
  MemoryRegion local_;
  RemoteRegion remote_;
};

json measure_limit(const Options& options, std::uint16_t port, Status& error) {
  const Nanos span = to_nanos(std::max(0.2, options.seconds / 3));
  json out;
  const std::uint64_t buffer = options.bench == "bulk" ? region_bytes(options) : options.size;
  out["memcpy_gb_per_s"] = memcpy_speed(options.size, buffer, to_nanos(0.1));
  if (options.bench == "rpc") {
    const auto echo = raw_echo(port, options.size, options.inflight, options.mode == "caller", span);
    if (!echo) {
      error = echo.error();
      return out;
    }
    out["p50_us"] = echo->p50_us;
    out["ops_per_s"] = echo->ops_per_s;
    return out;
  }
  const auto speed = raw_stream(
      port, std::min<std::size_t>(std::max<std::uint64_t>(options.size, 65536), 1 << 20), buffer, span);
  if (!speed) {
    error = speed.error();
    return out;
  }
  out["gb_per_s"] = *speed;
  return out;
}

// The client's index is the last part of its name, "bench-client-3".
Status serve_driver(PeerAgent& agent, const Options& options, const std::string& address,
                    std::uint32_t index) {
  Peer peer = agent.peer(address);
  if (auto connected = peer.connect().wait(); !connected) return std::move(connected).error();
  std::unique_ptr<Bulk> bulk;
  if (options.bench == "bulk") {
    auto made = Bulk::create(agent, peer, options, index);
    if (!made) return std::move(made).error();
    bulk = std::move(*made);
  }
  const auto run = [&](Nanos span, Outcome& out) {
    return bulk ? bulk->run(span, out) : run_rpc(peer, options, span, out);
  };
  Outcome warm;
  SLIME_TRY(run(to_nanos(options.warmup_seconds), warm));
  answer("READY -");
  while (const auto command = read_command()) {
    if (*command == "GO") {
      Outcome out;
      SLIME_TRY(run(to_nanos(options.seconds), out));
      if (bulk) {
        const auto verified = bulk->verify();
        if (!verified) return verified.error();
        out.verified = *verified;
      }
      answer(str("RESULT ", json{{"operations", out.operations},
                                 {"seconds", out.seconds},
                                 {"cpu", out.cpu},
                                 {"verified", out.verified},
                                 {"latency", out.latency.encode()}}
                                .dump()));
    } else if (command->rfind("RAW ", 0) == 0) {
      Status error;
      const json limit = measure_limit(
          options, static_cast<std::uint16_t>(std::strtoul(command->c_str() + 4, nullptr, 10)), error);
      SLIME_TRY(std::move(error));
      answer(str("LIMIT ", limit.dump()));
    }
  }
  return {};
}

}  // namespace

int run_client(const Options& options, const std::string& target) {
  // "host:port#index"
  const auto at = target.rfind('#');
  const std::string address = target.substr(0, at);
  const auto index = at == std::string::npos
                         ? 0
                         : static_cast<std::uint32_t>(std::strtoul(target.c_str() + at + 1, nullptr, 10));
  Status status;
  {
    auto agent = PeerAgent::start(agent_options(options, str("bench-client-", index)));
    status = agent ? serve_driver(**agent, options, address, index) : agent.error();
  }
  if (status.ok()) return 0;
  answer(str("ERROR ", status.to_string()));
  return 1;
}

}  // namespace slime::bench
