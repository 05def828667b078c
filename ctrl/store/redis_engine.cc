#include "ctrl/store/redis_engine.h"

#include <algorithm>
#include <array>

#include "base/ids.h"
#include "base/log.h"
#include "base/random.h"
#include "base/str.h"
#include "base/thread.h"
#include "ctrl/store/redis_load.h"

namespace slime::ctrl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Nanos kSubmitTime = seconds(5);
constexpr Nanos kStartTime = seconds(5);
// Timeout of each wait for Redis. Shorter than kSubmitTime, so that a waiting submit() gets the
// cause as its error.
constexpr Nanos kRedisTime = seconds(2);
constexpr Nanos kReadWait = seconds(1);
constexpr std::size_t kReadCount = 512;
// A batch with more bytes makes the next read ask for fewer entries.
constexpr std::size_t kReadBytes = std::size_t{4} << 20;
constexpr Nanos kBackoffMin = milliseconds(20);
constexpr Nanos kFencedRetry = seconds(1);

TimePoint now() { return steady_clock().now(); }
// Returns how long renewals are collected before one entry is appended for them. Also the shortest
// time between two ticks that expire leases.
Nanos gather_time(Nanos ttl) { return std::min<Nanos>(milliseconds(200), ttl / 10); }
Nanos backoff_max(Nanos ttl) { return std::clamp<Nanos>(ttl / 10, kBackoffMin, seconds(1)); }

std::uint64_t random_seed() {
  std::uint64_t out = 0;
  random_bytes(std::as_writable_bytes(std::span(&out, 1)));
  return out;
}

// Returns whether the log cannot be used although Redis answers; waiting does not help then.
bool fenced(const Status& status) { return !status.ok() && status.code() != Code::kUnavailable; }

}  // namespace

Result<std::unique_ptr<Engine>> RedisEngine::open(const std::string& url, RegistryOptions options,
                                                  const Clock& clock, SnapshotPolicy policy) {
  Result<redis::Address> address = redis::parse_url(url);
  if (!address) return address.error();
  options.ttl = std::chrono::round<milliseconds>(options.ttl);
  std::unique_ptr<RedisEngine> out(new RedisEngine(std::move(*address), options, clock, policy));
  out->start();
  MutexLock lock(out->mutex_);
  out->settled_.wait_until(out->mutex_, deadline_after(now(), kStartTime), [&]() SLIME_REQUIRES(out->mutex_) {
    const bool loading = out->failure_.text().find("LOADING") != std::string::npos;  // Redis is
                                                                                     // starting
    return out->failure_.ok() || (out->failure_.code() != Code::kCancelled && !loading);
  });
  Status status = out->failure_;
  lock.unlock();
  if (status.ok()) return std::unique_ptr<Engine>(std::move(out));
  if (status.code() == Code::kCancelled) status = Status(Code::kUnavailable, "it does not answer");
  return std::move(status).with_context(str("the store ", out->describe()));
}

RedisEngine::RedisEngine(redis::Address address, RegistryOptions options, const Clock& clock,
                         SnapshotPolicy policy)
    : Engine(Registry(options), clock),
      address_(std::move(address)),
      keys_(address_.prefix),
      name_(InstanceId::random().to_string()),
      failure_(Code::kCancelled, "it has just begun"),
      failed_at_(now()),
      backoff_(kBackoffMin),
      snapshots_(policy, random_seed()),
      tick_jitter_(Rng(random_seed()).below(50)) {}

void RedisEngine::start() {
  reader_.thread = make_thread([this] { run_reader(); });
  writer_.thread = make_thread([this] { run_writer(); });
  snapshotter_.thread = make_thread([this] { run_snapshots(); });
}

RedisEngine::~RedisEngine() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  const std::array workers = {&reader_, &writer_, &snapshotter_};
  for (Worker* worker : workers) {
    worker->wakes.notify_all();
    worker->interrupt.cancel();
  }
  for (Worker* worker : workers) {
    if (worker->thread.joinable()) worker->thread.join();
  }
}

