#pragma once

// Private to rpc: reading the memory that a peer lends.

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/function.h"
#include "base/ids.h"
#include "base/result.h"
#include "rpc/channel/attachment_room.h"
#include "rpc/channel/connection.h"
#include "rpc/channel/outbox.h"
#include "rpc/channel/turn.h"
#include "rpc/codec/attachments.h"
#include "rpc/payload.h"
#include "rpc/server.h"
#include "rpc/server/budget.h"
#include "transport/memory.h"
#include "transport/operation.h"

namespace slime::rpc {

// Reads lent bodies and attachments with one-sided reads, then releases all memory of a body at
// once. A large request stays in its caller's memory until the server has a worker and memory for
// it. Until then its pull waits; it may end by the call's deadline, by a cancel, or with the
// channel. A pull owns its buffers, so a call may end before its pull; but a call with destinations
// waits for its pull. Thread: the loop.
class Puller {
 public:
  using Handler = UniqueFunction<void(Result<Payload>)>;
  struct Counters {
    std::uint64_t pulled_bytes = 0;
    std::uint64_t copied_bytes = 0;  // of inline attachments
    std::uint64_t over_budget = 0;
    std::uint64_t registrations = 0;
  };
  // `server` may be null.
  Puller(Connection& connection, Outbox& outbox, AttachmentRoom& room, TurnHost& turns, Server* server,
         std::shared_ptr<Account> account);
  Puller(const Puller&) = delete;
  Puller& operator=(const Puller&) = delete;

  // Reads the lent body and attachments of a frame, then calls `handler` with them. Returns an
  // error if the peer broke the protocol. For any other failure, releases the loan and calls
  // `handler` with the error. Calls `handler` once, possibly before pull() returns, or never if the
  // channel closes.
  Status pull(const wire::Frame& frame, Handler handler);
  // A piece of the peer's memory, and the memory of this side that it is read into.
  struct Part {
    const transport::DeviceRegion* local = nullptr;
    std::uint64_t local_offset = 0;
    transport::RemoteRegion remote;
    std::uint64_t remote_offset = 0;
    std::uint64_t length_bytes = 0;
  };
  // The parts that pull_parts() reads, and the memory that it keeps until it ends. A body becomes
  // the payload; without one the parts lead to memory of the user, and the payload is empty.
  struct Reads {
    std::vector<Part> parts;
    Buffer body;
    ConnectionBlocks::Taken block;  // instead of `body`
    std::uint64_t body_bytes = 0;
    std::list<transport::DeviceRegion> regions;  // of memory that was not registered
  };
  // Reads the parts for `receive`, then calls `handler`, as pull() does. `into`: the number of the
  // receive's destinations; 0: none. Releases no loan.
  void pull_parts(Reads&& reads, Handle receive, std::uint64_t into, Handler handler);
  // Returns kResourceExhausted if so many announced bytes, with those of all pulls, are more than
  // one payload may have.
  [[nodiscard]] Status admits(std::uint64_t bytes) const;
  // Returns where `bytes` lie in registered memory. Registers them, and adds the registration to
  // `regions`, if `memory` is null.
  struct Room {
    const transport::DeviceRegion* region = nullptr;
    std::uint64_t offset = 0;
  };
  Result<Room> room_for(std::list<transport::DeviceRegion>& regions, const Registered* memory,
                        MutableBytes bytes);

  // Like pull(), for the reply of `call`. `into`: the number of the call's destinations; 0: none.
  Status pull_reply(const wire::Frame& frame, Handle call, std::uint64_t into, Handler handler);
  // Like pull(), for a request; begins when the server has a Place for the request. If there is no
  // place yet, `granted` is called later, on any thread; the loop must then call on_granted().
  Status pull_request(const wire::Frame& frame, const CallInfo& info, Server::Found& found, Handle served,
                      Task granted, Handler handler);
  // Like pull_request(), for a request whose body has come in a long message. Keeps the message,
  // with the credits that it takes, until the server has a Place for it.
  void take_request(transport::Message&& message, Bytes body, const CallInfo& info, Server::Found& found,
                    Handle served, Task granted, Handler handler);
  void on_granted(Handle served);
  // Returns the body of a reply that has come in a long message, without copying it.
  Result<Payload> take_body(transport::Message&& message, Bytes body) const;
  // Releases the memory that the peer lent for a frame which is not read.
  Status give_back(const wire::Frame& frame);

