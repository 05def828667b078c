#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/random.h"
#include "base/str.h"
#include "base/unique_fd.h"
#include "tests/transport/verbs/fake_fabric.h"

// The implementation of the fake fabric: the objects behind its handles, and the engine. The
// fabric's one mutex guards everything.
namespace slime::transport::testing::fake {

struct Device : ibv_device {
  Device() : ibv_device{} {}
  FakeDeviceOptions options;
  bool dead = false;
  bool frozen = false;
  bool holding = false;  // hold_completions()
  FakeCounters counters;
  std::uint32_t last_number = 0;                                     // of the last destroyed queue pair
  std::unordered_map<std::uint32_t, struct QueuePair*> queue_pairs;  // live queue pairs by number
  [[nodiscard]] FakePortOptions* port(int number) {
    if (number < 1 || static_cast<std::size_t>(number) > options.ports.size()) return nullptr;
    return &options.ports[static_cast<std::size_t>(number - 1)];
  }
};

// Objects are kept until the fabric ends, so that a use after destruction is reported instead of
// crashing.
struct Context : ibv_context {
  Context() : ibv_context{} {}
  bool alive = true;
  bool dead = false;  // the device had a fatal error since it was opened
  UniqueFd events_fd;
  std::deque<ibv_async_event> events;
  int users = 0;
  [[nodiscard]] Device& parent() const { return *static_cast<Device*>(device); }
};
struct Domain : ibv_pd {
  Domain() : ibv_pd{} {}
  bool alive = true;
  int users = 0;
};
struct Memory : ibv_mr {
  Memory() : ibv_mr{} {}
  bool alive = true;
  std::uint64_t iova = 0;
  std::byte* host = nullptr;
  unsigned access = 0;
};
struct Channel : ibv_comp_channel {
  Channel() : ibv_comp_channel{} {}
  bool alive = true;
  UniqueFd events_fd;
  std::deque<struct CompletionQueue*> events;
  int users = 0;
};
struct QueuePair;
struct ReceiveQueue;

struct Entry {
  ibv_wc wc{};
  bool solicited = false;
  QueuePair* qp = nullptr;
  std::uint64_t frees = 0;      // polling it frees the send slots of `qp` below this number
  ReceiveQueue* srq = nullptr;  // polling it frees a slot of this queue
};
enum class Armed { kNo, kAny, kSolicited };
struct CompletionQueue : ibv_cq {
  CompletionQueue() : ibv_cq{} {}
  bool alive = true;
  std::deque<Entry> entries;
  std::deque<Entry> held;
  Armed armed = Armed::kNo;
  bool overflowed = false;
  std::uint64_t delivered = 0;  // completion events delivered and not acknowledged
  std::uint64_t async_delivered = 0;
  int users = 0;
};
struct Receive {
  std::uint64_t wr_id = 0;
  std::vector<ibv_sge> sges;
  std::uint64_t length = 0;
};
struct ReceiveQueue : ibv_srq {
  ReceiveQueue() : ibv_srq{} {}
  bool alive = true;
  std::deque<Receive> receives;
  std::uint32_t occupied = 0;  // posted receives whose completion was not polled yet
  std::uint32_t max_wr = 0;
  std::uint32_t max_sge = 0;
  std::uint64_t async_delivered = 0;
  int users = 0;
};
// A posted work request of a send queue.
struct Work {
  ibv_send_wr wr{};  // without its pointers
  std::vector<ibv_sge> sges;
  ByteVector inlined;
  bool is_inline = false;
  bool signaled = false;
  std::uint64_t length = 0;
  std::uint64_t done = 0;      // bytes moved
  std::uint64_t sequence = 0;  // of its send slot
  ibv_wc_status fault = IBV_WC_SUCCESS;
  bool performed = false;    // executed at the responder; only the answer is missing
  std::uint64_t result = 0;  // of an atomic
  int silence = 0;           // steps without an answer
  int rnr_tries = 0;
  std::uint64_t rnr_until = 0;  // step of the next try
};
struct QueuePair : ibv_qp {
  QueuePair() : ibv_qp{} {}
  bool alive = true;
  bool queued = false;  // in the fabric's list of queue pairs with work
  ibv_qp_state now = IBV_QPS_RESET;
  ibv_qp_attr attributes{};
  ibv_qp_cap capacity{};
  bool signal_all = false;
  bool last_event_raised = false;
  bool established = false;
  std::deque<Work> sends;
  std::uint64_t posted = 0;  // send slots ever used
  std::uint64_t freed = 0;   // send slots ever freed
  std::optional<Receive> receiving;
  std::deque<Receive> taken;   // to be flushed
  std::uint64_t flush_at = 0;  // step of the flush
  std::uint64_t async_delivered = 0;
  const char* silence = "";
  [[nodiscard]] Device& device() const { return static_cast<Context*>(context)->parent(); }
  [[nodiscard]] bool dead() const { return static_cast<Context*>(context)->dead; }
};

struct CallFault {
  Call call;
  int error;
  int nth;
};
struct WorkFault {
  ibv_wc_status status;
  int nth;
  WorkFilter filter;
};
struct DmabufMemory {
  UniqueFd fd;
  std::uint64_t inode = 0;
  MutableBytes bytes;
};

// The result of one try at a work request.
struct Outcome {
  enum Kind { kDone, kMore, kWait, kFailed } kind;
  ibv_wc_status status = IBV_WC_SUCCESS;
};
using Segments = std::vector<MutableBytes>;

class Fabric {
 public:
  explicit Fabric(FakeOptions given);
  ~Fabric();