Status RedisEngine::writable() const {
  const MutexLock lock(mutex_);
  return refusal();
}

Status RedisEngine::ready() {
  const MutexLock lock(mutex_);
  if (!failure_.ok()) return refusal();
  const TimePoint time = now();
  if (!tick_asked_) {
    if (time - appended_at_ < kReadyFor) return {};
    tick_asked_ = true;
    tick_asked_at_ = time;
    writer_.wakes.notify_one();
  }
  const bool told =
      settled_.wait_for(mutex_, tick_asked_at_ + kReadyWait - time,
                        [this]() SLIME_REQUIRES(mutex_) { return !tick_asked_ || !failure_.ok(); });
  if (!failure_.ok()) return refusal();
  return told ? Status() : Status(Code::kUnavailable, str("the store ", describe(), " does not answer"));
}

std::pair<EntryId, std::uint64_t> RedisEngine::position() const {
  const MutexLock lock(mutex_);
  return {replay_.at(), replay_.entries()};
}

// Returns the error with which commands are refused during a failure; OK if there is no failure.
Status RedisEngine::refusal() const {
  if (failure_.ok()) return {};
  return {Code::kUnavailable, str("the store ", describe(), ": ", failure_.text())};
}

EncodedEntry RedisEngine::encode(std::uint64_t number, Command command) const {
  return encode_entry({name_, number, std::move(command)});
}

Outcome RedisEngine::submit(const Command& command) {
  if (const auto* heartbeat = std::get_if<HeartbeatCommand>(&command)) {
    if (std::optional<Outcome> out = answer_heartbeat(*heartbeat)) return std::move(*out);
  }
  Outcome refused;
  MutexLock lock(mutex_);
  const std::uint64_t number = commands_.next_number();
  lock.unlock();
  EncodedEntry entry = encode(number, command);
  // Checks that the entry can be decoded: an entry that cannot be read would stop all engines.
  if (const Result<LogEntry> decoded = decode_entry(entry.head, entry.body); !decoded) {
    refused.status = Status(Code::kInvalidArgument, decoded.error().text());
    return refused;
  }
  lock.lock();
  refused.status = refusal();
  if (refused.status.ok()) refused.status = commands_.check_room();
  if (!refused.status.ok()) return refused;
  CommandQueue::Waiter waiter;
  commands_.add(number, std::move(entry), waiter);
  writer_.wakes.notify_one();
  return wait_for(number, waiter);
}

Outcome RedisEngine::wait_for(std::uint64_t number, CommandQueue::Waiter& waiter) {
  if (waiter.done.wait_until(mutex_, deadline_after(now(), kSubmitTime),
                             [&] { return waiter.outcome.has_value(); }))
    return std::move(*waiter.outcome);
  const bool unsent = commands_.remove(number);
  Outcome out;
  out.status = Status(Code::kUnavailable, str("the store ", describe(), " has not answered in time"))
                   .with_maybe_executed(!unsent);
  return out;
}

// Answers a heartbeat from this engine's registry. Returns nullopt if the heartbeat must go through
// the log: it may be valid although it does not match, because entries of other engines may not
// have arrived yet.
std::optional<Outcome> RedisEngine::answer_heartbeat(const HeartbeatCommand& command) {
  const MutexLock lock(mutex_);
  if (fenced(failure_)) return std::nullopt;
  Outcome out = registry_.check(command);
  // Refuses a wrong session at once: the session of an incarnation never changes, so no later entry
  // can make it right.
  const bool wrong = command.by.kind == Proof::Kind::kSession && out.status.code() == Code::kPermissionDenied;
  if (wrong) return out;
  if (!out.status.ok()) return std::nullopt;
  if (renewals_.empty()) {
    renewals_since_ = now();
    writer_.wakes.notify_one();
  }
  renewals_[{command.scope, command.name}] = command.incarnation;
  if (!failure_.ok() && now() - failed_at_ > registry_.options().ttl / limits::kHeartbeatsPerTtl)
    out.status = refusal();
  return out;
}

