#pragma once

// Private to rpc/channel/ and rpc/stream/: what a channel keeps of its streams.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "rpc/channel/channel_impl.h"
#include "rpc/stream/stream_end.h"

namespace slime::rpc {

// A message on its way to the user, or the end behind the last one.
struct ChannelImpl::Arriving {
  Payload payload;
  ByteVector offer;                // of a large one that is not being read yet
  std::uint64_t length_bytes = 0;  // of a large one that is offered or being read
  bool complete = false;
  bool end = false;
};

struct ChannelImpl::Stream {
  std::shared_ptr<StreamEnd> end;
  std::uint64_t key = 0;
  std::uint64_t id = 0;         // the caller's
  bool from_handler = false;    // this side serves it
  Handle served;                // the request, if from_handler
  TimePoint deadline = kNever;  // of the whole stream, if from_handler
  Nanos idle_timeout = Nanos::max();
  TimePoint active{};          // time of the last frame, either way
  bool waited = false;         // the handler waited at the last check
  std::uint64_t messages = 0;  // whole messages received
  // What leaves.
  std::optional<ByteVector> message;  // accepted, and not in a frame yet
  std::optional<OutFrame> next;       // what leaves when the wire takes it
  std::uint64_t next_bytes = 0;
  Handle next_lent;
  bool end_sent = false;
  bool stalled = false;                      // waits for the wire
  std::optional<Result<ByteVector>> answer;  // waits until all messages have left
  Account::Held answer_held;                 // of it
  bool answered = false;                     // by the handler
  // What comes.
  std::deque<std::shared_ptr<Arriving>> arriving;  // in order; the first is not complete
  std::uint64_t received = 0;
  std::uint64_t granted = 0;
  bool peer_ended = false;
  bool pulling = false;  // inside of pull(), which may call back at once
  Status broken;         // a message could not be read
  // How it ends.
  bool replied = false;         // of a stream that we opened: its error is the peer's answer
  bool ended = false;           // nothing more is sent, and what comes is late
  bool lost = false;            // the connection went before all messages had come
  std::optional<Status> final;  // what is read behind the last message, when all have come
};

struct ChannelImpl::Streams {
  std::uint64_t last_key = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<Stream>> all;  // by key
  std::unordered_map<std::uint64_t, Stream*> asked;                // by id, as all that the peer says
  std::unordered_map<std::uint64_t, Stream*> served;
  // The last stream that the peer opened at each place of its table. It names no earlier one of a place, and
  // none that it did not open.
  std::vector<std::uint64_t> last_served;
  std::deque<std::uint64_t> stalled;  // keys, in turn
  transport::TimerId timer;

  [[nodiscard]] Stream* find(std::uint64_t key) {
    const auto found = all.find(key);
    return found == all.end() ? nullptr : found->second.get();
  }
};

}  // namespace slime::rpc