  // ---- fake_fabric.cc
  void misuse(std::string text);
  int injected(Call call);  // the errno that this call must fail with, or 0
  Device* find(std::string_view name);
  void pump();

  // Returns null, and records a misuse, when `handle` is not a live object of the fabric.
  template <class Object, class Handle>
  Object* use(Handle* handle, const char* call) {
    auto* object = static_cast<Object*>(handle);
    if (object != nullptr && object->alive) return object;
    misuse(str(call, object == nullptr ? ": null handle" : ": the handle was destroyed before"));
    return nullptr;
  }
  template <class Object>
  Object* keep(std::vector<std::unique_ptr<Object>>& list) {
    list.push_back(std::make_unique<Object>());
    return list.back().get();
  }

  // ---- fake_devices.cc
  void raise(Context& context, const ibv_async_event& event);
  void raise_port(Device& device, ibv_event_type type, int port);
  void forget_events(Context& context, const void* element);

  // ---- fake_memory.cc
  std::uint32_t new_key();
  // Returns the host address of a range; null for an unknown key, another domain, out of bounds, or
  // missing rights.
  std::byte* local(const ibv_pd* pd, std::uint32_t lkey, std::uint64_t address, std::uint64_t length,
                   unsigned rights);
  std::byte* remote(const ibv_pd* pd, std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                    unsigned rights);
  // Gathers bytes [offset, offset + length) of a list of SGEs; false: `out` has the bytes before
  // the bad SGE.
  bool gather(const ibv_pd* pd, const std::vector<ibv_sge>& sges, std::uint64_t offset, std::uint64_t length,
              unsigned rights, Segments& out);

  // ---- fake_completions.cc
  void push(CompletionQueue& cq, Entry entry);
  void write_entry(CompletionQueue& cq, Entry entry);
  void release_held(Device& device);
  void settle_entry(const Entry& entry);
  void forget_entries(CompletionQueue& cq, const QueuePair& qp);

  // ---- fake_queue_pairs.cc
  std::uint32_t new_number(Device& device);
  void to_error(QueuePair& qp);
  void flush_receives(QueuePair& qp);
  // Returns the result of a call that destroyed an object of this context.
  [[nodiscard]] int ended(const ibv_context* context) const {
    return static_cast<const Context*>(context)->dead ? options.dead_end_error : 0;
  }
  void drop_work(QueuePair& qp);

  // ---- fake_transfer.cc
  int post(QueuePair& qp, ibv_send_wr& wr);
  bool step();  // false: nothing moved
  void enqueue(QueuePair& qp);
  void complete_send(QueuePair& qp, const Work& work, ibv_wc_status status);
  void complete_receive(QueuePair& qp, const Receive& receive, ibv_wc_status status, const Work* work);
  [[nodiscard]] bool busy() const { return !active.empty() || !flushing.empty(); }

