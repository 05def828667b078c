#include "integrations/nixl/remote.h"

#include <utility>

#include "base/str.h"
#include "integrations/nixl/limits.h"

namespace slime::nixl {
namespace {

// Counts several look-ups. Calls `done` once, after the last of them has ended, with the first
// failure or with success.
struct Asking {
  explicit Asking(std::size_t questions) : left(questions) {}
  std::function<void(Status)> done;  // set before the questions
  Mutex mutex;
  std::size_t left SLIME_GUARDED_BY(mutex);
  Status failure SLIME_GUARDED_BY(mutex);

  void end(Status status) {
    Status outcome;
    {
      const MutexLock lock(mutex);
      if (!status.ok() && failure.ok()) failure = std::move(status);
      if (--left > 0) return;
      outcome = failure;
    }
    done(std::move(outcome));
  }
};

}  // namespace

std::shared_ptr<RemoteMemory> Remote::memory(std::uint64_t number, std::uintptr_t base,
                                             std::uint64_t length_bytes) {
  return std::make_shared<RemoteMemory>(shared_from_this(), info_.region_name(number), base, length_bytes);
}

std::optional<Remote::Regions> Remote::known(std::span<const std::shared_ptr<RemoteMemory>> memories) {
  Regions out;
  out.reserve(memories.size());
  const MutexLock lock(mutex_);
  for (const auto& memory : memories) {
    if (!memory->region_) return std::nullopt;
    out.push_back(*memory->region_);
  }
  return out;
}

void Remote::ask(Memories memories, std::function<void(Result<Regions>)> done) {
  Memories unknown;
  {
    const MutexLock lock(mutex_);
    for (const auto& memory : memories) {
      if (!memory->region_) unknown.push_back(memory);
    }
  }
  auto asking = std::make_shared<Asking>(unknown.size() + 1);
  asking->done = [self = shared_from_this(), memories = std::move(memories),
                  done = std::move(done)](Status status) {
    if (!status.ok()) return done(std::move(status));
    auto regions = self->known(memories);
    if (!regions)  // forgotten meanwhile
      return done(Status(Code::kAborted, str("the connection to ", self->info_.address, " ended")));
    done(*std::move(regions));
  };
  Peer peer = peer_;
  for (const auto& memory : unknown) {
    peer.lookup_region(memory->name, patience_)
        .then([self = shared_from_this(), asking, memory](Result<RemoteRegion> region) {
          Status status = region.status();
          if (region && region->length_bytes() < memory->length_bytes) {
            status = Status(Code::kCorrupt, str("region ", memory->name, " has ", region->length_bytes(),
                                                " bytes, and the metadata says ", memory->length_bytes));
          } else if (region) {
            const MutexLock lock(self->mutex_);
            memory->region_ = *std::move(region);
          }
          asking->end(std::move(status));
        });
  }
  asking->end({});
}

void Remote::forget(std::span<const std::shared_ptr<RemoteMemory>> memories) {
  const MutexLock lock(mutex_);
  for (const auto& memory : memories) memory->region_.reset();
}

Status Remote::notify(ByteVector body, std::function<void(Status)> done) {
  const std::size_t bytes = body.size();
  {
    const MutexLock lock(mutex_);
    if (notification_bytes_ > 0 && notification_bytes_ + bytes > limits::kNotificationBytes)
      return Status(Code::kResourceExhausted, str(notification_bytes_, " bytes of notifications to ",
                                                  info_.address, " have not left yet: it takes none"));
    notification_bytes_ += bytes;
  }
  Peer peer = peer_;
  peer.one_way_bytes(kService, kNotify, std::move(body), patience_)
      .then([self = shared_from_this(), bytes, done = std::move(done)](const Result<None>& sent) {
        {
          const MutexLock lock(self->mutex_);
          self->notification_bytes_ -= bytes;
        }
        done(sent.status());
      });
  return {};
}

void Remote::measured(std::uint64_t bytes, Nanos took) {
  const auto mix = [](std::optional<double>& old, double now) {
    old = old ? *old + limits::kEstimateWeight * (now - *old) : now;
  };
  const auto ns = static_cast<double>(took.count());
  const MutexLock lock(mutex_);
  if (bytes < limits::kManyBytes)
    mix(short_ns_, ns);
  else
    mix(ns_per_byte_, ns / static_cast<double>(bytes));
}

Remote::Estimate Remote::estimate(std::uint64_t bytes) const {
  const MutexLock lock(mutex_);
  const bool known = bytes < limits::kManyBytes ? short_ns_.has_value() : ns_per_byte_.has_value();
  const double ns = short_ns_.value_or(limits::kGuessedShortNs) +
                    static_cast<double>(bytes) * ns_per_byte_.value_or(limits::kGuessedNsPerByte);
  return {Nanos(static_cast<Nanos::rep>(ns)), Nanos(static_cast<Nanos::rep>(known ? ns / 2 : ns))};
}

}  // namespace slime::nixl
