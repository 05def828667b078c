#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "transport/endpoint.h"
#include "transport/queue.h"
#include "transport/soft/frames.h"
#include "transport/soft/pool.h"
#include "transport/soft/port.h"
#include "transport/soft/regions.h"
#include "transport/time_bounds.h"
#include "transport/wire.h"

namespace slime::transport::soft {

// The software engine: one connected pair over a Wire. Thread: the loop.
//
// Posting only queues; everything else happens in run(), which the port calls once for each burst, and in the
// wire's events. So no callback ever runs inside a post, and none while a frame is half handled.
// Posting is in endpoint.cc, sending in endpoint_send.cc, copies past the wire in endpoint_direct.cc, those
// that the target makes in endpoint_fetch.cc, receiving in endpoint_receive.cc, both sides of atomics in
// endpoint_atomics.cc, the end in endpoint_end.cc.
class SoftEndpoint final : public Endpoint, public CreditOwner, private WireHandler {
 public:
  SoftEndpoint(std::shared_ptr<PortState> port, std::shared_ptr<CreditAccount> account,
               const Parameters& peer, std::unique_ptr<Wire> wire, Introduction who);
  ~SoftEndpoint() override;

  void set_receiver(Receiver& receiver) override;
  Status send(std::span<const Bytes> parts, Operation& operation, SendOptions options) override;
  Status read(std::span<const Copy> copies, Operation& operation) override;
  Status write(std::span<const Copy> copies, Operation& operation) override;
  Status write_with_imm(std::span<const Copy> copies, std::uint32_t imm, Operation& operation) override;
  bool read_now(std::span<const Copy> copies) override { return done_now(Kind::kRead, copies); }
  bool write_now(std::span<const Copy> copies) override { return done_now(Kind::kWrite, copies); }
  Status fetch_add(const AtomicTarget& target, std::uint64_t add, Operation& operation) override;
  Status compare_swap(const AtomicTarget& target, std::uint64_t expected, std::uint64_t desired,
                      Operation& operation) override;
  Result<RemoteRegion> import_region(const RegionDescriptor& descriptor) override;
  void close(Nanos bound) override;
  void reset(Status reason) override;
  void hold_credit() override {
    hold_credit_ = true;
    ++held_credits_;
  }
  void release_credits(std::uint32_t count) override;
  void set_awaiting(bool awaiting) override;

  [[nodiscard]] bool closed() const override { return told_closed_; }
  [[nodiscard]] Status error() const override { return error_; }
  [[nodiscard]] std::uint32_t max_message_bytes() const override { return peer_.slot_bytes; }
  [[nodiscard]] std::uint64_t id() const override { return id_; }
  [[nodiscard]] std::size_t in_flight() const override { return messages_in_flight_ + operations_.size(); }
  [[nodiscard]] std::uint64_t credits() const override;
  [[nodiscard]] TimePoint last_progress() const override { return last_progress_; }
  [[nodiscard]] EndpointCounters counters() const override { return counters_; }
  [[nodiscard]] std::string describe() const override;

  // ---- for the port ----
  void run();  // sends what is queued, or ends a broken endpoint
  void on_slot_free() noexcept override;
  void reset_if_using(const RegionRecord& record);

 private:
  enum class State { kOpen, kClosing, kBroken, kEnded };

  // A message that was taken and is not wholly handed to the wire.
  struct OutMessage {
    Operation* operation = nullptr;  // null: it completed early, the bytes must still go
    TimePoint deadline = kNever;
    std::uint64_t barrier = 0;  // goes after all one-sided operations with a smaller sequence
    FrameHeader header;
    ByteVector bytes;
  };
  enum class Kind { kWrite, kRead, kFetchAdd, kCompareSwap };
  // How an operation's bytes get there: over the wire, copied by us, or by the peer out of our memory; open:
  // the peer has not said yet which of them can be.
  enum class Way { kOpen, kWire, kDirect, kFetch };
  // A posted one-sided operation.
  struct OneSided {
    // By member: as an aggregate it is cleared as a whole first, with an instruction that waits for the copy
    // before.
    explicit OneSided(Kind kind, std::span<const Copy> copies = {}) : kind(kind), copies(copies) {}

    Operation* operation = nullptr;
    TimeBounds bounds;
    std::uint64_t sequence = 0;
    Kind kind;
    Way way = Way::kOpen;
    std::span<const Copy> copies;   // of a read or a write
    std::optional<Copy> number;     // of an atomic: its 8 bytes on both sides
    std::uint64_t value = 0;        // of an atomic: what to add, or to store
    std::uint64_t expected = 0;     // of a compare_swap
    std::size_t next_copy = 0;      // the first copy that is not wholly sent, asked for, or made
    std::uint64_t copy_offset = 0;  // bytes of it that are
    std::uint32_t asked = 0;        // requests that are not answered wholly
    std::uint32_t imm = 0;
    bool has_imm = false;
    bool started = false;  // the peer may know of it
    bool sent = false;     // all frames of a write are handed over: its ack may come
    bool starved = false;
    bool fetched = false;  // of a read: some of it was, and not mapped
    Code failure = Code::kOk;

