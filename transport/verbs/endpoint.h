#pragma once

#include <array>
#include <memory>
#include <vector>

#include "transport/endpoint.h"
#include "transport/endpoint/credit_ledger.h"
#include "transport/endpoint/inbox.h"
#include "transport/endpoint/life.h"
#include "transport/endpoint/post_checks.h"
#include "transport/queue.h"
#include "transport/time_bounds.h"
#include "transport/verbs/errors.h"
#include "transport/verbs/parameters.h"
#include "transport/verbs/port.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/side_channel.h"

namespace slime::transport::verbs {

struct Chain;

// One connected pair: a message queue pair, data queue pairs, and the handshake's TCP connection as a side
// channel. Thread: the loop.
//
// The first post after something came hands its work to the device at once; others only queue, and run(),
// which the port calls once for each burst of completions or posts, hands chains to it. No callback runs
// inside a post.
// Posting is in endpoint.cc, messages in endpoint_send.cc, one-sided work in endpoint_data.cc, what comes in,
// and credits, in endpoint_receive.cc, closing and time in endpoint_end.cc.
class VerbsEndpoint final : public Endpoint, public CreditOwner, private SideChannelHandler {
 public:
  struct Parts {
    std::shared_ptr<PortState> port;
    Handle place;
    std::shared_ptr<CreditAccount> account;
    std::vector<std::shared_ptr<QueuePair>> queue_pairs;  // in INIT
    std::vector<QueuePairRoute> routes;                   // of each
    Parameters ours;
    Parameters peer;
    ibv_mtu mtu{};
    std::unique_ptr<Wire> side;
    Introduction who;
  };
  explicit VerbsEndpoint(Parts parts);
  ~VerbsEndpoint() override;

  void set_receiver(Receiver& receiver) override;
  Status send(std::span<const Bytes> parts, Operation& operation, SendOptions options) override;
  Status read(std::span<const Copy> copies, Operation& operation) override;
  Status write(std::span<const Copy> copies, Operation& operation) override;
  Status write_with_imm(std::span<const Copy> copies, std::uint32_t imm, Operation& operation) override;
  Status fetch_add(const AtomicTarget& target, std::uint64_t add, Operation& operation) override;
  Status compare_swap(const AtomicTarget& target, std::uint64_t expected, std::uint64_t desired,
                      Operation& operation) override;
  Result<RemoteRegion> import_region(const RegionDescriptor& descriptor) override;
  void close(Nanos bound) override;
  void reset(Status reason) override;
  void hold_credit() override { given_.hold(); }
  void release_credits(std::uint32_t count) override;
  void set_awaiting(bool awaiting) override;
  [[nodiscard]] bool closed() const override { return life_.told_closed(); }
  [[nodiscard]] Status error() const override { return life_.error(); }
  [[nodiscard]] bool unreached() const override { return unreached_; }
  [[nodiscard]] std::uint32_t max_message_bytes() const override { return max_message_bytes_; }
  [[nodiscard]] std::uint64_t id() const override { return id_; }
  [[nodiscard]] std::size_t in_flight() const override { return messages_.size() + operations_.size(); }
  [[nodiscard]] std::uint64_t credits() const override;
  [[nodiscard]] TimePoint last_progress() const override { return stalls_.last_progress(); }
  [[nodiscard]] EndpointCounters counters() const override { return counters_; }
  [[nodiscard]] std::string describe() const override;

  // ---- for the port
  void run();
  void schedule() {
    if (in_burst_) return;
    port_->hurry();
    schedule_housekeeping();
  }
  void on_slot_free() noexcept override;
  // False for a completion that fits nothing that is in flight.
  bool on_sent(const WorkId& id, const ibv_wc& completion);
  void on_received(std::uint32_t queue_pair, const ibv_wc& completion, ReceiveSlot& slot);
  // Null: any. `now`: their uses have ended when it returns.
  void reset_if_using(const RegionUses* uses, bool now);

  // Returns whether the peer's hello has come: both sides' queue pairs carry messages. Also for tests.
  [[nodiscard]] bool reached() const { return got_hello_; }

  // ---- for its queue pairs
  void on_connected(const Status& outcome);
  void on_pairs_failed();
  [[nodiscard]] bool drained() const { return work_in_flight_ == 0; }
  // Lets go of them, and says how many work requests and which send buffers they still have.
  std::uint32_t leave_pairs(std::vector<std::uint32_t>& buffers);
  void on_pairs_gone();

 private:
  enum class Kind : std::uint8_t { kRead, kWrite, kFetchAdd, kCompareSwap };

