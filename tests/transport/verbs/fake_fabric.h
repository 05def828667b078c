#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "transport/verbs/functions.h"

namespace slime::transport::testing {

namespace fake {
class Fabric;
}

struct FakeGid {
  ibv_gid gid{};
  ibv_gid_type type = IBV_GID_TYPE_ROCE_V2;
  unsigned interface_index = 0;
};
ibv_gid ipv4_gid(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d);  // ::ffff:a.b.c.d
ibv_gid ipv6_gid(std::uint64_t prefix, std::uint64_t interface_id);                // in host order

struct FakePortOptions {
  ibv_port_state state = IBV_PORT_ACTIVE;
  std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  ibv_mtu max_mtu = IBV_MTU_4096;
  ibv_mtu active_mtu = IBV_MTU_1024;
  std::uint16_t lid = 0;
  std::uint32_t max_message_bytes = 1U << 30;
  std::vector<FakeGid> gids;  // a zero GID is an empty entry of the table
  std::vector<std::uint16_t> pkeys{0xffff};
};

struct FakeDeviceOptions {
  std::string name;
  std::vector<FakePortOptions> ports;  // port 1 first
  ibv_device_attr attributes{};        // phys_port_cnt is filled in
  std::uint32_t max_inline = 256;
};

struct FakeOptions {
  std::vector<FakeDeviceOptions> devices;
  // A step of the fabric moves about this many bytes for each queue pair with work.
  std::size_t bytes_per_step = 64 * 1024;
  // Every post_send and every poll_cq runs one step. If false, only progress() and the pump thread
  // run steps.
  bool step_on_calls = true;
  // A thread that runs steps while there is work, for tests whose loops sleep.
  bool pump_thread = false;
  // Whether completions of a destroyed queue pair stay in the completion queue, as with rxe, or are
  // removed, as with mlx5.
  bool keep_stale = false;
  // Number of receives that a failing queue pair has taken out of the shared receive queue. They
  // complete as flush errors this many steps later, followed by the last-WQE event. Receives that
  // are not flushed when the queue pair is destroyed are lost.
  std::size_t taken_receives = 0;
  int flush_steps = 0;
  bool last_receive_event = true;  // IBV_EVENT_QP_LAST_WQE_REACHED; some drivers send none
  // The error of calls that destroy an object of a dead context. The object is destroyed
  // nevertheless.
  int dead_end_error = 0;
  // A new queue pair gets the number of the queue pair that its device destroyed last, if free.
  bool reuse_numbers = false;
  int retry_steps = 8;  // steps without an answer until the next try
  int rnr_steps = 2;    // steps without a receive until the next try
  std::uint64_t memlock_bytes = std::numeric_limits<std::uint64_t>::max();
  bool has_iova2 = true;
  bool has_dmabuf = true;
  std::uint64_t seed = 1;  // for keys and queue pair numbers

  // `count` devices fake0, fake1, ... with one RoCE port each. GID table: 0 and 1 link local (v1,
  // v2), 2 and 3 the IPv4 address 10.9.0.(1 + number) (v1, v2), 4 and 5 empty. The netdev is the
  // loopback interface.
  static FakeOptions roce(int count = 2);
  // `count` devices with InfiniBand ports: LIDs from 1, one GID.
  static FakeOptions infiniband(int count = 2);
};
// Returns the attributes of a typical adapter.
ibv_device_attr default_attributes();

struct FakeCounters {
  std::uint64_t doorbells = 0;      // post_send calls that posted something
  std::uint64_t work_requests = 0;  // posted to send queues
  std::uint64_t receives = 0;       // posted to shared receive queues
  std::uint64_t completions = 0;    // written to completion queues
  std::uint64_t rnr_events = 0;     // messages that found no receive at this device
  std::uint64_t notifications = 0;  // completion events
  std::uint64_t bytes = 0;          // moved on behalf of this device's work requests
  std::size_t cq_high_water = 0;
};
struct FakeObjects {
  int contexts = 0;
  int domains = 0;
  int regions = 0;
  int channels = 0;
  int completion_queues = 0;
  int receive_queues = 0;
  int queue_pairs = 0;
  bool operator==(const FakeObjects&) const = default;
};
// The current state of a live queue pair, read without its owner.
struct FakeQueuePair {
  std::string device;
  std::uint32_t number = 0;
  ibv_qp_attr attributes{};  // qp_state is the actual state
  ibv_qp_cap capacity{};
  std::size_t waiting = 0;   // work requests that the fabric has not finished
  std::size_t occupied = 0;  // send slots in use
  std::string silence;       // why its last try got no answer; empty: it got an answer
};

// Calls that can fail. Posts count per work request, so that a chain can fail in its middle.
enum class Call {
  kAny,
  kOpenDevice,
  kQueryDevice,
  kQueryPort,
  kQueryGid,
  kAllocPd,
  kRegister,
  kCreateChannel,
  kCreateCq,
  kRequestNotify,
  kCreateSrq,
  kPostReceive,
  kCreateQp,
  kModifyQp,
  // These calls can be held, and never fail.
  kConnectQp,  // ibv_modify_qp to RTR
  kFailQp,     // ... to the error state
  kDestroyQp,
  kPostSend,
};
struct WorkFilter {
  std::string device;  // empty: any
  std::optional<ibv_wr_opcode> opcode;
};
enum class LinkState {
  kUp,
  kDown,      // nothing arrives
  kAcksLost,  // requests arrive and are executed, but no answer comes back
};

// A fabric inside the process, behind libibverbs' table of functions: devices, and reliable
// connections between their queue pairs that move bytes and fail as the InfiniBand specification
// says. Strict where adapters differ: refuses calls that only some adapters accept, and records
// calls that are a bug on every adapter as misuses. Measures time in steps. One at a time in a
// process. Thread: any.
class FakeFabric {
 public:
  explicit FakeFabric(FakeOptions options = FakeOptions::roce());
  // Fails the running test for every misuse not taken and every object not destroyed.
  ~FakeFabric();
  FakeFabric(const FakeFabric&) = delete;
  FakeFabric& operator=(const FakeFabric&) = delete;