    [[nodiscard]] bool atomic() const { return kind == Kind::kFetchAdd || kind == Kind::kCompareSwap; }
    // Valid until the record moves.
    [[nodiscard]] std::span<const Copy> blocks() const { return number ? std::span(&*number, 1) : copies; }
    [[nodiscard]] Rights need() const {
      if (atomic()) return Rights::kReadWrite;
      return kind == Kind::kRead ? Rights::kRemoteRead : Rights::kRemoteWrite;
    }
  };
  // A request (of a read, or an atomic) that the peer has not answered wholly. Answers come in their order.
  struct Asked {
    std::uint64_t request = 0;
    Handle operation;
    const Copy* copy = nullptr;  // null: an atomic
    std::uint64_t received = 0;
  };
  // A request of the peer. An atomic has been executed when it gets here.
  struct Answer {
    std::uint64_t request = 0;
    std::shared_ptr<RegionRecord> record;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint64_t staged = 0;
    Code code = Code::kOk;
    bool atomic = false;
    std::uint64_t old_value = 0;
  };
  struct Ack {
    std::uint64_t operation = 0;
    Code code = Code::kOk;
  };
  // A frame whose place in the stream is fixed.
  struct Staged {
    FrameHeader header;
    const std::byte* data = nullptr;
    std::size_t sent = 0;                  // header included
    std::shared_ptr<RegionRecord> record;  // what kWrite and kReadData read from
    OutMessage message;                    // kMessage; of kFetch the bytes
    std::uint64_t expected = 0;            // kCompareSwap: its payload
    [[nodiscard]] const std::byte* payload() const {
      return header.type == FrameType::kCompareSwap ? reinterpret_cast<const std::byte*>(&expected) : data;
    }
    [[nodiscard]] std::size_t size() const { return kHeaderBytes + header.payload_bytes; }
  };
  struct Arrived {
    Message message;
    std::uint32_t imm = 0;
    bool is_imm = false;
  };

  // ---- posting (endpoint.cc)
  [[nodiscard]] bool working() const { return state_ == State::kOpen || state_ == State::kClosing; }
  Status refusal();
  Status check_local(const Copy& copy) const;
  Status post_one_sided(OneSided& record, Operation& operation);
  Status need_credit(std::uint64_t reserve = 0);
  [[nodiscard]] std::uint64_t message_credits() const;
  [[nodiscard]] std::uint64_t free_credits() const { return credit_limit_ - credit_used_; }
  TimePoint take_deadline(const Operation& operation);
  TimeBounds take_bounds(const Operation& operation);
  // Bytes of our one-sided operations have moved. Cheap: within a turn the loop reads the clock once.
  void note_progress() { last_progress_ = loop_->now(); }
  void schedule();
  void schedule_turn(bool lazily = false);
  static RegionRecord& record_of(const Copy& copy);
  static bool add_uses(std::span<const Copy> copies);
  static void drop_uses(std::span<const Copy> copies);

  // ---- the end (endpoint_end.cc)
  void break_now(Status reason);
  void end();
  void complete_leftovers();
  void tell_closed();
  bool peer_has_left();
  void finish_close(Status leftover);
  void say_goodbye_now();
  [[nodiscard]] Status peer_gone(const Status& cause) const;

  // ---- operations (endpoint.cc)
  void complete(Operation& operation, Status status);
  void complete_one_sided(Handle handle, Status status);
  [[nodiscard]] Status refused_by_peer(const OneSided& operation) const;

  // ---- time, and the steps of an end (endpoint_end.cc)
  void arm(TimePoint when);
  void on_timer();
  void excuse(Nanos pause, TimePoint now);
  void note_backlog(TimePoint now);
  bool expire(TimePoint now, TimePoint& next);
  void expire_messages(TimePoint now, TimePoint& next);
  void return_idle_credits(TimePoint now, TimePoint& next);
  void settle();  // after a burst: on_ready, keepalive, the next step of a close
  void tell_waiting();

  // ---- atomics (endpoint_atomics.cc)
  Status post_atomic(const AtomicTarget& target, OneSided record, Operation& operation);
  void stage_atomic(Handle handle, OneSided& operation);
  void on_atomic_request(const FrameHeader& header, std::uint64_t expected);
  Code execute(const FrameHeader& header, std::uint64_t expected, std::uint64_t& old_value);
  void on_atomic_reply(const FrameHeader& header);

