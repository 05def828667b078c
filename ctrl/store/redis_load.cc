#include "ctrl/store/redis_load.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/log.h"
#include "base/str.h"

namespace slime::ctrl {
namespace {

constexpr std::size_t kCount = 128;  // entries per read
constexpr int kCreateAttempts = 3;
constexpr Nanos kBeginTime = std::chrono::seconds(5);  // timeout of each reply of Redis

std::uint64_t microseconds_now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(since).count();
  return static_cast<std::uint64_t>(std::max<std::int64_t>(1, micros));
}

Status create(RedisLog& log, const std::string& name, const Registry& registry) {
  Snapshot first;
  first.head.lineage = InstanceId::random().to_string();
  first.rules = describe_rules(registry.options());
  first.chunks = encode_chunks(encode_records(registry));
  return log.create(first, name);
}

Status create_empty(RedisLog& log, const std::string& name, RegistryOptions options,
                    const EarlierLog& earlier) {
  options.epoch = std::max(options.epoch, microseconds_now());
  // Begins beyond all numbers of the lost registry, even if the clock is behind them.
  if (!earlier.lineage.empty())
    options.epoch = std::max(options.epoch, largest_number(earlier.registry.state()) + 1);
  return create(log, name, Registry(options));
}

Result<Snapshot> find_snapshot(RedisLog& log, const std::string& name, const RegistryOptions& options,
                               const EarlierLog& earlier) {
  for (int i = 0; i < kCreateAttempts; ++i) {
    Result<std::optional<Snapshot>> snapshot = log.load();
    if (!snapshot) return snapshot.error();
    if (*snapshot) return std::move(**snapshot);
    SLIME_TRY(create_empty(log, name, options, earlier));
  }
  return Status(Code::kUnavailable, "the log is gone as soon as it is made");
}

Result<Registry> restore(const Snapshot& snapshot, const RegistryOptions& options) {
  bool readable = false;
  for (std::uint64_t format = kLogFormatRead; format <= kLogFormat; ++format)
    readable = readable || snapshot.rules == describe_rules(options, format);
  // The rules of a log of an earlier version do not contain the quotas of scopes. All engines must
  // then use the default quotas, so that they agree.
  const bool unsaid = readable && snapshot.rules != describe_rules(options);
  if (unsaid && options.record_bytes_per_scope_max != limits::kRecordBytesPerScope)
    return Status(Code::kInvalidArgument,
                  str("its registry is of an earlier version: start without --scope-bytes until every "
                      "nanoctrl on it is of this one"));
  if (!readable)
    return Status(Code::kInvalidArgument,
                  str("its registry has ", snapshot.rules, "; this nanoctrl has ", describe_rules(options)));
  std::vector<Record> records;
  for (const std::string& chunk : snapshot.chunks) SLIME_TRY(decode_chunk(chunk, records));
  Result<RegistryState> state = decode_records(records);
  if (!state) return state.error();
  return Registry::restore(options, std::move(*state), snapshot.head.at.time());
}

// Reads and applies entries until no further entry is in the log.
Status catch_up(RedisLog& log, LoadedLog& out) {
  while (true) {
    const Result<RedisLog::Batch> batch = log.read(out.replay.at(), kCount, Nanos::zero());
    if (!batch) return batch.error();
    if (batch->head.lineage != out.head.lineage || batch->head.trimmed > out.replay.at())
      return {Code::kUnavailable, "the log has changed while it was read"};
    for (const StoredEntry& stored : batch->entries) {
      const Result<LogEntry> entry = decode_entry(stored.entry.head, stored.entry.body);
      if (!entry) return bad_entry(stored.id, entry.error());
      out.replay.apply(out.registry, stored.id, entry->command);
    }
    if (batch->entries.empty()) return {};
  }
}

// Detects that the log no longer has entries that `earlier` had applied. Then appends a
// RestartCommand that moves all numbers beyond those of `earlier`. An engine without an earlier
// state cannot detect the loss.
Status go_on_from(RedisLog& log, const std::string& name, const EarlierLog& earlier, LoadedLog& out) {
  const RegistryState before = earlier.registry.state();
  // Does not rely on went_back() alone: another engine may have found the loss first, and have
  // raised the numbers already.
  const bool lost = earlier.replaced || out.head.lineage != earlier.lineage ||
                    out.replay.at() < earlier.replay.at() || went_back(before, out.registry.state());
  if (!lost) return {};
  SLIME_LOG(LogLevel::kError, "nanoctrl", "Redis has lost what was in it: the registry goes on from its ",
            out.registry.peer_count(), " peers at entry ", out.replay.at().to_string(), "; it had ",
            earlier.registry.peer_count(), " at ", earlier.replay.at().to_string());
  const std::uint64_t known = largest_number(before);
  // Appends no restart if the numbers are beyond ours already. A restart by another engine may not
  // be enough, because that engine may have known only smaller numbers.
  if (goes_on_from(out.registry.state(), known + 1)) return {};
  SLIME_TRY(log.append(out.head.lineage, {encode_entry({name, 0, RestartCommand{known + 1}})}));
  return catch_up(log, out);
}

}  // namespace

Status bad_entry(EntryId id, const Status& status) {
  return {status.code(), str("entry ", id.to_string(), " of the log: ", status.text(),
                             "; was it written by a later version of nanoctrl?")};
}

Status begin_log(const std::string& url, const Registry& registry) {
  const Result<redis::Address> address = redis::parse_url(url);
  if (!address) return address.error();
  redis::block_sigpipe();
  redis::Interrupt interrupt;
  Result<redis::Connection> connection = redis::Connection::open(*address, kBeginTime, interrupt);
  if (!connection) return connection.error();
  const LogKeys keys(address->prefix);
  RedisLog log(*connection, keys);
  const Result<std::optional<Snapshot>> there = log.load();
  if (!there) return there.error();
  if (*there)
    return {Code::kAlreadyExists, str("Redis has a registry under the prefix '", address->prefix,
                                      "': choose another one, or delete its keys")};
  return create(log, InstanceId::random().to_string(), registry);
}

Result<LoadedLog> load_log(RedisLog& log, const std::string& name, const RegistryOptions& options,
                           const EarlierLog& earlier) {
  Result<Snapshot> snapshot = find_snapshot(log, name, options, earlier);
  if (!snapshot) return snapshot.error();
  Result<Registry> registry = restore(*snapshot, options);
  if (!registry) return registry.error();
  LoadedLog out{snapshot->head, std::move(*registry), Replay(snapshot->head.at, snapshot->head.entries)};
  SLIME_TRY(catch_up(log, out));
  if (!earlier.lineage.empty()) SLIME_TRY(go_on_from(log, name, earlier, out));
  return out;
}

}  // namespace slime::ctrl
