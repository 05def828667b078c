#include "kv/fetch.h"

#include <algorithm>

#include "base/str.h"
#include "kv/broadcast_names.h"
#include "kv/cache_state.h"

namespace slime::kv {

// A parent, or the owner: one connection, and the regions looked up on it.
struct Fetcher::Source {
  std::uint64_t ticket = 0;  // 0: the owner
  Peer peer;
  std::vector<RemoteRegion> regions;
};

// Carries events from the loop to the thread of the fetch.
struct Fetcher::Inbox {
  explicit Inbox(std::shared_ptr<Signal> its_signal) : signal(std::move(its_signal)) {}
  void put(Answer& answer, Status status, std::uint64_t value) {
    {
      const MutexLock lock(mutex);
      answer.arrived = true;
      answer.status = std::move(status);
      answer.value = value;
    }
    signal->raise();
  }
  // Takes an answer that has arrived.
  bool take(Answer& answer, Answer& out) {
    const MutexLock lock(mutex);
    if (!answer.arrived) return false;
    out = std::exchange(answer, {});
    return true;
  }

  const std::shared_ptr<Signal> signal;
  Mutex mutex;
  std::vector<std::pair<std::uint64_t, Status>> ended SLIME_GUARDED_BY(mutex);  // reads, by chunk
  Answer news;    // of the call that waits for more chunks
  Answer alive;   // of the call that only finds out whether the parent answers
  Answer report;  // of the owner
};

// The reads from one parent.
struct Fetcher::Round {
  const Source& source;
  std::shared_ptr<Inbox> inbox;
  std::uint64_t available = 0;  // chunks that the parent has
  std::uint64_t next = 0;       // every chunk below is here or being read
  std::size_t reading = 0;
  TimePoint heard{};
  Status lost{};     // why no more chunks are read from this parent
  bool cut = false;  // the fetch is cancelled, and its regions are closed
};

Status Fetcher::run() {
  Status status = begin();
  if (status.ok()) status = read_all();
  if (status.ok()) status = confirm();
  if (!status.ok()) {
    task_.relay->stop();
    leave();
  }
  return status;
}

Status Fetcher::stopped() const {
  if (cancelled_) return Status(Code::kCancelled, "the replica was closed");
  if (left() <= std::chrono::milliseconds(1))
    return Status(Code::kDeadlineExceeded,
                  str("the fetch has ", ready_, " of ", chunks_.size(), " chunks at its timeout"));
  return {};
}

template <class T>
Result<T> Fetcher::outcome(Future<T> future) {
  future.on_done([signal = signal_] { signal->raise(); });
  while (!future.done()) {
    if (cancelled_) {
      future.cancel();
      return stopped();
    }
    signal_->wait_until(deadline_after(steady_clock().now(), left()));
  }
  return future.wait();
}

Result<Peer> Fetcher::connection_to(Peer peer, Nanos timeout) {
  if (const auto connected = outcome(peer.connect(timeout)); !connected) return connected.status();
  return peer.of_connection(timeout);
}

Status Fetcher::begin() {
  auto bound = connection_to(task_.owner, left());
  if (!bound) return std::move(bound).error();
  owner_ = std::move(*bound);
  service_ = owner_service(task_.name);
  while (true) {
    const auto encoded = outcome(owner_.with_timeout(left()).call<ByteVector>(service_, "offer"));
    if (encoded) {
      auto offer = Offer::decode(*encoded);
      if (!offer) return std::move(offer).error().with_context(owner_.name());
      offer_ = std::move(*offer);
      break;
    }
    if (encoded.status().code() != Code::kResourceExhausted)
      return encoded.status().with_context(str("the broadcast \"", task_.name, "\" of ", owner_.name()));
    signal_->wait_until(steady_clock().now() + limits::kAskAgain);
    SLIME_TRY(stopped());
  }
  SLIME_TRY(check_same_parts(task_.parts, offer_.parts));
  map_ = std::make_unique<ChunkMap>(offer_);
  chunks_.assign(map_->chunks(), Chunk::kMissing);
  task_.move->expect(map_->chunks(), offer_.total_bytes());
  task_.relay->begin(offer_);
  return {};
}

Status Fetcher::read_all() {
  std::uint64_t failed = 0;
  while (!all_here()) {
    const auto place = next_place(failed);
    if (!place) return place.status();
    ticket_ = place->ticket;
    Status status;
    auto source = connect(*place);
    if (source) {
      status = read_from(*source);
      if (source->ticket != 0)
        source->peer.one_way(replica_service(task_.name), "done", ticket_).then([](const Result<None>&) {});
    } else {
      status = source.status();
    }
    if (!fatal_.ok()) return fatal_;
    if (status.ok()) break;
    SLIME_TRY(stopped());
    if (place->parent == 0) {
      // The owner knows best why: a new version closes no region, but may have made it close.
      SLIME_TRY(confirm());
      return status;
    }
    failed = place->parent;
  }
  return {};
}

Result<Place> Fetcher::next_place(std::uint64_t failed) {
  while (true) {
    Peer owner = owner_.with_timeout(left());
    const auto encoded =
        outcome(ticket_ == 0 ? owner.call<ByteVector>(service_, "join", offer_.version, task_.agent.address())
                             : owner.call<ByteVector>(service_, "move", offer_.version, ticket_, failed));
    if (encoded) {
      auto place = Place::decode(*encoded);
      if (place && ticket_ != 0 && place->ticket != ticket_)
        return Status(Code::kInvalidArgument, "the owner gave this reader another ticket");
      return place;
    }
    if (encoded.status().code() != Code::kResourceExhausted) return encoded.status();
    signal_->wait_until(steady_clock().now() + limits::kAskAgain);
    SLIME_TRY(stopped());
  }
}

Result<Fetcher::Source> Fetcher::connect(const Place& place) {
  Source out{.ticket = place.parent, .peer = owner_, .regions = {}};
  if (place.parent != 0) {
    auto bound = connection_to(task_.agent.peer(place.address), bounded(offer_.patience));
    if (!bound) return std::move(bound).error();
    out.peer = std::move(*bound);
  }
  const std::string prefix = place.parent == 0 ? owner_regions(task_.name) : replica_regions(task_.name);
  const Nanos bound = place.parent == 0 ? left() : bounded(offer_.patience);
  std::vector<Future<RemoteRegion>> futures;
  futures.reserve(task_.parts.size());
  for (std::size_t i = 0; i < task_.parts.size(); ++i)
    futures.push_back(out.peer.lookup_region(str(prefix, i), bound));
  out.regions.reserve(futures.size());
  Status wrong;
  for (std::size_t i = 0; i < futures.size(); ++i) {
    auto region = outcome(std::move(futures[i]));
    if (region && region->length_bytes() < task_.parts[i].bytes)
      region = Status(Code::kInvalidArgument,
                      str(prefix, i, " has ", region->length_bytes(), " bytes, not ", task_.parts[i].bytes));
    if (region)
      out.regions.push_back(std::move(*region));
    else if (wrong.ok())
      wrong = region.status();
  }
  if (!wrong.ok()) return wrong;
  return out;
}

Status Fetcher::read_from(const Source& source) {
  Round round{.source = source, .inbox = std::make_shared<Inbox>(signal_), .available = 0, .next = ready_};
  if (source.ticket == 0) round.available = chunks_.size();
  round.heard = steady_clock().now();
  while (true) {
    take_events(round);
    if (round.lost.ok()) round.lost = stopped();
    if (round.lost.ok()) {
      if (all_here()) return {};
      ask(round);
      post_reads(round);
    }
    report_when_due(round);
    if (!fatal_.ok() && round.lost.ok()) round.lost = fatal_;
    if (!round.lost.ok() && round.reading == 0) return round.lost;
    if (cancelled_ && !std::exchange(round.cut, true))
      close_all(task_.regions, limits::kCancelGrace).ignore();
    signal_->wait_until(steady_clock().now() + bounded(offer_.patience / 8));
  }
}

void Fetcher::take_events(Round& round) {
  Inbox& inbox = *round.inbox;
  std::vector<std::pair<std::uint64_t, Status>> ended;
  {
    const MutexLock lock(inbox.mutex);
    ended.swap(inbox.ended);
  }
  for (auto& [chunk, status] : ended) {
    --round.reading;
    chunks_[chunk] = status.ok() ? Chunk::kHere : Chunk::kMissing;
    if (!status.ok()) {
      if (round.lost.ok()) round.lost = std::move(status).with_context(str("chunk ", chunk));
      continue;
    }
    const std::uint64_t bytes = map_->chunk_bytes(chunk);
    task_.move->arrived(bytes);
    if (round.source.ticket == 0) unreported_ += bytes;
  }
  const std::uint64_t before = ready_;
  while (!all_here() && chunks_[ready_] == Chunk::kHere) ++ready_;
  if (ready_ != before) task_.relay->advance(ready_);

  Answer answer;
  for (Answer* const call : {&inbox.news, &inbox.alive}) {
    if (!inbox.take(*call, answer)) continue;
    if (answer.status.ok() && answer.value > chunks_.size())
      answer.status = Status(Code::kCorrupt, "the parent says that it has more chunks than there are");
    if (answer.status.ok()) {
      round.heard = steady_clock().now();
      round.available = std::max(round.available, answer.value);
    } else if (round.lost.ok()) {
      round.lost = std::move(answer.status);
    }
  }
  if (inbox.take(inbox.report, answer)) {
    if (!answer.status.ok()) unreported_ += answer.value;
    // An owner that does not answer now may answer later: the timeout of the fetch decides.
    if (!answer.status.ok() && answer.status.code() != Code::kDeadlineExceeded)
      fatal_ = std::move(answer.status);
  }
}

void Fetcher::post_reads(Round& round) {
  while (round.reading < limits::kWindow && round.next < round.available) {
    const std::uint64_t chunk = round.next++;
    if (chunks_[chunk] != Chunk::kMissing) continue;
    round.lost = post(round, chunk);
    if (!round.lost.ok()) return;
  }
}

Status Fetcher::post(Round& round, std::uint64_t chunk) {
  std::vector<Copy> copies;
  for (const PartRange& range : map_->ranges(chunk))
    copies.push_back({task_.regions[range.part], range.offset, round.source.regions[range.part], range.offset,
                      range.bytes});
  const auto batch = round.source.peer.prepare(Transfer::kRead, copies);
  if (!batch) return batch.status();
  chunks_[chunk] = Chunk::kReading;
  ++round.reading;
  // A parent that is frozen moves no bytes: the stall bound ends its reads.
  batch->post({left(), offer_.patience}).then([inbox = round.inbox, chunk](const Result<None>& read) {
    {
      const MutexLock lock(inbox->mutex);
      inbox->ended.emplace_back(chunk, read.status());
    }
    inbox->signal->raise();
  });
  return {};
}

void Fetcher::ask(Round& round) {
  if (round.source.ticket == 0) return;
  const auto start = [&](Answer& answer, bool wait, Nanos timeout) {
    answer.pending = true;
    Peer peer = round.source.peer.with_timeout(timeout);
    peer.call<std::uint64_t>(replica_service(task_.name), "ready", offer_.source, offer_.version, ticket_,
                             round.available, wait)
        .then([inbox = round.inbox, &answer](const Result<std::uint64_t>& ready) {
          inbox->put(answer, ready.status(), ready ? *ready : 0);
        });
  };
  Inbox& inbox = *round.inbox;
  if (round.available < chunks_.size() && !inbox.news.pending) start(inbox.news, true, left());
  if (steady_clock().now() - round.heard > offer_.patience / 3 && !inbox.alive.pending)
    start(inbox.alive, false, bounded(offer_.patience * 2 / 3));
}

void Fetcher::report_when_due(Round& round) {
  Answer& answer = round.inbox->report;
  const TimePoint now = steady_clock().now();
  if (answer.pending || now - reported_ < offer_.patience / 4) return;
  answer.pending = true;
  reported_ = now;
  Peer owner = owner_.with_timeout(bounded(offer_.patience));
  // Not the last report: confirm() says that all chunks are here.
  const std::uint64_t ready = std::min<std::uint64_t>(ready_, chunks_.size() - 1);
  const std::uint64_t bytes = std::exchange(unreported_, 0);
  owner.call<void>(service_, "report", offer_.version, ticket_, ready, bytes)
      .then([inbox = round.inbox, bytes, &answer](const Result<None>& told) {
        inbox->put(answer, told.status(), bytes);
      });
}

Status Fetcher::confirm() {
  const auto told = outcome(owner_.with_timeout(left()).call<void>(service_, "report", offer_.version,
                                                                   ticket_, ready_, unreported_));
  if (!told) return told.status();
  unreported_ = 0;
  return {};
}

void Fetcher::leave() {
  if (ticket_ == 0) return;
  owner_.with_timeout(offer_.patience).one_way(service_, "leave", ticket_).then([](const Result<None>&) {});
}

}  // namespace slime::kv