void RedisEngine::disconnect(const Status& status) {
  const bool news = failure_.ok() || failure_.text() != status.text();
  if (failure_.ok()) failed_at_ = now();
  failure_ = status;
  session_ = 0;
  commands_.fail_all(refusal());
  // Logs a new failure only after the first session has begun: before that, open() returns the
  // error.
  if (news && sessions_ != 0)
    SLIME_LOG(LogLevel::kError, "nanoctrl", refusal().text(), "; changes are refused until it works again");
  reader_.interrupt.kick();
  writer_.interrupt.kick();
  settled_.notify_all();
  writer_.wakes.notify_one();
}

// The writer

void RedisEngine::run_writer() {
  redis::block_sigpipe();
  std::optional<redis::Connection> connection;
  std::uint64_t session = 0;  // session of the connection
  MutexLock lock(mutex_);
  while (true) {
    wait_for_work();
    if (stopping_) return;
    if (session != session_) {
      connection.reset();
      session = session_;
    }
    if (session == 0) continue;
    const std::vector<EncodedEntry> entries = take_work();
    if (entries.empty()) continue;
    const std::string lineage = lineage_;
    lock.unlock();
    const Status status = append(connection, lineage, entries);
    lock.lock();
    if (stopping_) return;
    if (session != session_) continue;  // the reader has reported the failure
    appended_at_ = now();
    tick_asked_ = false;
    settled_.notify_all();
    if (!status.ok()) {
      disconnect(status);
    } else if (!failure_.ok()) {
      SLIME_LOG(LogLevel::kInfo, "nanoctrl", describe(), " is there, at entry ", replay_.at().to_string());
      failure_ = Status();
      backoff_ = kBackoffMin;
      settled_.notify_all();
    }
  }
}

void RedisEngine::wait_for_work() {
  if (session_ == 0) {
    writer_.wakes.wait(mutex_, [this]() SLIME_REQUIRES(mutex_) { return stopping_ || session_ != 0; });
    return;
  }
  while (!stopping_ && session_ != 0) {
    const TimePoint due = work_due();
    if (due <= now()) return;
    if (due == kNever) {
      writer_.wakes.wait(mutex_);
    } else {
      writer_.wakes.wait_until(mutex_, due);
    }
  }
}

TimePoint RedisEngine::work_due() const {
  // Work is due at once if commands are queued or ready() asks for a tick. Also during a failure:
  // an entry that can be appended shows that Redis works again.
  if (!commands_.empty() || !failure_.ok() || tick_asked_) return TimePoint{};
  const Nanos ttl = registry_.options().ttl;
  TimePoint due = renewals_.empty() ? kNever : renewals_since_ + gather_time(ttl);
  if (registry_.peer_count() == 0) return due;
  // Entries of any engine advance the log's time, so a tick is due only this long after the last
  // entry. Redis' clock has advanced at least as much as ours since that entry.
  const Nanos interval = tick_interval(ttl) / 100 * static_cast<int>(100 + tick_jitter_);
  due = std::min(due, std::max(applied_at_, appended_at_) + interval);
  const TimePoint end = applied_at_ + (registry_.next_expiry() - replay_.at().time()) + milliseconds(1);
  return std::min(due, std::max(end, appended_at_ + gather_time(ttl)));
}

std::vector<EncodedEntry> RedisEngine::take_work() {
  std::vector<EncodedEntry> out;
  const TimePoint time = now();
  // Puts renewals before commands, because renewals may have waited longest.
  if (!renewals_.empty() &&
      (!failure_.ok() || renewals_since_ + gather_time(registry_.options().ttl) <= time)) {
    RenewCommand command;
    for (auto it = renewals_.begin(); it != renewals_.end();) {
      command.peers.push_back({it->first.first, it->first.second, it->second});
      it = renewals_.erase(it);
      if (command.peers.size() == kRenewalsPerEntry || it == renewals_.end())
        out.push_back(encode(commands_.next_number(), std::exchange(command, {})));
    }
  }
  commands_.take(out);
  if (out.empty() && work_due() <= time) out.push_back(encode(commands_.next_number(), TickCommand{}));
  return out;
}

