#include "rpc/channel/puller.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/copy.h"
#include "base/str.h"
#include "rpc/server/server_impl.h"

namespace slime::rpc {
namespace {

bool is_offered(const wire::Frame& frame) { return (frame.header.flags & wire::kFlagRendezvous) != 0; }

// The memory that a frame lends.
struct Announced {
  Handle lease;  // generation 0: nothing
  std::uint64_t bytes = 0;
};
// Returns what the frame's body lends. Returns kCorrupt if the body is neither an offer nor a
// table.
Result<Announced> announced_by(const wire::Frame& frame) {
  if (is_offered(frame)) {
    auto offer = wire::decode_offer(frame.body);
    if (!offer) return std::move(offer).error();
    return Announced{offer->lease, offer->length_bytes};
  }
  auto table = wire::decode_attachments(frame.body);
  if (!table) return std::move(table).error();
  Announced out{table->lease};
  for (const wire::AttachmentEntry& entry : table->entries) out.bytes += entry.lent ? entry.length_bytes : 0;
  return out;
}

// Gives back the credits of a long message: from here on its bytes are counted by a place, or are
// those of the caller that asked for them. Moves a body to an aligned address, where all bodies
// begin.
void keep_message(Attached& attached) {
  if (!attached.message.keep()) return;
  const std::size_t off = reinterpret_cast<std::uintptr_t>(attached.body.data()) % Service::kBytesAlignment;
  if (off == 0) return;
  auto* const to = const_cast<std::byte*>(attached.body.data()) - off;
  std::memmove(to, attached.body.data(), attached.body.size());
  attached.body = {to, attached.body.size()};
}

}  // namespace

Puller::Puller(Connection& connection, Outbox& outbox, AttachmentRoom& room, TurnHost& turns, Server* server,
               std::shared_ptr<Account> account)
    : connection_(connection),
      outbox_(outbox),
      room_(room),
      turns_(turns),
      server_(server),
      account_(std::move(account)),
      deadlines_(connection.loop(), turns, [this] { expire_waiting(); }) {}

// --------------------------------------------------------------------------------------- beginning

Status Puller::pull(const wire::Frame& frame, Handler handler) {
  return begin(add(frame, std::move(handler)), is_offered(frame), frame.body);
}

Status Puller::pull_reply(const wire::Frame& frame, Handle call, std::uint64_t into, Handler handler) {
  const Place self = add(frame, std::move(handler));
  self->call = call;
  self->into = into;
  return begin(self, is_offered(frame), frame.body);
}

Status Puller::pull_request(const wire::Frame& frame, const CallInfo& info, Server::Found& found,
                            Handle served, Task granted, Handler handler) {
  const auto announced = announced_by(frame);
  if (!announced) return announced.error();
  const Place self = add(frame, std::move(handler));
  self->served = served;
  self->lease = announced->lease;
  const std::uint64_t bytes = announced->bytes;
  const bool offered = is_offered(frame);
  if (server_ == nullptr || bytes == 0) return begin(self, offered, frame.body);
  self->offered = offered;
  if (!has_place(self, info, found, bytes, std::move(granted), frame.body)) return {};
  return begin(self, offered, frame.body);
}

void Puller::take_request(transport::Message&& message, Bytes body, const CallInfo& info,
                          Server::Found& found, Handle served, Task granted, Handler handler) {
  const Place self = add(std::move(handler));
  self->served = served;
  self->result = std::make_unique<Attached>();
  self->result->message = std::move(message);
  self->result->body = body;
  Status refusal = check_come(body.size());
  if (!refusal.ok() || server_ == nullptr ||
      has_place(self, info, found, body.size(), std::move(granted), {}))
    end(self, std::move(refusal));
}

// Asks the server for a place. Returns true if it was granted. Otherwise the pull waits for it, or
// has ended because it was refused. `first`: what begin() needs when the place is granted.
bool Puller::has_place(Place self, const CallInfo& info, Server::Found& found, std::uint64_t bytes,
                       Task granted, Bytes first) {
  self->funded = bytes;
  self->place = server_->reserve(info, found, account_, bytes, std::move(granted));
  switch (self->place->state()) {
    case Server::Place::State::kGranted:
      return true;
    case Server::Place::State::kRefused:
      if (bytes > account_->share()) ++counters_.over_budget;
      end(self, self->place->refusal());
      return false;
    case Server::Place::State::kWaiting:
      break;
  }
  self->waits = true;
  self->first.assign(first.begin(), first.end());
  self->until = info.deadline;
  deadlines_.arm(info.deadline);
  return false;
}

// Begins the pull of a request whose place was granted. Ends the pull if the place was refused.
void Puller::on_granted(Handle served) {
  const auto self = std::find_if(pulls_.begin(), pulls_.end(),
                                 [&](const Pull& pull) { return pull.served == served && pull.waits; });
  if (self == pulls_.end() || connection_.endpoint_closing()) return;  // the request has ended
  self->waits = false;
  if (self->place->state() == Server::Place::State::kRefused) return end(self, self->place->refusal());
  if (self->result != nullptr) return end(self, {});
  const ByteVector first = std::move(self->first);
  Status status = begin(self, self->offered, first);
  if (!status.ok()) connection_.break_by(std::move(status));
}

void Puller::pull_parts(Reads&& reads, Handle receive, std::uint64_t into, Handler handler) {
  const Place self = add(std::move(handler));
  self->call = receive;
  self->into = into;
  self->parts = std::move(reads.parts);
  self->body = std::move(reads.body);
  self->block = std::move(reads.block);
  self->body_bytes = reads.body_bytes;
  self->regions = std::move(reads.regions);
  std::uint64_t bytes = 0;
  for (const Part& part : self->parts) bytes += part.length_bytes;
  Status refusal = admit_bytes(*self, bytes);
  if (!refusal.ok() || self->complete_parts()) return end(self, std::move(refusal));
  waiting_.push_back(&*self);
  post();
}

Puller::Place Puller::add(Handler handler) {
  const Place self = pulls_.emplace(pulls_.end(), *this);
  self->self = self;
  self->handler = std::move(handler);
  return self;
}

Puller::Place Puller::add(const wire::Frame& frame, Handler handler) {
  const Place self = add(std::move(handler));
  self->attached = (frame.header.flags & wire::kFlagAttachments) != 0;
  return self;
}

Status Puller::begin(Place self, bool offered, Bytes body) {
  Status refusal;
  Status status = offered ? begin_body(*self, body, refusal) : begin_table(*self, body, refusal);
  if (!status.ok()) {
    erase(self);
  } else if (!refusal.ok() || self->complete_parts()) {
    end(self, std::move(refusal));
  } else {
    waiting_.push_back(&*self);
    post();
  }
  return status;
}

Status Puller::begin_body(Pull& pull, Bytes bytes, Status& refusal) {
  auto offer = wire::decode_offer(bytes);
  if (!offer) return std::move(offer).error();
  auto remote = connection_.endpoint().import_region(offer->region);
  if (!remote) return std::move(remote).error();
  pull.lease = offer->lease;
  const std::uint64_t length = offer->length_bytes;
  refusal = admit_bytes(pull, length);
  if (!refusal.ok()) return {};
  pull.parts.push_back({.remote = *remote, .length_bytes = length});
  pull.body_bytes = length;
  return {};
}

// Begins to read the attachments of a table. Returns kCorrupt if `bytes` are not a table, or refer
// to memory that does not exist. Sets `refusal` if a limit refuses the attachments. Writes to no
// destination before all entries are checked.
Status Puller::begin_table(Pull& pull, Bytes bytes, Status& refusal) {
  auto table = wire::decode_attachments(bytes);
  if (!table) return std::move(table).error();
  const bool lends = table->lease.generation != 0;
  if (lends && pull.lease.generation != 0 && table->lease != pull.lease)
    return Status(Code::kCorrupt, "a body and attachments with two leases");
  if (lends) pull.lease = table->lease;
  pull.parts.clear();
  pull.part = pull.done = 0;
  for (const wire::AttachmentEntry& entry : table->entries) {
    if (!entry.lent) continue;
    auto remote = connection_.endpoint().import_region(entry.region);
    if (!remote) return std::move(remote).error();
    pull.parts.push_back(
        {.remote = *remote, .remote_offset = entry.offset, .length_bytes = entry.length_bytes});
  }
  refusal = place_attachments(pull, *table);
  return {};
}

// --------------------------------------------------------------------------------------- admission

Status Puller::admits(std::uint64_t bytes) const {
  const std::uint64_t limit = connection_.options().max_payload_bytes;
  if (bytes <= limit && announced_ <= limit - bytes) return {};
  return Status(Code::kResourceExhausted, str("a payload of ", bytes, " bytes, while ", announced_,
                                              " are being read, is more than ", limit));
}

// Checks that the announced bytes of all pulls together stay within the limit of one payload. Pages
// of memory are touched only as bytes arrive.
Status Puller::admit_bytes(Pull& pull, std::uint64_t bytes) {
  SLIME_TRY(admits(bytes));
  if (pull.place != nullptr) {
    const std::uint64_t more = bytes - std::min(bytes, pull.funded);
    if (more > 0 && !pull.place->grow(more)) {
      ++counters_.over_budget;
      return Status(Code::kResourceExhausted,
                    str(more, " bytes of attachments, while ", account_->held(), " are held for ",
                        connection_.peer_name(), ": a connection has at most ", account_->share(),
                        " (a quarter of the server's memory_bytes)"));
    }
    pull.funded -= bytes - more;
  }
  pull.announced += bytes;
  announced_ += bytes;
  return {};
}

// Checks the bytes of a body that has come in a long message.
Status Puller::check_come(std::uint64_t bytes) const {
  const std::uint64_t limit = connection_.options().max_payload_bytes;
  return bytes <= limit
             ? Status()
             : Status(Code::kResourceExhausted, str("a payload of ", bytes, " bytes is more than ", limit));
}

Result<Payload> Puller::take_body(transport::Message&& message, Bytes body) const {
  SLIME_TRY(check_come(body.size()));
  auto attached = std::make_unique<Attached>();
  attached->message = std::move(message);
  attached->body = body;
  keep_message(*attached);
  return Payload(std::move(attached));
}

// Checks that all attachments of the table fit into their destinations and into the limits.
Status Puller::check_room(Pull& pull, const wire::AttachmentTable& table) {
  for (std::size_t i = 0; i < table.entries.size(); ++i) {
    const wire::AttachmentEntry& entry = table.entries[i];
    const Destination* const to = room_.destination(pull.into, i);
    if (to != nullptr && entry.length_bytes > to->bytes().size()) {
      return Status(Code::kInvalidArgument,
                    str("attachment ", i, " has ", entry.length_bytes, " bytes, and there is room for ",
                        to->bytes().size(), " where it should go"));
    }
    if (entry.lent) SLIME_TRY(admit_bytes(pull, entry.length_bytes));
  }
  return {};
}

// ------------------------------------------------------------------------------------------ memory

// Finds memory for all attachments of the table, and copies the bytes of inline attachments into
// it.
Status Puller::place_attachments(Pull& pull, const wire::AttachmentTable& table) {
  SLIME_TRY(check_room(pull, table));
  const std::size_t count = table.entries.size();
  auto result = std::make_unique<Attached>();
  result->attachments.resize(count);
  std::vector<MutableBytes> room(count);
  room_.begin_table();
  std::size_t lent = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const wire::AttachmentEntry& entry = table.entries[i];
    const Destination* const to = room_.destination(pull.into, i);
    SLIME_TRY(room_.find(entry.length_bytes, to, room[i], result->attachments[i]));
    const Registered* const memory = to != nullptr ? to->memory() : result->attachments[i].memory();
    if (entry.lent) SLIME_TRY(register_room(pull, pull.parts[lent++], memory, room[i]));
  }
  SLIME_TRY(take_body(pull, table, *result));
  for (std::size_t i = 0; i < count; ++i) {
    const Bytes from = table.entries[i].bytes;
    if (!from.empty()) copy_bytes(room[i].data(), from.data(), from.size());
    counters_.copied_bytes += from.size();
  }
  pull.result = std::move(result);
  return {};
}