  std::mutex mutex;
  const FakeOptions options;
  verbs::Functions table;
  Rng rng;
  std::vector<std::string> misuses;
  std::vector<CallFault> call_faults;
  std::vector<WorkFault> work_faults;
  std::map<std::pair<Device*, Device*>, LinkState> links;

  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<std::unique_ptr<Domain>> domains;
  std::vector<std::unique_ptr<Memory>> memories;
  std::vector<std::unique_ptr<Channel>> channels;
  std::vector<std::unique_ptr<CompletionQueue>> completion_queues;
  std::vector<std::unique_ptr<ReceiveQueue>> receive_queues;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs;
  std::vector<DmabufMemory> dmabufs;

  std::unordered_map<std::uint32_t, Memory*> keys;  // every key ever given, local and remote
  std::unordered_set<std::uint32_t> numbers;        // every queue pair number ever given
  std::uint64_t pinned = 0;
  std::uint64_t steps = 0;
  std::vector<QueuePair*> active;
  std::vector<QueuePair*> flushing;

  std::unordered_set<Call> held;
  const void* held_memory = nullptr;     // whose registration is held
  const void* refused_memory = nullptr;  // whose registration fails
  int held_calls = 0;
  std::condition_variable let_go;
  std::condition_variable acknowledged;  // signalled when an asynchronous event is acknowledged

  std::condition_variable work_arrived;
  bool stopping = false;
  std::thread pump_thread;  // last: it uses everything above

 private:
  bool run(QueuePair& qp);
  Outcome attempt(QueuePair& qp, Work& work, std::size_t& budget);
  Outcome silence(QueuePair& qp, Work& work, const char* why);
  Outcome wait_for_receive(QueuePair& qp, QueuePair& peer, Work& work);
  Outcome perform(QueuePair& qp, QueuePair& peer, Work& work, std::size_t& budget);
  Outcome send(QueuePair& qp, QueuePair& peer, Work& work, std::size_t& budget);
  Outcome write(QueuePair& qp, QueuePair& peer, Work& work, std::size_t& budget);
  Outcome read(QueuePair& qp, QueuePair& peer, Work& work, std::size_t& budget);
  Outcome atomic(QueuePair& peer, Work& work);
  Outcome place_result(QueuePair& qp, Work& work);
  Outcome refuse(QueuePair& peer, ibv_wc_status status, ibv_event_type event);
  bool source(QueuePair& qp, Work& work, std::uint64_t length, Segments& out);
  QueuePair* find_peer(QueuePair& qp, const char*& why);
};

inline bool carries_imm(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
inline bool is_send(ibv_wr_opcode opcode) { return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM; }
inline bool is_write(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
inline bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
inline bool fetches(ibv_wr_opcode opcode) { return opcode == IBV_WR_RDMA_READ || is_atomic(opcode); }
constexpr std::uint64_t kAtomicBytes = 8;

// Holds the lock of the current fabric for one call.
class Entered {
 public:
  Entered();
  explicit operator bool() const { return fabric_ != nullptr; }
  Fabric* operator->() const { return fabric_; }
  Fabric& operator*() const { return *fabric_; }
  // Waits while calls of this kind are held.
  void pass(Call call);
  // Waits, like libibverbs, until all events of an object to be destroyed are acknowledged.
  void wait_acknowledged(const std::uint64_t& delivered, const char* call);

 private:
  Fabric* const fabric_;
  std::unique_lock<std::mutex> lock_;
};

// One function per file: fills its part of the table.
void fill_devices(verbs::Functions& table);
void fill_memory(verbs::Functions& table);
void fill_completions(verbs::Functions& table);
void fill_queue_pairs(verbs::Functions& table);
void fill_posting(verbs::Functions& table);

// For functions that return a pointer.
inline std::nullptr_t failed(int error) {
  errno = error;
  return nullptr;
}
// Makes a descriptor that is readable once per signal(); used for channels and contexts.
UniqueFd make_signal_fd();
void signal(const UniqueFd& fd);
// Takes one signal. Blocks unless the descriptor is non-blocking; then returns false without a
// signal.
bool wait_signal(int fd);

}  // namespace slime::transport::testing::fake
