#include "bench/machine_limits.h"

#include <unistd.h>

#include <algorithm>
#include <span>
#include <sstream>
#include <thread>

#include "base/random.h"
#include "base/str.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

// By the values of LimitKind.
constexpr std::string_view kWords[] = {"ping-pong", "ring",         "tcp-echo",   "tcp-stream",
                                       "memcpy",    "plain-memcpy", "process-vm", "tcp-connect"};
constexpr std::uint64_t kPingPongBytes = 64;
constexpr double kPart = 0.5;        // of the measurement's seconds
constexpr double kLeastSpan = 0.05;  // seconds of each variant
constexpr std::size_t kChunks[] = {64 << 10, 256 << 10, 1 << 20};
constexpr std::uint64_t kBulkFrom = 64 << 10;
constexpr int kSocketBuffers[] = {0, 4 << 20};

struct CommandWords {
  LimitKind kind{};
  std::string variant;
  std::string argument;
};

Result<CommandWords> parse(const std::string& command) {
  std::istringstream in(command);
  std::string kind;
  CommandWords out;
  in >> kind >> out.variant >> out.argument;
  const auto* const word = std::find(std::begin(kWords), std::end(kWords), kind);
  if (word == std::end(kWords)) return Status(Code::kInternal, str("no limit '", kind, "'"));
  out.kind = static_cast<LimitKind>(word - std::begin(kWords));
  return out;
}

// Parses "12:34".
std::pair<std::uint64_t, std::uint64_t> two_numbers(const std::string& text) {
  char* end = nullptr;
  const std::uint64_t first = std::strtoull(text.c_str(), &end, 10);
  return {first, *end == ':' ? std::strtoull(end + 1, nullptr, 10) : 0};
}

// Returns whether Slime spins: a waiting thread drives the loop while one operation is under way.
bool spins(const Options& options) {
  return options.mode == "caller" || (options.inflight == 1 && options.clients == 1);
}

RingShape ring_shape(LimitKind kind, const Options& options) {
  if (kind == LimitKind::kPingPong) return {.size = 0, .slots = 1, .spin = spins(options)};
  return {.size = options.size, .slots = options.inflight, .spin = spins(options)};
}

TcpRole role_of(LimitKind kind) {
  if (kind == LimitKind::kTcpConnect) return TcpRole::kAccept;
  return kind == LimitKind::kTcpEcho ? TcpRole::kEcho : TcpRole::kReceive;
}

TcpShape tcp_shape(const CommandWords& words, const Options& options, std::uint64_t pass) {
  TcpShape out{.size = options.size, .host = options.host, .pass = pass};
  if (words.kind == LimitKind::kTcpConnect) return out;
  if (words.kind == LimitKind::kTcpEcho) {
    out.inflight = options.inflight;
    out.spin = spins(options);
    return out;
  }
  const auto [chunk, buffer] = two_numbers(words.variant);
  out.size = chunk;
  out.socket_bytes = static_cast<int>(buffer);
  out.region_bytes = region_bytes(options);
  return out;
}

// Returns the number that a client off loopback sends first: other programs may find the port.
std::uint64_t draw_pass(const Options& options) {
  if (options.host == TcpShape{}.host) return 0;
  std::uint64_t out = 0;
  random_bytes(std::as_writable_bytes(std::span(&out, 1)));
  return out;
}

Limit block_limit(const Options& options, bool shared_memory) {
  const auto limit = [](LimitKind kind, std::string name) {
    return Limit{.kind = kind, .name = std::move(name), .figure = "gb_per_s"};
  };
  if (!shared_memory) return limit(LimitKind::kTcpStream, "raw TCP stream, best chunk and buffer");
  if (options.memory == "foreign") {
    const char* const call = options.operation == "write" ? "process_vm_writev" : "process_vm_readv";
    return limit(LimitKind::kProcessVm, str(call, ", same blocks"));
  }
  if (options.cold)
    return limit(LimitKind::kPlainMemcpy, "memcpy of the C library, same cold blocks, one core");
  if (options.bench == "blocks")
    return limit(LimitKind::kPlainMemcpy, "memcpy of the C library, same list of blocks");
  return limit(LimitKind::kMemcpy, "memcpy, best of the C library and non-temporal, same hot blocks");
}