  // ---- sending (endpoint_send.cc)
  bool send_now(std::span<const Bytes> parts, std::uint32_t total, Operation& operation,
                bool late_completion);
  void complete_sent();
  void flush();
  void stage();
  Staged& push_staged(FrameHeader header);
  [[nodiscard]] bool burst_full(std::size_t limit) const { return staged_.size() >= limit; }
  std::uint64_t take_grant();
  std::uint64_t take_fetched();
  void stage_control();
  void stage_bulk();
  void stage_requests();
  void stage_messages();
  bool barrier_passed(std::uint64_t barrier);
  bool stage_write();
  bool patient_write();
  bool stage_answer();
  Result<std::size_t> write_staged();
  void zero_answer(std::size_t index);
  void consume(std::size_t bytes);
  void on_sent(Staged& frame);
  ByteVector take_buffer();
  void give_buffer(ByteVector buffer);

  // ---- copies past the wire (endpoint_direct.cc)
  void on_peer_memory() noexcept override;
  Way way_of(const OneSided& operation);
  bool goes_by_wire(OneSided& operation);  // or by frames, at least
  void count_copy(const OneSided& operation);
  Code copy_blocks(OneSided& operation);
  Status check_blocks(const OneSided& record) const;
  bool copy_now(OneSided& operation, std::uint64_t most_moved);
  bool done_now(Kind kind, std::span<const Copy> copies);
  std::size_t copy_together(Queue<Handle>& queue);
  void copy_head(Queue<Handle>& queue);
  void copy_directly();

  // ---- copies by the target (endpoint_fetch.cc)
  using FetchBlocks = std::array<FetchBlock, limits::kFetchBlocks>;
  Way fetch_or_wire(const OneSided& operation);
  bool stage_fetch(Handle handle, OneSided& operation);
  bool on_fetched(std::uint64_t done);
  void begin_fetch(const FrameHeader& header);
  bool end_fetch();
  void fetch_awaited();
  Code fetch(const FrameHeader& write, std::span<const FetchBlock> blocks);

  // ---- receiving (endpoint_receive.cc)
  void on_readable() noexcept override;
  void on_writable() noexcept override;
  void on_broken(Status reason) noexcept override;
  Pin pin_payload();
  [[nodiscard]] std::size_t direct_room() const;
  [[nodiscard]] std::size_t buffer_room(std::size_t direct) const;
  Result<std::size_t> fill();
  std::size_t read_in_place();
  void parse(Bytes& input, std::uint64_t fetched_most);
  void take_payload(Bytes& input);
  void begin_frame(const FrameHeader& header);
  void end_payload();
  void begin_message(const FrameHeader& header);
  bool enter_write(const FrameHeader& header);
  void end_write();
  void begin_write(const FrameHeader& header);
  void begin_read_data(const FrameHeader& header);
  bool on_grant(std::uint64_t limit);
  void on_credit_return(const FrameHeader& header);
  void on_imm_frame(const FrameHeader& header);
  void on_ack(const FrameHeader& header);
  bool take_request(const FrameHeader& header);
  void on_read_request(const FrameHeader& header);
  void on_read_done(const FrameHeader& header);
  void on_goodbye();
  void lost(const Status& cause);
  void queue_ack(std::uint64_t operation, Code code, bool patient = false);
  void corrupt(std::string_view what);
  bool use_credit(const FrameHeader& header);
  void top_up();
  void deliver_arrived();
  void deliver(Arrived arrived);

  const std::shared_ptr<PortState> port_;
  const std::shared_ptr<Loop> loop_;
  const std::shared_ptr<CreditAccount> account_;
  const Parameters peer_;
  const Introduction who_;
  const std::uint64_t id_;
  std::unique_ptr<Wire> wire_;
  PeerMemory* peer_memory_;  // the wire's; null: all goes over the wire
  std::string wire_text_;
  Receiver* receiver_ = nullptr;
  EndpointCounters counters_;

  State state_ = State::kOpen;
  Status error_;     // the first error; OK when we closed it
  Status leftover_;  // what the operations in flight complete with
  bool close_called_ = false;
  bool told_closed_ = false;
  std::shared_ptr<const Loan> left_inside_;  // once ended: what the peer may still be copying under
  Nanos next_look_ = limits::kLoanLook;
  bool scheduled_ = false;
  bool in_burst_ = false;  // flush() follows anyhow
  // What is posted next leaves at once: the first message after something came, for which somebody may be
  // waiting. Those after it share a write in the next turn, unless writes are cheap.
  bool prompt_ = true;
  const bool always_prompt_;
  bool waiting_ = false;
  bool awaiting_ = false;
  bool want_write_ = false;        // the wire is full
  bool wire_wants_write_ = false;  // what the wire was told about that
  // Fewest free credits with which a refused post would pass; 0: no post was refused for credits.
  std::uint64_t want_credits_ = 0;
  bool want_room_ = false;  // a post was refused because of too many operations