// Sets `result` to the body that follows the table: a view if the table itself was read from lent
// memory, otherwise a copy of the frame's bytes.
Status Puller::take_body(Pull& pull, const wire::AttachmentTable& table, Attached& result) {
  result.body = table.body;
  if (pull.body_bytes != 0) {
    result.memory = std::move(pull.body);
    result.keeper = std::move(pull.block);
    return {};
  }
  result.memory = Buffer(std::max<std::size_t>(table.body.size(), 1));
  if (result.memory.data() == nullptr) return Status(Code::kResourceExhausted, "no memory for a body");
  if (!table.body.empty()) copy_bytes(result.memory.data(), table.body.data(), table.body.size());
  result.body = {result.memory.data(), table.body.size()};
  return {};
}

// Finds memory for a body: a block of the connection, else memory of the process. Called just
// before the body is read, so that until then other bodies can use memory that is kept for reuse.
Status Puller::make_body(Pull& pull) {
  Part& part = pull.parts[pull.part];
  if (part.local != nullptr) return {};
  connection_.blocks().begin_table();
  pull.block = connection_.blocks().take_for_received(part.length_bytes);
  if (pull.block != nullptr) {
    part.local = &pull.block->region();
    return {};
  }
  pull.body = Buffer(part.length_bytes);
  if (pull.body.data() == nullptr) {
    return Status(Code::kResourceExhausted, str("no memory for a payload of ", part.length_bytes, " bytes"));
  }
  return register_room(pull, part, nullptr, {pull.body.data(), pull.body.size()});
}

