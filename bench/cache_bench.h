#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace slime::bench {

struct CacheOptions {
  std::string provider = "auto";
  std::string mode = "thread";
  std::string operation = "get";         // get, put
  std::uint64_t size = 64 << 10;         // of an object
  std::uint32_t batch = 1;               // objects of one get_many or put_many; 1: get or put
  std::uint64_t working_set = 16 << 20;  // bytes of objects that are there: gone round and round
  double seconds = 2;
  std::uint32_t rounds = 1;
};

// Objects in and out of a cache server in another process, from and to registered memory. The report as one
// JSON object on one line.
Result<std::string> measure_cache(const CacheOptions& options);

// That process: the server that slime-cache is made of, with `bytes` for objects. Says "READY <address>",
// answers what a limit needs, ends with its stdin.
int run_cache_server(const CacheOptions& options);

}  // namespace slime::bench