// Connects after the start. Converts kInvalidArgument, for an unusable certificate file, to
// kUnavailable: the file was usable at the start, so it is probably being replaced, and a retry
// helps.
Result<redis::Connection> RedisEngine::connect_again(redis::Interrupt& interrupt) const {
  Result<redis::Connection> out = redis::Connection::open(address_, kRedisTime, interrupt);
  if (!out && out.error().code() == Code::kInvalidArgument)
    return Status(Code::kUnavailable, out.error().text());
  return out;
}

Status RedisEngine::append(std::optional<redis::Connection>& connection, const std::string& lineage,
                           const std::vector<EncodedEntry>& entries) {
  if (!connection) {
    Result<redis::Connection> opened = connect_again(writer_.interrupt);
    if (!opened) return opened.error();
    connection.emplace(std::move(*opened));
  }
  Status status = RedisLog(*connection, keys_).append(lineage, entries);
  // kAborted: Redis has another log now. Reported as kUnavailable, so that the reader connects
  // again and loads that log.
  if (status.code() == Code::kAborted) return {Code::kUnavailable, status.text()};
  return status;
}

// The reader

void RedisEngine::run_reader() {
  redis::block_sigpipe();
  MutexLock lock(mutex_);
  while (!stopping_) {
    const std::uint64_t last = sessions_;
    lock.unlock();
    const Status status = follow(last == 0);
    lock.lock();
    if (stopping_) return;
    // The writer has ended this session and reported the cause, so the reader's error is not
    // reported again.
    const bool kicked = session_ == 0 && sessions_ != last && status.code() == Code::kUnavailable;
    if (!kicked || failure_.ok()) disconnect(status);
    const Nanos wait = fenced(status) ? kFencedRetry : backoff_;
    backoff_ = std::min(backoff_ * 2, backoff_max(registry_.options().ttl));
    reader_.wakes.wait_for(mutex_, wait, [this]() SLIME_REQUIRES(mutex_) { return stopping_; });
  }
}

Status RedisEngine::follow(bool first) {
  Result<redis::Connection> connection =
      first ? redis::Connection::open(address_, kRedisTime, reader_.interrupt)
            : connect_again(reader_.interrupt);
  if (!connection) return connection.error();
  RedisLog log(*connection, keys_);
  SLIME_TRY(resume(log));
  MutexLock lock(mutex_);
  const std::uint64_t session = session_ = ++sessions_;
  writer_.wakes.notify_one();
  std::size_t count = kReadCount;
  while (session == session_ && !stopping_) {
    const EntryId at = replay_.at();
    lock.unlock();
    const Result<RedisLog::Batch> batch = log.read(at, count, kReadWait);
    if (!batch) return batch.error();
    std::size_t bytes = 0;
    for (const StoredEntry& stored : batch->entries) bytes += stored.entry.size();
    count = bytes > kReadBytes ? std::max<std::size_t>(count / 4, 1) : std::min(count * 2, kReadCount);
    SLIME_TRY(check(*batch));
    SLIME_TRY(apply_batch(*batch));
    lock.lock();
    snapshots_.note_batch(batch->head, bytes, replay_);
    if (snapshots_.due()) snapshotter_.wakes.notify_one();
  }
  return {Code::kUnavailable, "the connection is made anew"};
}

// Checks that the batch comes from our log, and that no entry between our last entry and the batch
// was removed.
Status RedisEngine::check(const RedisLog::Batch& batch) const {
  const MutexLock lock(mutex_);
  if (batch.head.lineage != lineage_)
    return {Code::kUnavailable, batch.head.lineage.empty() ? "the log is gone from Redis"
                                                           : "the log in Redis is another one now"};
  if (batch.head.trimmed > replay_.at())
    return {Code::kUnavailable, "entries were removed from the log before they came here"};
  return {};
}