  struct OutMessage {
    Operation* operation = nullptr;
    TimePoint deadline = kNever;
    std::uint64_t barrier = 0;  // goes after all one-sided operations with a smaller sequence
    std::uint32_t buffer = 0;
    std::uint32_t bytes = 0;
  };
  struct OneSided {
    Handle self;
    Operation* operation = nullptr;
    TimeBounds bounds;
    std::uint64_t sequence = 0;
    std::span<const Copy> batch;
    struct Atomic {  // a batch of one
      Copy copy;
      std::uint64_t compare_add = 0;
      std::uint64_t swap = 0;
    };
    std::optional<Atomic> atomic;
    std::size_t next_copy = 0;      // the first copy that is not wholly posted
    std::uint64_t copy_offset = 0;  // bytes of it that are
    std::uint32_t in_flight = 0;    // work requests
    std::uint32_t imm = 0;
    Kind kind = Kind::kWrite;
    bool has_imm = false;
    bool striped = false;
    bool flush_read = false;  // still to be posted
    bool has_imm_posted = false;
    bool moved = false;     // a byte was posted
    bool started = false;   // the device knows of it
    bool posted = false;    // wholly
    bool reported = false;  // as stuck
    bool left = false;      // the device is done with it, and its regions are free
    Status failure;
    [[nodiscard]] bool succeeded() const { return posted && in_flight == 0 && failure.ok(); }
    [[nodiscard]] std::span<const Copy> copies() const {
      if (left) return {};
      return atomic ? std::span(&atomic->copy, 1) : batch;
    }
  };
  struct Lane {  // a data queue pair and what waits for it
    std::shared_ptr<QueuePair> pair;
    Queue<Handle> backlog;
  };
  struct Goodbye {
    std::uint64_t messages = 0;
    std::uint64_t notifications = 0;
  };

  void schedule_housekeeping() {
    if (!in_burst_ && !std::exchange(scheduled_, true)) port_->schedule(*this);
  }
  void schedule_after_completion();

  // ---- posting (endpoint.cc)
  [[nodiscard]] bool working() const { return life_.working(); }
  // What no post gets by, or OK.
  Status refusal() {
    SLIME_CHECK(loop_->in_loop());
    return life_.takes_posts() && in_flight() < limits::kMaxOperations ? Status() : explain_refusal();
  }
  Status explain_refusal();
  Status need_credit(std::uint64_t reserve = 0);
  Status check_copies(std::span<const Copy> copies, Rights need) const;
  Status admit(Kind kind, std::span<const Copy> copies, bool notifies, Operation& operation,
               OneSided*& record);
  [[nodiscard]] std::uint32_t least_busy_lane() const;
  void enqueue(OneSided& record, bool striped);
  Status post_atomic(Kind kind, const AtomicTarget& target, std::uint64_t compare_add, std::uint64_t swap,
                     Operation& operation);
  TimePoint take_deadline(const Operation& operation);
  TimeBounds take_bounds(const Operation& operation);
  [[nodiscard]] bool worth_striping(std::span<const Copy> copies) const;
  [[nodiscard]] bool wants_flush_read(std::span<const Copy> copies) const;
  static VerbsRegion& region_of(const Copy& copy);
  void complete(Operation& operation, Status status);
  void complete_one_sided(OneSided& done, Status status);

  // ---- the end (endpoint_end.cc)
  void break_now(Status reason);
  void break_fabric(Status reason);
  [[nodiscard]] bool carried() const;
  void mark_end(QueuePair& pair, std::uint32_t number);
  void end();
  void tell_closed();
  void finish_close(Status leftover);
  void advance_close();
  [[nodiscard]] std::string path() const;
  [[nodiscard]] Status peer_gone(const Status& cause) const;
  [[nodiscard]] Status unavailable(const Status& cause) const;
  void on_timer(TimePoint now, Nanos pause);
  bool expire(TimePoint now, TimePoint& next);
  void expire_messages(TimePoint now, TimePoint& next);
  void report_stuck(OneSided& operation) const;

  // ---- sending (endpoint_send.cc)
  void flush();
  bool send_now(std::span<const Bytes> parts, std::uint32_t total, Operation& operation);
  void send_messages();
  void add_message(const OutMessage& message, Chain& chain);
  void send_grant();
  bool send_control();
  void send_nothing();
  bool barrier_passed(std::uint64_t barrier);
  bool post_one(ibv_send_wr& request, bool signaled);
  std::uint32_t post_chain(QueuePair& pair, std::uint32_t number, Chain& chain);
  void account(QueuePair& pair, const QueuePair::Owner& owner);
  void complete_sent();
  void settle();
  void tell_waiting();
  [[nodiscard]] std::uint64_t heard() const {
    return counters_.completions + counters_.messages_received + counters_.notifications_received;
  }
  void arm_probe();
  void on_probe();

