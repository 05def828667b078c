#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "transport/verbs/functions.h"

namespace slime::bench {

// What went through a watched table. The shapes belong to the thread that makes queue pairs.
struct Watched {
  std::vector<ibv_qp_cap> shapes;              // of the queue pairs that were made, in order, as asked for
  std::int64_t calls_ns = 0;                   // in create_qp and modify_qp, of the shapes' thread
  std::atomic<std::uint64_t> async_events{0};  // that name an error: of the queues, queue pairs or the device
};

// Slime's own calls into libibverbs, through a table that takes notes: the benchmark makes bare
// queue pairs of the very shapes that Slime asks for, and sees every error that the device reports.
// One for each process.
const transport::verbs::Functions& watch(const transport::verbs::Functions& real);
Watched& watched();

}  // namespace slime::bench