Status Puller::register_room(Pull& pull, Part& part, const Registered* memory, MutableBytes room) {
  const auto found = room_for(pull.regions, memory, room);
  if (!found) return found.error();
  part.local = found->region;
  part.local_offset = found->offset;
  return {};
}

Result<Puller::Room> Puller::room_for(std::list<transport::DeviceRegion>& regions, const Registered* memory,
                                      MutableBytes bytes) {
  if (memory != nullptr) {
    const auto region = memory->on(connection_.device());
    if (!region) return region.error();
    return Room{*region, static_cast<std::uint64_t>(bytes.data() - (*region)->data())};
  }
  ++counters_.registrations;
  auto region = connection_.device().register_memory(bytes.data(), bytes.size(), transport::Rights::kLocal);
  if (!region) return std::move(region).error();
  return Room{&regions.emplace_back(std::move(*region)), 0};
}

// ----------------------------------------------------------------------------------------- reading

void Puller::Pull::prepare() {
  copies.clear();
  copied_bytes = 0;
  std::uint64_t room = limits::kPullBytes;
  next_part = part;
  next_done = done;
  while (next_part < parts.size() && room > 0 && copies.size() < limits::kPullBlocks) {
    const Part& from = parts[next_part];
    const std::uint64_t left = from.length_bytes - next_done;
    const std::uint64_t length = left <= room + limits::kPullRestBytes ? left : room;
    copies.push_back(
        {from.local, from.local_offset + next_done, &from.remote, from.remote_offset + next_done, length});
    room -= std::min(room, length);
    copied_bytes += length;
    next_done += length;
    if (next_done < from.length_bytes) continue;
    ++next_part;
    next_done = 0;
  }
}