  // Stops reading the reply of `call`, or for that receive. Returns true if the pull ends the call
  // with `reason` itself, now or once a read into the call's destinations has finished.
  bool abort_reply(Handle call, const Status& reason);
  // Stops reading a cancelled request.
  void abort_request(Handle served);

  // Posts the next reads, as long as the endpoint accepts them.
  void post();
  // Drops all pulls: the channel is closed.
  void clear();
  [[nodiscard]] bool empty() const { return pulls_.empty(); }
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  struct Pull final : transport::Operation {
    explicit Pull(Puller& p) : puller(p) {}
    void complete(Status status) noexcept override;
    // Fills `copies` with the next piece.
    void prepare();
    [[nodiscard]] bool complete_parts() const { return part == parts.size(); }
    // Returns the lent body, which was read completely; empty if the frame itself had the table.
    [[nodiscard]] Bytes read_body() const;
    Puller& puller;
    std::list<Pull>::iterator self;
    Handle lease;                   // generation 0: nothing is lent
    std::uint64_t announced = 0;    // bytes of all parts
    std::uint64_t body_bytes = 0;   // of a lent body
    Buffer body;                    // a lent body; or
    ConnectionBlocks::Taken block;  // the block that it is read into
    bool attached = false;          // the body begins with a table
    // Null: the table was not read yet. Of a request in a long message: the message.
    std::unique_ptr<Attached> result;
    std::list<transport::DeviceRegion> regions;  // destroyed before the memory
    std::vector<Part> parts;
    std::size_t part = 0;       // index of the first part that is not complete
    std::uint64_t done = 0;     // bytes of this part that were read
    std::size_t next_part = 0;  // values of `part` and `done` once the current piece has been read
    std::uint64_t next_done = 0;
    std::vector<transport::CopyBlock> copies;
    std::uint64_t copied_bytes = 0;  // of `copies`
    Handle call;                     // of a reply: the call; of a message: the receive
    std::uint64_t into = 0;          // the number of the destinations of `call`
    Handle served;                   // of a request: its entry in ServedTable
    Status aborted;                  // if not OK, the reason why the pull was stopped
    // For requests: the Place in the server. While `waits` is true, `first` holds the frame's body,
    // and `until` is the call's deadline.
    std::shared_ptr<Server::Place> place;
    std::uint64_t funded = 0;  // bytes that `place` has reserved and that no part has used yet
    bool waits = false;
    bool offered = false;
    ByteVector first;
    TimePoint until = kNever;
    Handler handler;
  };
  using Place = std::list<Pull>::iterator;

  Place add(Handler handler);
  Place add(const wire::Frame& frame, Handler handler);
  [[nodiscard]] Status check_come(std::uint64_t bytes) const;
  bool has_place(Place self, const CallInfo& info, Server::Found& found, std::uint64_t bytes, Task granted,
                 Bytes first);
  Status begin(Place self, bool offered, Bytes body);
  Status begin_body(Pull& pull, Bytes offer, Status& refusal);
  Status begin_table(Pull& pull, Bytes table, Status& refusal);
  Status place_attachments(Pull& pull, const wire::AttachmentTable& table);
  Status check_room(Pull& pull, const wire::AttachmentTable& table);
  Status admit_bytes(Pull& pull, std::uint64_t bytes);
  Status make_body(Pull& pull);
  static Status take_body(Pull& pull, const wire::AttachmentTable& table, Attached& result);
  Status register_room(Pull& pull, Part& part, const Registered* memory, MutableBytes room);
  void note_active(const Pull& pull, bool active);
  void on_pulled(Pull& pull, Status status);
  void end(Place pull, Status status);
  void erase(Place pull);
  void release(Handle lease);
  void expire_waiting();

  Connection& connection_;
  Outbox& outbox_;
  AttachmentRoom& room_;
  TurnHost& turns_;
  Server* const server_;
  const std::shared_ptr<Account> account_;
  std::list<Pull> pulls_;
  std::deque<Pull*> waiting_;  // for their turn to read
  std::size_t active_ = 0;
  std::uint64_t active_bytes_ = 0;
  std::uint64_t announced_ = 0;  // bytes of all pulls
  DueTimer deadlines_;           // of requests that wait for the server
  Counters counters_;
};

}  // namespace slime::rpc