// Makes the pages, unless they were made before.
Status make_once(Pages& pages, std::uint64_t bytes) {
  if (pages.size() != 0) return {};
  auto made = Pages::create(bytes);
  if (!made) return std::move(made).error();
  pages = std::move(*made);
  return {};
}

}  // namespace

std::string_view limit_word(LimitKind kind) { return kWords[static_cast<std::size_t>(kind)]; }

Options limit_options(const Options& options) {
  if (options.bench != "cache") return options;
  Options out = options;
  out.bench = "rpc";
  out.count = 1;
  // Smaller objects are limited by round trips, larger ones by bytes.
  if (options.size * options.count >= kBulkFrom) {
    out.bench = "bulk";
    out.operation = options.operation == "put" ? "write" : "read";
    out.inflight = static_cast<std::uint32_t>(object_count(options));
  }
  return out;
}

Limit choose_limit(const Options& options, std::string_view provider) {
  if (options.bench == "connect")
    return {.kind = LimitKind::kTcpConnect,
            .name = "raw TCP connect and first echo, blocked (every handshake is over TCP)",
            .figure = "p50_us",
            .less_is_better = true};
  const bool shared_memory = provider == "shm";
  if (options.moves_blocks()) return block_limit(options, shared_memory);
  const bool half = options.bench == "notify";
  const std::string_view wait = spins(options) ? "spinning" : "blocked";
  Limit out;
  if (options.inflight == 1 && options.clients == 1) {
    // A message of one or two cache lines costs their transfer; of a larger one the bytes count.
    const bool lines = options.size <= kPingPongBytes;
    out.kind = !shared_memory ? LimitKind::kTcpEcho : lines ? LimitKind::kPingPong : LimitKind::kRing;
    out.figure = "p50_us";
    out.less_is_better = true;
    out.scale = half ? 0.5 : 1;
    out.name = str(!shared_memory ? "raw TCP echo, "
                   : lines        ? "two cache lines between processes, "
                                  : "bare echo of the bytes in shared memory, ",
                   wait, half ? ", half a round trip" : ", round trip");
  } else {
    out.kind = shared_memory ? LimitKind::kRing : LimitKind::kTcpEcho;
    out.figure = "ops_per_s";
    out.name = str(shared_memory ? "bare ring echo in shared memory, " : "raw TCP echo in windows, ", wait,
                   ", one client");
  }
  return out;
}

std::vector<std::string> limit_variants(LimitKind kind, const Options& options) {
  std::vector<std::string> out;
  if (kind == LimitKind::kTcpStream) {
    for (const std::size_t chunk : kChunks) {
      for (const int buffer : kSocketBuffers) out.push_back(str(chunk, ":", buffer));
    }
  } else if (kind == LimitKind::kMemcpy) {
    out.emplace_back("libc");
    if (can_copy(CopyWay::kStreaming, options.size)) out.emplace_back("non-temporal");
    if (can_copy(CopyWay::kInterleaved, options.size)) out.emplace_back("non-temporal-interleaved");
  } else {
    out.emplace_back("only");
  }
  return out;
}

Result<std::string> LimitServer::share_ring(const RingShape& shape) {
  auto memory = Pages::create_shared(shape.memory_bytes());
  if (!memory) return std::move(memory).error();
  const std::string word = str(getpid(), ":", memory->fd());
  busy_->fetch_add(1);
  // Detached: ends when the other side ends, or with the process, which lives for one measurement.
  std::thread([pages = std::move(*memory), shape, busy = busy_] {
    serve_ring(pages, shape);
    busy->fetch_sub(1);
    busy->notify_all();
  }).detach();
  return word;
}