Bytes Puller::Pull::read_body() const {
  if (block != nullptr) return block->bytes().first(body_bytes);
  return {body.data(), body.size()};
}

void Puller::post() {
  while (!waiting_.empty() && active_ < limits::kMaxActivePulls && active_bytes_ < limits::kActivePullBytes &&
         !connection_.endpoint_closing()) {
    Pull& pull = *waiting_.front();
    waiting_.pop_front();
    Status begun = pull.aborted.ok() ? make_body(pull) : pull.aborted;
    if (!begun.ok()) {
      end(pull.self, std::move(begun));
      continue;
    }
    pull.prepare();
    pull.deadline = kNever;
    note_active(pull, true);
    const Status status = connection_.endpoint().read(pull.copies, pull);
    if (status.ok()) continue;
    note_active(pull, false);
    if (status.code() == Code::kResourceExhausted) {
      waiting_.push_front(&pull);  // until on_ready()
      return;
    }
    on_pulled(pull, status);
  }
}

void Puller::note_active(const Pull& pull, bool active) {
  if (active) {
    ++active_;
    active_bytes_ += pull.copied_bytes;
  } else {
    --active_;
    active_bytes_ -= pull.copied_bytes;
  }
}

void Puller::Pull::complete(Status status) noexcept {
  const LoopTurn turn(puller.turns_);
  puller.note_active(*this, false);
  puller.on_pulled(*this, std::move(status));
}

