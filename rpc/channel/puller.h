#pragma once

// Private to rpc: reading what a peer lends.

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

// Reads what the peer lends for one body with one-sided reads, then releases it, all at once: the
// body, its attachments, or first the one and then the others. A large request stays with its
// caller until the server has a worker and memory for it; until then it is a waiting pull, which
// ends at the call's deadline, by a cancel, or with the channel. The caller may be gone when a
// pull ends: buffers are the pull's own, but for those that a call named, which waits for the
// pull. Thread: the loop.
class Puller {
 public:
  using Handler = UniqueFunction<void(Result<Payload>)>;
  struct Counters {
    std::uint64_t pulled_bytes = 0;
    std::uint64_t copied_bytes = 0;  // of inline attachments
    std::uint64_t over_budget = 0;
  };
  // `server` may be null.
  Puller(Connection& connection, Outbox& outbox, AttachmentRoom& room, TurnHost& turns, Server* server,
         std::shared_ptr<Account> account);
  Puller(const Puller&) = delete;
  Puller& operator=(const Puller&) = delete;

  // Reads the body of a frame, and its attachments, as far as the peer lent them. An error when
  // the peer broke the protocol. Whatever else goes wrong, the peer gets its memory back and
  // `handler` is called, also from inside this, unless the channel closes.
  Status pull(const wire::Frame& frame, Handler handler);
  // The same for the reply of a call, with the number of the destinations that the call named; 0:
  // none.
  Status pull_reply(const wire::Frame& frame, Handle call, std::uint64_t into, Handler handler);
  // The same for a request, once the server has a place for it. If it has none yet, `granted` is
  // called when it has, on any thread: then call on_granted().
  Status pull_request(const wire::Frame& frame, const CallInfo& info, Server::Found& found, Handle served,
                      Task granted, Handler handler);
  void on_granted(Handle served);
  // Gives back what the peer lent for a frame that is not wanted.
  Status give_back(const wire::Frame& frame);

  // A call ends while its reply is read. True: later, because it named the memory that is being
  // written; its pull ends it with `reason`, after the piece that is under way.
  bool abort_reply(Handle call, const Status& reason);
  // The caller of a request does not wait any more, so the rest of the request need not be read.
  void abort_request(Handle served);

  // Reads on, as far as the wire takes it.
  void post();
  // Drops all pulls: the channel is closed.
  void clear();
  [[nodiscard]] bool empty() const { return pulls_.empty(); }
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  struct Part {
    const transport::MemoryRegion* local = nullptr;
    std::uint64_t local_offset = 0;
    transport::RemoteRegion remote;
    std::uint64_t remote_offset = 0;
    std::uint64_t length_bytes = 0;
  };
  struct Pull final : transport::Operation {
    explicit Pull(Puller& p) : puller(p) {}
    void complete(Status status) noexcept override;
    // The next piece, in `copies`.
    void prepare();
    [[nodiscard]] bool complete_parts() const { return part == parts.size(); }
    Puller& puller;
    std::list<Pull>::iterator self;
    Handle lease;                                // generation 0: nothing is lent
    std::uint64_t announced = 0;                 // of all of it
    Buffer body;                                 // one that is lent
    bool attached = false;                       // it begins with a table
    std::unique_ptr<Attached> result;            // once the table was read
    std::list<transport::MemoryRegion> regions;  // registered for this; after the memory
    std::vector<Part> parts;
    std::size_t part = 0;  // the first that is not read whole, and how much of it is
    std::uint64_t done = 0;
    std::size_t next_part = 0;  // the same once the piece under way has come
    std::uint64_t next_done = 0;
    std::vector<transport::Copy> copies;
    std::uint64_t copied_bytes = 0;  // of these
    Handle call;                     // of ours, whose reply it is
    std::uint64_t into = 0;          // the number of that call's destinations
    Handle served;                   // of the peer's, whose request it is
    Status aborted;                  // nobody wants it any more
    // Requests only: the place in the server. While `waits`: the frame's body in `first`, the
    // call's deadline in `until`.
    std::shared_ptr<Server::Place> place;
    std::uint64_t funded = 0;  // bytes of the place for which nothing was read yet
    bool waits = false;
    bool offered = false;
    ByteVector first;
    TimePoint until = kNever;
    Handler handler;
  };
  using Place = std::list<Pull>::iterator;

  Place add(const wire::Frame& frame, Handler handler);
  Status begin(Place self, bool offered, Bytes body);
  Status begin_body(Pull& pull, Bytes offer, Status& refusal);
  Status begin_table(Pull& pull, Bytes table, Status& refusal);
  Status place_attachments(Pull& pull, const wire::AttachmentTable& table);
  Status check_room(Pull& pull, const wire::AttachmentTable& table);
  Status admit_bytes(Pull& pull, std::uint64_t bytes);
  Status make_body(Pull& pull);
  static Status take_body(Pull& pull, const wire::AttachmentTable& table, Attached& result);
  Status register_part(Pull& pull, Part& part, MutableBytes to);
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