Status RedisEngine::apply_batch(const RedisLog::Batch& batch) {
  std::vector<LogEntry> entries;
  entries.reserve(batch.entries.size());
  Status bad;
  for (const StoredEntry& stored : batch.entries) {
    Result<LogEntry> entry = decode_entry(stored.entry.head, stored.entry.body);
    if (!entry) {
      bad = bad_entry(stored.id, entry.error());
      break;
    }
    entries.push_back(std::move(*entry));
  }
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Outcome out = replay_.apply(registry_, batch.entries[i].id, entries[i].command);
    tell(out);
    if (!out.touched.empty()) snapshots_.note_change(replay_.entries());
    if (entries[i].engine == name_) commands_.finish(entries[i].number, std::move(out));
  }
  if (!entries.empty()) {
    last_head_ = batch.entries[entries.size() - 1].entry.head;
    applied_at_ = now();
    // Wakes the writer to compute again when its next work is due, which depends on the log's
    // position.
    writer_.wakes.notify_one();
  }
  return bad;
}

// Prepares to read after our last entry, if Redis still has our log with that entry. Else loads the
// log's snapshot.
Status RedisEngine::resume(RedisLog& log) {
  MutexLock lock(mutex_);
  const std::string head = last_head_;
  const EntryId at = replay_.at();
  lock.unlock();
  if (head.empty()) return load(log);
  const Result<RedisLog::Batch> next = log.read(at, 1, Nanos::zero());
  if (!next) return next.error();
  if (!check(*next).ok()) return load(log);
  const Result<std::optional<StoredEntry>> last = log.entry(at);
  if (!last) return last.error();
  return *last && (*last)->entry.head == head ? Status() : load(log, true);
}

// Replaces the registry with the state in Redis. Not checked by clang's thread safety analysis:
// reads members without the lock, which is safe because only this thread, the reader, changes them.
Status RedisEngine::load(RedisLog& log, bool replaced) SLIME_NO_THREAD_SAFETY_ANALYSIS {
  Result<LoadedLog> loaded =
      load_log(log, str(name_, ":new"), registry_.options(), {lineage_, registry_, replay_, replaced});
  if (!loaded) return loaded.error();
  const MutexLock lock(mutex_);
  commands_.fail_all(refusal());
  if (loaded->head.lineage != lineage_) renewals_.clear();
  lineage_ = loaded->head.lineage;
  replay_ = loaded->replay;
  last_head_.clear();
  applied_at_ = now();
  snapshots_.restart(loaded->head, replay_.entries());
  reset(std::move(loaded->registry));
  return {};
}

// Snapshots

void RedisEngine::run_snapshots() {
  redis::block_sigpipe();
  MutexLock lock(mutex_);
  while (!stopping_) {
    snapshotter_.wakes.wait(
        mutex_, [this]() SLIME_REQUIRES(mutex_) { return stopping_ || (snapshots_.due() && failure_.ok()); });
    if (stopping_) return;
    snapshots_.clear();
    const SnapshotHead head{lineage_, replay_.at(), replay_.entries(), {}};
    Snapshot snapshot{head, describe_rules(registry_.options()), {}};
    const RegistryState state = registry_.state();
    const std::uint64_t replaced = snapshots_.entries();
    lock.unlock();
    const Status status = write_snapshot(std::move(snapshot), replaced, state);
    lock.lock();
    if (stopping_) return;
    if (status.ok()) {
      snapshots_.clear();
      continue;
    }
    SLIME_LOG(LogLevel::kWarning, "nanoctrl", describe(), ": no snapshot could be written: ", status.text());
    snapshotter_.wakes.wait_for(mutex_, kFencedRetry, [this]() SLIME_REQUIRES(mutex_) { return stopping_; });
  }
}

Status RedisEngine::write_snapshot(Snapshot snapshot, std::uint64_t replaced, const RegistryState& state) {
  snapshot.chunks = encode_chunks(encode_records(state));
  Result<redis::Connection> connection = connect_again(snapshotter_.interrupt);
  if (!connection) return connection.error();
  return RedisLog(*connection, keys_).advance(snapshot, replaced, name_);
}

}  // namespace slime::ctrl
