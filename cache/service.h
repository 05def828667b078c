#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "cache/method_bodies.h"
#include "cache/store.h"
#include "rpc/service.h"

namespace slime::cache {

// The methods of the service "cache" (README.md) over one Store. Independent of the agent. The
// handlers of the methods keep this object alive. Thread: any. Methods that grant reservations or
// leases run inline on the loop, as client_gone() does, so an ended client is granted nothing. The
// mutex is held for microseconds, and never while bytes are read.
class CacheService : public std::enable_shared_from_this<CacheService> {
 public:
  // `clock` must outlive the service.
  CacheService(StoreOptions options, bool verify_on_seal, const Clock& clock)
      : clock_(clock), verify_on_seal_(verify_on_seal), store_(options) {}

  // Adds the methods to `service`. `arena` must stay valid until close() has returned: a seal that
  // verifies reads it.
  Status add_methods(rpc::Service& service, Bytes arena);
  void client_gone(std::uint64_t connection);
  StoreStats stats();
  // Refuses all requests with kUnavailable from now on, and waits until no seal reads the arena any
  // more.
  void close();

 private:
  Result<wire::ReserveReply> reserve(const rpc::CallInfo& call, const wire::ReserveRequest& request);
  Result<wire::Outcomes> seal(const rpc::CallInfo& call, const std::vector<wire::SealItem>& items);
  Result<wire::LookupReply> lookup(const rpc::CallInfo& call, const std::string& space,
                                   const wire::Keys& keys);
  Result<std::vector<wire::Found>> peek(const std::string& space, const wire::Keys& keys);
  Status verify(ClientId client, const wire::SealItem& item);
  [[nodiscard]] Status admit(std::size_t objects) const SLIME_REQUIRES(mutex_);

  // Calls fn(store, element, now) for each element, under the lock. Returns one outcome for each
  // element.
  template <class Elements, class F>
  Result<wire::Outcomes> for_each(const Elements& elements, F fn);

  const Clock& clock_;
  const bool verify_on_seal_;
  Bytes arena_;
  Mutex mutex_;
  CondVar verified_;
  Store store_ SLIME_GUARDED_BY(mutex_);
  int verifying_ SLIME_GUARDED_BY(mutex_) = 0;
  bool closed_ SLIME_GUARDED_BY(mutex_) = false;
};

}  // namespace slime::cache
