#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "transport/endpoint/inbox.h"
#include "transport/soft/answers.h"
#include "transport/soft/payload.h"
#include "transport/soft/request_sender.h"
#include "transport/soft/write_receiver.h"
#include "transport/soft/write_sender.h"

namespace slime::transport::soft {

// The incoming end of the stream: reads frames from the wire and hands each to the part that
// handles its type. Handles messages, notifications and credits itself. Thread: the loop.
class FrameReceiver {
 public:
  // The parts that get the frames.
  struct Parts {
    Inbox& inbox;
    RequestSender& requests;
    WriteSender& writes;
    Answers& answers;
    WriteReceiver& incoming;
  };
  FrameReceiver(Link& link, const Parts& parts);

  // Reads and handles frames, about BulkPace::turn_bytes() at most. Returns an error if the wire
  // has ended or failed.
  Status receive();
  // Returns and forgets the slot of a message that was received only in part; null: there is none.
  ReceiveSlot* take_slot() { return std::exchange(slot_, nullptr); }
  void drop_payload() { payload_.end(); }

 private:
  [[nodiscard]] std::size_t buffer_room(std::size_t direct) const;
  Result<std::size_t> fill();
  std::size_t read_in_place();
  void note_bulk(std::size_t bytes);
  Pin pin_payload();
  void parse(Bytes& input, std::uint64_t fetched_most);
  void take_payload(Bytes& input);
  void begin_frame(const FrameHeader& header);
  void end_payload();
  void begin_message(const FrameHeader& header);
  void on_imm_frame(const FrameHeader& header);
  bool use_credits(const FrameHeader& header, std::uint32_t count);
  bool on_grant(std::uint64_t limit);
  void on_credit_return(const FrameHeader& header);

  Link& link_;
  Parts parts_;
  const std::uint32_t message_bytes_;  // of the largest message that the peer may send
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;  // start of the unread bytes in the buffer
  std::size_t end_ = 0;
  // a large payload came, and since then no read that filled the buffer with small frames
  bool expects_bulk_ = false;
  FrameHeader frame_;
  Payload payload_;
  ReceiveSlot* slot_ = nullptr;
  std::uint64_t expected_ = 0;  // expected value of the compare_swap request that is being received
};

}  // namespace slime::transport::soft