  // ---- one-sided work (endpoint_data.cc)
  void post_data();
  bool post_lane(std::uint32_t number);
  bool post_single(OneSided& operation, std::uint32_t number);
  std::uint32_t fill_chain(Lane& lane, Chain& chain, std::uint32_t most);
  bool next_request(OneSided& operation, Chain& chain);
  std::uint64_t gather(OneSided& operation, ibv_send_wr& request, std::uint64_t most);
  void add_atomic(OneSided& operation, Chain& chain);
  bool next_tail(OneSided& operation, Chain& chain);

  // ---- receiving (endpoint_receive.cc)
  void on_side_frame(const SideFrame& frame) noexcept override;
  void on_side_broken(Status reason) noexcept override;
  void on_message_slot(const ibv_wc& completion, ReceiveSlot& slot);
  void on_notification(const ibv_wc& completion, ReceiveSlot& slot);
  void on_grant(std::uint64_t limit);
  void look_for_grants();
  void starve();
  void on_starved(std::uint64_t limit);
  void on_credit_return(std::uint64_t count);
  void return_idle_credits(TimePoint now, TimePoint& next);
  void corrupt(std::string_view what);
  void check_goodbye();
  void count_error(ibv_wc_status status);
  [[nodiscard]] Status flushed() const;
  [[nodiscard]] Status explain(const FailedWork& work, const ibv_wc& completion) const;
  void fail_work(const WorkId& id, const ibv_wc& completion);
  void complete_finished(bool succeeded, bool all);
  void finish_one(const QueuePair::Owner& owner);

  const std::shared_ptr<PortState> port_;
  const std::shared_ptr<Loop> loop_;
  const Handle place_;
  const Parameters ours_;
  const Parameters peer_;
  const ibv_mtu mtu_;
  const Introduction who_;
  const std::uint64_t id_;
  const std::uint32_t max_message_bytes_;
  std::unique_ptr<SideChannel> side_;
  std::string side_text_;
  std::shared_ptr<PairGroup> pairs_;
  std::shared_ptr<QueuePair> messages_pair_;
  std::vector<Lane> lanes_;
  EndpointCounters counters_;

  const PostChecks checks_;
  EndpointLife life_{EndpointLife::State::kConnecting};
  bool scheduled_ = false;
  bool in_burst_ = false;
  // What is posted next leaves at once: the first post after something came, for which somebody may be
  // waiting. Those after it share doorbells in the next turn.
  bool prompt_ = false;
  bool waiting_ = false;
  bool awaiting_ = false;
  bool want_room_ = false;
  bool connected_ = false;  // our queue pairs are
  bool hello_due_ = false;
  bool got_ready_ = false;
  bool got_hello_ = false;
  bool unreached_ = false;
  std::optional<Goodbye> goodbye_;  // the peer closed
  Status lost_;                     // the side channel broke
  std::uint64_t lost_at_poll_ = 0;

  // ---- our operations
  Queue<OutMessage> messages_;
  struct Sent {
    Operation* operation = nullptr;
    bool accepted = false;
  };
  std::vector<Sent> sent_;  // messages that the device has, to be completed outside the flush
  std::vector<Sent> completing_;
  std::vector<Handle> without_work_;  // batches without a byte, likewise
  SlotMap<OneSided> operations_{limits::kMaxOperations};
  std::uint64_t next_sequence_ = 1;
  std::uint32_t work_in_flight_ = 0;  // of all queue pairs
  std::vector<Handle> finished_;      // whose requests the completion at hand ends
  std::uint64_t notifications_sent_ = 0;

  SendCredits credits_;
  // We said that we are starved. Until the peer answers, the word is not looked at, and it is not said again:
  // so at most one control message is ever under way, and its slot is there.
  bool awaiting_wake_ = false;
  ReceiveCredits given_;    // one slot besides these is for control messages
  TimePoint last_grant_{};  // that no message carried
  bool peer_starved_ = false;
  std::uint64_t peer_limit_ = 0;  // what a starved peer knows of, or less

  Inbox inbox_{given_};

  // ---- time
  TimerId probe_timer_;
  std::uint64_t heard_before_ = 0;  // when the probe was armed
  EndpointTimer timer_;
  TimePoint open_by_ = kNever;
  TimePoint goodbye_by_ = kNever;
  StallWatch stalls_;  // progress: work requests of a one-sided operation that succeeded
};

}  // namespace slime::transport::verbs