  // ---- our operations
  Queue<OutMessage> messages_;
  std::size_t messages_in_flight_ = 0;  // and what is in sent_
  // Messages that left at once, and copies that were made at once, to be completed in the next turn.
  std::vector<Operation*> sent_;
  std::vector<Operation*> completing_;
  SlotMap<OneSided> operations_{limits::kMaxOperations};
  std::uint64_t next_sequence_ = 1;
  Queue<Handle> writes_;         // not wholly staged, in order
  Queue<Handle> requests_;       // reads and atomics not wholly asked for, in order
  Queue<Handle> open_requests_;  // those not completed, in order; stale ones are skipped
  Queue<Asked> asked_;
  std::uint64_t next_request_ = 1;
  bool completed_in_stage_ = false;
  std::uint64_t copy_left_ = limits::kCopyStepBytes;  // of this turn
  bool copies_reads_ = false;
  std::uint64_t fetch_asked_ = 0;  // bytes that the peer was asked to read, since the beginning
  std::uint64_t fetch_done_ = 0;   // of these, what it has dealt with
  bool fetch_denied_ = false;      // its kernel has refused that

  // ---- credits we have
  std::uint64_t credit_limit_ = 0;  // what the peer allows since the beginning
  std::uint64_t credit_used_ = 0;
  bool starved_ = false;
  TimePoint last_send_{};

  // ---- credits we gave
  std::uint64_t granted_ = 0;       // promised since the beginning
  std::uint64_t announced_ = 0;     // granted credits that the peer was told of
  std::uint64_t received_ = 0;      // announced credits that the peer used or gave back
  std::uint32_t held_credits_ = 0;  // credits of notifications that the receiver still holds
  bool hold_credit_ = false;        // hold_credit() was called in the current on_imm()
  std::uint32_t target_ = 0;        // how many promises this endpoint wants to have out
  bool announce_ = false;

  // ---- sending
  Queue<Staged> staged_;
  std::size_t staged_bulk_ = 0;
  Queue<Ack> acks_;
  bool acks_due_ = false;           // all that are there now
  std::size_t patient_writes_ = 0;  // of ours, since the last one whose ack we wanted at once
  std::uint64_t patient_bytes_ = 0;
  Queue<Answer> answers_;
  std::uint64_t credits_to_return_ = 0;
  bool answers_turn_ = false;
  bool goodbye_staged_ = false;
  bool goodbye_sent_ = false;
  std::vector<ByteVector> buffers_;

  // ---- receiving
  enum class Payload { kNone, kMessage, kWrite, kRead, kExpected, kFetch, kDiscard };
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t buffer_begin_ = 0;
  std::size_t buffer_end_ = 0;
  bool expects_bulk_ = false;  // large payloads came, and no burst of small frames since
  Payload payload_ = Payload::kNone;
  FrameHeader frame_;
  std::byte* payload_to_ = nullptr;
  std::size_t payload_left_ = 0;
  std::shared_ptr<RegionRecord> payload_record_;
  ReceiveSlot* slot_ = nullptr;
  std::uint64_t expected_ = 0;       // of the compare_swap that is being received
  std::uint64_t last_request_ = 0;   // the peer's newest request
  std::uint64_t current_write_ = 0;  // the peer's write whose last frame has not come
  Code current_write_code_ = Code::kOk;
  bool current_write_fetched_ = false;
  std::unique_ptr<FetchBlocks> fetch_blocks_;  // once the peer has sent some
  std::vector<FrameHeader> awaited_;           // parts of writes, to be read together; the value: of blocks
  std::vector<FetchBlock> awaited_blocks_;     // of these, in their order
  std::uint64_t fetched_ = 0;                  // bytes of fetches, dealt with since the beginning
  std::uint64_t fetched_told_ = 0;
  Queue<Arrived> arrived_;  // before there was a receiver

  // ---- time
  TimerId timer_;
  TimePoint timer_due_ = kNever;
  TimePoint close_by_ = kNever;
  TimePoint last_progress_{};
  std::uint64_t backlog_bytes_ = 0;  // of the wire, at that time
  TimePoint backlog_at_{};
  bool stall_suspected_ = false;  // a stall bound has passed, and the wire is looked at once more
};

}  // namespace slime::transport::soft
