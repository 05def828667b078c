#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace slime::transport::verbs {

// Settings of a device, its queue pairs and its memory. With -1, or an empty name, Slime chooses;
// the log and `slime doctor` show the choice and its reason. Drivers round the depth of a queue up
// to a power of two, and many of them first add a slot that stays empty: a depth of 2,048 would
// make a ring of 4,096.
struct Options {
  std::string device;            // SLIME_VERBS_DEVICE: "mlx5_0"; empty: the nearest active one
  int port = -1;                 // SLIME_VERBS_PORT: from 1
  int gid_index = -1;            // SLIME_VERBS_GID_INDEX
  int mtu = -1;                  // SLIME_VERBS_MTU: 256 to 4096, at most the port's
  int service_level = 0;         // SLIME_VERBS_SL: 0 to 15
  int traffic_class = 0;         // SLIME_VERBS_TRAFFIC_CLASS: 0 to 255
  int pkey_index = 0;            // SLIME_VERBS_PKEY_INDEX
  int hop_limit = 64;            // SLIME_VERBS_HOP_LIMIT: 1 to 255
  int timeout = -1;              // SLIME_VERBS_TIMEOUT: 4.096 us x 2^timeout for each try; 1 to 31
  int retry_count = -1;          // SLIME_VERBS_RETRY_COUNT: 0 to 7; these two by transport/outage.h
  int rnr_retry = 6;             // SLIME_VERBS_RNR_RETRY: 0 to 6 (7: for ever; refused)
  int min_rnr_timer = 12;        // SLIME_VERBS_MIN_RNR_TIMER: 1 to 31 (0: 655 ms; refused)
  int rd_atomic = 16;            // SLIME_VERBS_RD_ATOMIC: reads in flight of one queue pair
  int data_queue_pairs = 2;      // SLIME_VERBS_DATA_QPS: 1 to 8
  int send_queue_depth = 2047;   // SLIME_VERBS_SEND_DEPTH: work requests of one data queue pair
  int max_inline = 220;          // SLIME_VERBS_INLINE: bytes asked for; the device may grant fewer
  bool relaxed_ordering = true;  // SLIME_VERBS_RELAXED_ORDERING: of data regions
  bool flush_read = false;       // SLIME_VERBS_FLUSH_READ: a read after each write

  // Checks all fields. kInvalidArgument names the field and its bounds.
  [[nodiscard]] Status validate() const;
  // Reads the SLIME_VERBS_* variables above. kInvalidArgument: a bad value, or an unknown
  // SLIME_VERBS_ name.
  static Result<Options> from_environment();
};

}  // namespace slime::transport::verbs
