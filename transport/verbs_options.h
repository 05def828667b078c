#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace slime::transport {

// Settings of a device, its queue pairs and its memory. For -1 or an empty name, Slime chooses the
// value; the log and `slime doctor` show the choice and its reason. A queue's depth should be just
// below a power of two: drivers round it up to a power of two, and many first add an empty slot, so
// that a depth of 2,048 makes a ring of 4,096.
struct VerbsOptions {
  std::string device;            // SLIME_VERBS_DEVICE: "mlx5_0"; empty: the nearest active one
  int port = -1;                 // SLIME_VERBS_PORT: from 1
  int gid_index = -1;            // SLIME_VERBS_GID_INDEX
  int mtu = -1;                  // SLIME_VERBS_MTU: 256 to 4096 bytes, at most the MTU of the port
  int service_level = 0;         // SLIME_VERBS_SL: 0 to 15
  int traffic_class = 0;         // SLIME_VERBS_TRAFFIC_CLASS: 0 to 255
  int pkey_index = 0;            // SLIME_VERBS_PKEY_INDEX
  int hop_limit = 64;            // SLIME_VERBS_HOP_LIMIT: 1 to 255
  int timeout = -1;              // SLIME_VERBS_TIMEOUT: each try takes 4.096 us x 2^(1 to 31)
  int retry_count = -1;          // SLIME_VERBS_RETRY_COUNT: 0 to 7; -1: by transport/outage.h
  int rnr_retry = 6;             // SLIME_VERBS_RNR_RETRY: 0 to 6; refuses 7 (retries for ever)
  int min_rnr_timer = 12;        // SLIME_VERBS_MIN_RNR_TIMER: 1 to 31; refuses 0 (655 ms)
  int rd_atomic = 16;            // SLIME_VERBS_RD_ATOMIC: reads and atomics in flight per pair
  int data_queue_pairs = 2;      // SLIME_VERBS_DATA_QPS: 1 to 8
  int send_queue_depth = 2047;   // SLIME_VERBS_SEND_DEPTH: work requests of one data queue pair
  int max_inline = 220;          // SLIME_VERBS_INLINE: bytes wanted; the device may grant fewer
  bool relaxed_ordering = true;  // SLIME_VERBS_RELAXED_ORDERING: of data regions
  bool flush_read = false;       // SLIME_VERBS_FLUSH_READ: a read after each write

  // Checks all fields. kInvalidArgument names the field and its bounds.
  [[nodiscard]] Status validate() const;
  // Reads the SLIME_VERBS_* variables named above. kInvalidArgument: a bad value, or a variable
  // SLIME_VERBS_* that does not exist.
  static Result<VerbsOptions> from_environment();
  // Sets the field with this name, such as "gid_index", from a text. kInvalidArgument: no such
  // field, or a bad value.
  Status set(std::string_view field, std::string_view value);
};

}  // namespace slime::transport