void Puller::on_pulled(Pull& pull, Status status) {
  // If the endpoint is broken, on_closed() follows and ends everything.
  if (connection_.over() || (!status.ok() && !connection_.endpoint().error().ok())) return;
  if (status.ok()) {
    counters_.pulled_bytes += pull.copied_bytes;
    pull.part = pull.next_part;
    pull.done = pull.next_done;
    if (pull.complete_parts() && pull.aborted.ok() && pull.attached && pull.result == nullptr) {
      Status corrupt = begin_table(pull, pull.read_body(), status);
      if (!corrupt.ok()) return connection_.break_by(std::move(corrupt));
    }
    if (status.ok() && pull.aborted.ok() && !pull.complete_parts()) {
      waiting_.push_back(&pull);
      return post();
    }
  }
  end(pull.self, pull.aborted.ok() ? std::move(status) : pull.aborted);
  post();
}

// ------------------------------------------------------------------------------------------ ending

void Puller::release(Handle lease) {
  if (lease.generation != 0) outbox_.answer(wire::FrameType::kRelease, lease.packed());
}

void Puller::end(Place pull, Status status) {
  release(pull->lease);
  Handler handler = std::move(pull->handler);
  std::unique_ptr<Attached> attached = std::move(pull->result);
  std::shared_ptr<Server::Place> place = std::move(pull->place);
  if (status.ok() && attached == nullptr && (place != nullptr || pull->block != nullptr)) {
    attached = std::make_unique<Attached>();
    attached->body = pull->read_body();
    attached->memory = std::move(pull->body);
    attached->keeper = std::move(pull->block);
  }
  Buffer body = std::move(pull->body);
  const std::uint64_t body_bytes = pull->body_bytes;
  erase(pull);
  if (!status.ok()) {
    place.reset();
    attached.reset();  // releases the call's destinations before the call's handler is called
    handler(std::move(status));
    return;
  }
  connection_.blocks().note_received(body_bytes);
  if (attached == nullptr) {
    handler(Payload(std::move(body)));
    return;
  }
  keep_message(*attached);
  // The place ends with the memory of the payload: when the request is answered, or earlier.
  attached->place = std::move(place);
  room_.note_received(attached->attachments);
  handler(Payload(std::move(attached)));
}

void Puller::erase(Place pull) {
  announced_ -= pull->announced;
  for (transport::DeviceRegion& region : pull->regions) region.close(Nanos::zero()).ignore();
  pulls_.erase(pull);
}

Status Puller::give_back(const wire::Frame& frame) {
  const auto announced = announced_by(frame);
  if (!announced) return announced.error();
  release(announced->lease);
  return {};
}

bool Puller::abort_reply(Handle call, const Status& reason) {
  const auto pull = std::find_if(pulls_.begin(), pulls_.end(), [&](const Pull& p) { return p.call == call; });
  if (pull == pulls_.end()) return false;
  if (pull->aborted.ok()) pull->aborted = reason;
  if (pull->into == 0) return false;
  if (pull->posted()) return true;
  if (connection_.endpoint_closing()) return false;  // nothing more is read
  std::erase(waiting_, &*pull);
  end(pull, pull->aborted);
  return true;
}

void Puller::abort_request(Handle served) {
  const auto pull =
      std::find_if(pulls_.begin(), pulls_.end(), [&](const Pull& p) { return p.served == served; });
  if (pull == pulls_.end() || !pull->aborted.ok()) return;
  pull->aborted = Status(Code::kCancelled, "cancelled while the request was read");
  if (pull->posted() || connection_.endpoint_closing()) return;
  std::erase(waiting_, &*pull);
  end(pull, pull->aborted);
}

void Puller::expire_waiting() {
  const TimePoint now = connection_.now();
  TimePoint next = kNever;
  for (auto pull = pulls_.begin(); pull != pulls_.end();) {
    const auto self = pull++;
    if (!self->waits) continue;
    if (self->until > now) {
      next = std::min(next, self->until);
      continue;
    }
    end(self, Status(Code::kDeadlineExceeded,
                     "the deadline passed before a handler thread and memory were free for the request"));
  }
  deadlines_.arm(next);
}

// Drops all pulls. Their reads have ended, or end while the channel is destroyed.
void Puller::clear() {
  deadlines_.cancel();
  for (Pull& pull : pulls_) SLIME_CHECK(!pull.posted() || connection_.destroying());
  if (!connection_.destroying()) pulls_.clear();
  waiting_.clear();
  announced_ = 0;
}

}  // namespace slime::rpc
