#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/future.h"
#include "base/limits.h"
#include "base/result.h"
#include "cache/limits.h"
#include "cache/stats.h"

namespace slime {
class MemoryRegion;
class PeerAgent;
}  // namespace slime

namespace slime::cache {

struct CacheClientOptions {
  // Timeout of each step of a call: one request, or one piece of data.
  Nanos timeout = slime::limits::kOperationDeadline;
  // Number and size of the buffers of registered memory through which objects pass whose own memory
  // is not registered. Allocated as needed. kInvalidArgument for less than one buffer of 4 KiB. The
  // size also bounds each one-sided operation.
  std::size_t staging_buffers = limits::kStagingBuffers;
  std::size_t staging_buffer_bytes = limits::kStagingBufferBytes;
  [[nodiscard]] Status validate() const;
};

// The bytes of an object to put. They must stay valid and unchanged until the call returns.
struct Source {
  Source(Bytes any) : bytes(any) {}                         // copied through staging
  Source(std::string_view text) : bytes(as_bytes(text)) {}  // NOLINT
  // written without a copy
  Source(const MemoryRegion& in, std::uint64_t offset, std::uint64_t length);
  Bytes bytes;
  const MemoryRegion* region = nullptr;  // the region of the bytes; null: none
};

// The destination of an object's bytes. After a failed call its contents are undefined.
struct Target {
  Target(MutableBytes any) : bytes(any) {}  // copied through staging
  // read without a copy
  Target(const MemoryRegion& in, std::uint64_t offset, std::uint64_t length);
  MutableBytes bytes;
  const MemoryRegion* region = nullptr;
};

struct PutOptions {
  Nanos ttl = Nanos::zero();  // zero: until evicted
  bool replace = false;       // replace an existing object, instead of returning kAlreadyExists
};

struct PutItem {
  std::string_view key;
  Source source;
};
struct GetItem {
  std::string_view key;
  Target target;
};

struct ObjectInfo;

// A client of one cache. Returned bytes have passed two checks: that the lease was still valid
// after they arrived, and the checksum over namespace, key, version and bytes. An object is named
// by a namespace (up to 255 bytes) and a key (1 to 1,024 bytes).
//
// After a restart of the server, or a broken connection, a call retries once if that cannot execute
// anything twice. Errors: kNotFound: not in the cache (any more). kAlreadyExists: the object
// exists, and `replace` is false. kResourceExhausted: too few objects may be evicted. kUnavailable:
// no server; after a put with maybe_executed() the object may be in the cache. kCorrupt: the
// checksum does not match.
//
// Thread: any, several at once; not from a loop callback. The agent must outlive the client.
class CacheClient {
 public:
  // `server`: the cache's name or "host:port". Connects on first use. Errors: kInvalidArgument for
  // options outside their limits, or an empty `server`.
  static Result<CacheClient> create(PeerAgent& agent, std::string_view server,
                                    CacheClientOptions options = {});
  // Waits for the running asynchronous call; asynchronous calls that have not begun end with
  // kCancelled. No other call may be in progress. A callback of a future of this client may destroy
  // the client.
  ~CacheClient();
  CacheClient(CacheClient&&) noexcept;
  CacheClient& operator=(CacheClient&&) noexcept;

  Status put(std::string_view space, std::string_view key, Source source, PutOptions options = {});
  // Copies the object's bytes into `target`. Returns the length of the object, which may be less
  // than the target's; kInvalidArgument if it is more.
  Result<std::uint64_t> get(std::string_view space, std::string_view key, Target target);
  Result<ByteVector> get(std::string_view space, std::string_view key);

  // Like put() and get(), but run on a thread of the client, one after the other. The keys are
  // copied. The bytes of `source` and `target` must stay valid until the future is done; cancel()
  // has no effect. kResourceExhausted: too many calls wait already, or no thread can be started.
  Future<None> put_async(std::string_view space, std::string_view key, Source source,
                         PutOptions options = {});
  Future<std::uint64_t> get_async(std::string_view space, std::string_view key, Target target);
  Future<ByteVector> get_async(std::string_view space, std::string_view key);

  // Put and get many objects, with few calls and few one-sided operations. Return one outcome for
  // each item, in order.
  std::vector<Status> put_many(std::string_view space, std::span<const PutItem> items,
                               PutOptions options = {});
  std::vector<Result<std::uint64_t>> get_many(std::string_view space, std::span<const GetItem> items);
  std::vector<Result<ByteVector>> get_many(std::string_view space, std::span<const std::string_view> keys);

  Result<bool> exists(std::string_view space, std::string_view key);
  // Like get(), but without the bytes.
  Result<ObjectInfo> info(std::string_view space, std::string_view key);
  Status remove(std::string_view space, std::string_view key);
  // Pins an object, so that it is not evicted. The pin belongs to the object, not to the client
  // that set it, and passes to an object that replaces it.
  Status pin(std::string_view space, std::string_view key);
  Status unpin(std::string_view space, std::string_view key);
  std::vector<Status> remove_many(std::string_view space, std::span<const std::string_view> keys);
  Result<StoreStats> stats();

 private:
  class Impl;
  explicit CacheClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slime::cache