  [[nodiscard]] const verbs::Functions& functions() const;
  // Waits for closed objects that are still ending on other threads.
  static void await_ends();

  // ---- progress
  // Runs at most `steps` steps; returns false when there is nothing to do.
  bool progress(int steps = 1);
  // Runs until nothing is left to do, or all work waits (for a peer, a receive, a link).
  void settle();

  // ---- inspection
  [[nodiscard]] FakeCounters counters(std::string_view device = {}) const;  // empty: sum over all
  [[nodiscard]] FakeObjects objects() const;
  // Returns the number of live registrations that begin at this address.
  [[nodiscard]] int registrations(const void* data) const;
  [[nodiscard]] std::vector<FakeQueuePair> queue_pairs(std::string_view device = {}) const;
  // Returns the receives of the device that no queue pair has taken.
  [[nodiscard]] std::size_t receives_waiting(std::string_view device) const;
  // Returns the misuses so far, and clears them, so that they do not fail the test.
  [[nodiscard]] std::vector<std::string> take_misuses();

  // ---- faults
  // Makes the nth such call from now fail with `error`.
  void fail_call(Call call, int error, int nth = 1);
  // Holds calls of this kind (kOpenDevice, or a queue pair call except to INIT and RTS) until
  // released. Holding a call for longer than kHeldBound is a bug of the test.
  void hold_call(Call call, bool hold = true);
  // The same for registrations of memory at this address, which is not a dma-buf; null: releases
  // them.
  void hold_registration(const void* data);
  // Registrations of memory at this address fail with ENOMEM; null: none.
  void refuse_registration(const void* data);
  [[nodiscard]] int held_calls() const;  // calls that wait now
  // The nth matching work request posted from now completes with `status`, without any effect.
  void fail_work(ibv_wc_status status, int nth = 1, WorkFilter filter = {});
  [[nodiscard]] int faults_left() const;  // fail_call() and fail_work() faults that have not
                                          // happened yet
  void set_link(std::string_view a, std::string_view b, LinkState state);
  // A frozen device neither sends nor answers, and its peers' retries do not run out.
  void freeze(std::string_view device, bool frozen = true);
  // While held, the device writes no completions.
  void hold_completions(std::string_view device, bool hold = true);
  [[nodiscard]] bool holds_completions() const;  // of any device
  // Simulates a fatal error: the device's queue pairs flush their work, every later call except
  // destruction fails with EIO, and peers get no answers. Raises IBV_EVENT_DEVICE_FATAL.
  void kill(std::string_view device);
  // Allows the device to be opened again. Its earlier objects stay dead.
  void revive(std::string_view device);

  // ---- events
  void raise(std::string_view device, ibv_event_type type, int port = 1);
  // Both raise the event of the change.
  void set_port_state(std::string_view device, ibv_port_state state, int port = 1);
  void set_gids(std::string_view device, std::vector<FakeGid> gids, int port = 1);

  // ---- device memory
  struct Dmabuf {
    int fd = -1;  // owned by the caller
    MutableBytes bytes;
  };
  // Makes memory of the fabric that can be registered only by its descriptor.
  Dmabuf make_dmabuf(std::size_t bytes);

 private:
  const std::unique_ptr<fake::Fabric> fabric_;
};

}  // namespace slime::transport::testing
