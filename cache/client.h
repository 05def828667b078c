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
  Nanos deadline = slime::limits::kOperationDeadline;  // of each step of a call: a request, a piece of data
  // Memory that is registered once, as it is needed, for what comes from or goes to memory that is not. At
  // least one buffer of 4 KiB, whatever is asked for; a buffer's size is also that of one operation at most.
  std::size_t staging_buffers = limits::kStagingBuffers;
  std::size_t staging_buffer_bytes = limits::kStagingBufferBytes;
};

// Where the bytes of an object come from. They stay valid and unchanged until the call returns.
struct Source {
  Source(Bytes any) : bytes(any) {}                         // NOLINT: copied through staging
  Source(std::string_view text) : bytes(as_bytes(text)) {}  // NOLINT
  Source(const MemoryRegion& in, std::uint64_t offset, std::uint64_t length);  // written straight from there
  Bytes bytes;
  const MemoryRegion* region = nullptr;  // that the bytes lie in
};

// Where the bytes of an object go. Whatever a failed call left there is worth nothing.
struct Target {
  Target(MutableBytes any) : bytes(any) {}  // NOLINT: copied through staging
  Target(const MemoryRegion& in, std::uint64_t offset, std::uint64_t length);  // read straight into it
  MutableBytes bytes;
  const MemoryRegion* region = nullptr;
};

struct PutOptions {
  Nanos ttl = Nanos::zero();  // zero: until evicted
  bool replace = false;       // of an object that is there; else that answers kAlreadyExists
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

// One cache, seen from one agent. Bytes that it returns passed a check of the lease clock after they arrived
// and of the checksum over namespace, key, version and bytes. Objects are named by a namespace (up to 255
// bytes) and a key (1 to 1,024 bytes).
//
// A restart of the server, or a broken connection, is retried once inside, where that cannot do anything
// twice. Errors: kNotFound: not in the cache (any more). kAlreadyExists. kResourceExhausted: the cache is
// full of what may not be evicted. kUnavailable: no server; for put with maybe_executed() it may be in the
// cache. kCorrupt: the bytes are not what was put.
//
// Thread: any, several at once; not from a loop callback. The agent outlives it.
class CacheClient {
 public:
  CacheClient(PeerAgent& agent, std::string_view server, CacheClientOptions options = {});
  ~CacheClient();  // no call may be under way
  CacheClient(const CacheClient&) = delete;
  CacheClient& operator=(const CacheClient&) = delete;

  Status put(std::string_view space, std::string_view key, Source source, PutOptions options = {});
  // The length of the object, which may be less than the target's; kInvalidArgument if it is more.
  Result<std::uint64_t> get(std::string_view space, std::string_view key, Target target);
  Result<ByteVector> get(std::string_view space, std::string_view key);

  // Many objects with a few calls and few one-sided operations; one outcome for each, in order.
  std::vector<Status> put_many(std::string_view space, std::span<const PutItem> items,
                               PutOptions options = {});
  std::vector<Result<std::uint64_t>> get_many(std::string_view space, std::span<const GetItem> items);
  std::vector<Result<ByteVector>> get_many(std::string_view space, std::span<const std::string_view> keys);

  Result<bool> exists(std::string_view space, std::string_view key);
  // Without reading it.
  Result<ObjectInfo> info(std::string_view space, std::string_view key);
  Status remove(std::string_view space, std::string_view key);
  // A pinned object is not evicted; the pin is the object's, whoever set it, and passes to what replaces it.
  Status pin(std::string_view space, std::string_view key);
  Status unpin(std::string_view space, std::string_view key);
  std::vector<Status> remove_many(std::string_view space, std::span<const std::string_view> keys);
  Result<StoreStats> stats();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace slime::cache