Result<std::string> LimitServer::prepare(const std::string& command) {
  auto words = parse(command);
  if (!words) return std::move(words).error();
  switch (words->kind) {
    case LimitKind::kPingPong:
    case LimitKind::kRing:
      return share_ring(ring_shape(words->kind, options_));
    case LimitKind::kTcpEcho:
    case LimitKind::kTcpStream:
    case LimitKind::kTcpConnect: {
      // A thread that accepts blocks in the kernel, so no other thread pauses for it.
      const bool accepts = words->kind == LimitKind::kTcpConnect;
      const std::uint64_t pass = draw_pass(options_);
      auto port = serve_tcp(role_of(words->kind), tcp_shape(*words, options_, pass),
                            accepts ? std::make_shared<std::atomic<int>>() : busy_);
      if (!port) return std::move(port).error();
      return str(*port, ":", pass);
    }
    case LimitKind::kProcessVm:
      SLIME_TRY(make_once(foreign_, region_bytes(options_)));
      return str(getpid(), ":", reinterpret_cast<std::uintptr_t>(foreign_.data()));
    case LimitKind::kMemcpy:
    case LimitKind::kPlainMemcpy:
      return std::string("-");
  }
  return Status(Code::kInternal, "no such limit");
}

void LimitServer::pause_while_busy() const {
  for (int busy = busy_->load(); busy != 0; busy = busy_->load()) busy_->wait(busy);
}

Result<double> LimitClient::copy(LimitKind kind, const std::string& variant, const std::string& argument,
                                 Nanos span) {
  if (blocks_.empty()) blocks_ = block_list(options_);
  SLIME_TRY(make_once(local_, region_bytes(options_)));
  const CopyList list{blocks_, options_.size, options_.operation == "write"};
  if (kind == LimitKind::kProcessVm) {
    const auto [pid, address] = two_numbers(argument);
    return process_vm_speed(list, local_.data(), static_cast<pid_t>(pid), address, options_.count, span);
  }
  SLIME_TRY(make_once(remote_, region_bytes(options_)));
  const CopyWay way = variant == "non-temporal"               ? CopyWay::kStreaming
                      : variant == "non-temporal-interleaved" ? CopyWay::kInterleaved
                                                              : CopyWay::kGlibc;
  return copy_speed(list, local_.data(), remote_.data(), way, span);
}

Result<double> LimitClient::measure(const std::string& command) {
  auto words = parse(command);
  if (!words) return std::move(words).error();
  const double variants = static_cast<double>(limit_variants(words->kind, options_).size());
  const Nanos span = to_nanos(std::max(kLeastSpan, options_.seconds * kPart / variants));
  const bool latency = options_.inflight == 1 && options_.clients == 1;
  const auto figure = [latency](const RawEcho& echo) { return latency ? echo.p50_us : echo.ops_per_s; };
  const auto [first, second] = two_numbers(words->argument);
  const auto port = static_cast<std::uint16_t>(first);
  switch (words->kind) {
    case LimitKind::kPingPong:
    case LimitKind::kRing: {
      const RingShape shape = ring_shape(words->kind, options_);
      auto memory =
          Pages::open_shared(static_cast<int>(first), static_cast<int>(second), shape.memory_bytes());
      if (!memory) return std::move(memory).error();
      const auto echo = ring_echo(*memory, shape, span);
      if (!echo) return echo.error();
      return figure(*echo);
    }
    case LimitKind::kTcpEcho: {
      const auto echo = tcp_echo(port, tcp_shape(*words, options_, second), span);
      if (!echo) return echo.error();
      return figure(*echo);
    }
    case LimitKind::kTcpStream:
      return tcp_stream(port, tcp_shape(*words, options_, second), span);
    case LimitKind::kTcpConnect:
      return tcp_connections(port, tcp_shape(*words, options_, second), options_.count);
    case LimitKind::kMemcpy:
    case LimitKind::kPlainMemcpy:
    case LimitKind::kProcessVm:
      return copy(words->kind, words->variant, words->argument, span);
  }
  return Status(Code::kInternal, "no such limit");
}

Result<std::vector<LimitValue>> measure_limit(
    const Limit& limit, const Options& options, ServerEnd& server,
    const std::function<Result<double>(const std::string& command)>& measure) {
  std::vector<LimitValue> values;
  for (const std::string& variant : limit_variants(limit.kind, options)) {
    const std::string what = str(limit_word(limit.kind), " ", variant);
    auto word = server.ask(str("RAW ", what), "RAW", kAnswer);
    if (!word) return std::move(word).error();
    const auto measured = measure(str(what, " ", *word));
    if (!measured) return measured.error();
    values.push_back({*measured * limit.scale, variant});
  }
  return values;
}

}  // namespace slime::bench
