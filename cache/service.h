#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "cache/store.h"
#include "cache/wire.h"
#include "rpc/service.h"

namespace slime::cache {

// The service "cache": the methods of README.md over one Store. Knows no agent. The handlers keep it alive.
// Thread: any. The methods that grant something run inline, so that they and client_gone() come in order: a
// client that is gone is granted nothing any more. The mutex is held for microseconds, and never while bytes
// are looked at.
class CacheService : public std::enable_shared_from_this<CacheService> {
 public:
  // `clock` outlives it.
  CacheService(StoreOptions options, bool verify_on_seal, const Clock& clock)
      : clock_(clock), verify_on_seal_(verify_on_seal), store_(options) {}

  // `arena` is read by seals that verify; it stays valid until close() has returned.
  Status add_methods(rpc::Service& service, Bytes arena);
  void client_gone(std::uint64_t connection);
  StoreStats stats();
  // From now on everything answers kUnavailable, and once this returns the arena is not read any more.
  void close();

 private:
  Result<wire::ReserveReply> reserve(const rpc::CallInfo& call, const wire::ReserveRequest& request);
  Result<wire::Outcomes> seal(const rpc::CallInfo& call, const std::vector<wire::SealItem>& items);
  Result<wire::LookupReply> lookup(const rpc::CallInfo& call, const std::string& space,
                                   const wire::Keys& keys);
  Result<std::vector<wire::Found>> peek(const std::string& space, const wire::Keys& keys);
  Status verify(ClientId client, const wire::SealItem& item);
  [[nodiscard]] Status admit(std::size_t objects) const;

  // One outcome for each element, by fn(element, now) under the lock.
  template <class Elements, class F>
  Result<wire::Outcomes> for_each(const Elements& elements, F fn);

  const Clock& clock_;
  const bool verify_on_seal_;
  Bytes arena_;
  std::mutex mutex_;
  std::condition_variable verified_;
  Store store_;
  int verifying_ = 0;
  bool closed_ = false;
};

}  // namespace slime::cache
