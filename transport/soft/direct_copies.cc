#include "transport/soft/direct_copies.h"

#include <algorithm>

#include "base/copy.h"
#include "transport/bulk_copy.h"

namespace slime::transport::soft {
namespace {

// Holds the peer's window and the local region of the blocks that are being copied, because the
// next block mostly uses the same window and region. Blocks of memory that is not mapped here are
// collected and moved by one system call, when the list is full, the local region changes or the
// hold ends.
class Holding {
 public:
  // `need`: the right that the copies need on the peer's memory.
  Holding(PeerMemory& memory, Rights need) : memory_(memory), need_(need) {}
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  ~Holding() { drop(); }

  // Holds the window and the local region of `copy` until the next call. Errors: kNotFound if the
  // peer has closed its region; kUnavailable if this side has closed its own; kUnimplemented if the
  // wire must carry the operation; or the error of moving blocks that were added before.
  Code hold(const CopyBlock& copy) {
    if (copy.remote != remote_) {
      const Code ended = release();
      if (ended != Code::kOk) return ended;
      const PeerMemory::Reach reach = memory_.reach(*copy.remote);
      // Either the kernel refuses, or the peer has closed the region. The operation goes over the
      // wire, and the peer's answer says which.
      if (reach.way != PeerMemory::Way::kDirect && !is_mappable(copy.remote->access().key))
        return Code::kUnimplemented;
      if (reach.way != PeerMemory::Way::kDirect || !reach.window->begin(need_)) return Code::kNotFound;
      remote_ = copy.remote;
      window_ = *reach.window;
      whole_ = window_.covers(*copy.remote, need_, 0, copy.remote->length_bytes());
    }
    if (!window_.covers(*copy.remote, need_, copy.remote_offset, copy.length_bytes))
      // the checks at the post covered the copy, so the region is another one now
      return Code::kNotFound;
    if (copy.local != local_) {
      bulk_copy_end();  // completes the stores to the local region that is not held any longer
      const Code moved = move();
      if (moved != Code::kOk) return moved;
      pin_ = Pin::for_own(record_of(copy));
      local_ = pin_ ? copy.local : nullptr;
      if (!pin_) return Code::kUnavailable;
    }
    return Code::kOk;
  }
  // Returns whether `copy` uses the window and the local region that are held.
  [[nodiscard]] bool holds(const CopyBlock& copy) const {
    return copy.local == local_ && copy.remote == remote_ &&
           (whole_ || window_.covers(*copy.remote, need_, copy.remote_offset, copy.length_bytes));
  }
  [[nodiscard]] bool mapped() const { return window_.mapped(); }
  // Returns the address in this process of the byte at `offset` of the peer's mapped region.
  [[nodiscard]] std::byte* there(std::uint64_t offset) const { return window_.data + offset; }
  // Returns the address from which block `index` will be read, to prefetch it; nullptr if there is
  // no such block or its address is not known yet.
  [[nodiscard]] const std::byte* source_of(std::span<const CopyBlock> copies, std::size_t index) const {
    if (index >= copies.size()) return nullptr;
    const CopyBlock& copy = copies[index];
    if (need_ == Rights::kRemoteWrite) return copy.local->data() + copy.local_offset;
    return copy.remote == remote_ ? there(copy.remote_offset) : nullptr;
  }
  // Adds a block of memory that is not mapped here, to be moved together with others.
  Code add(std::byte* here, std::uint64_t offset, std::uint64_t bytes) {
    if (list_.full()) {
      const Code moved = move();
      if (moved != Code::kOk) return moved;
    }
    list_.add(here, window_.address + offset, bytes);
    return Code::kOk;
  }
  [[nodiscard]] bool full() const { return list_.full(); }
  // Moves the added blocks and ends the hold. Returns kNotFound if the peer revoked the region
  // during the copies, so that they do not count.
  Code release() {
    bulk_copy_end();
    const Code moved = move();
    if (std::exchange(remote_, nullptr) == nullptr || window_.end(need_)) return moved;
    return Code::kNotFound;
  }
  // Ends the hold without moving the blocks that were added.
  void drop() {
    list_.clear();
    release();
  }
  [[nodiscard]] std::uint64_t moved_bytes() const { return moved_bytes_; }

 private:
  // Moves the added blocks. Returns kInvalidArgument if some memory does not exist, and
  // kUnimplemented if the kernel refuses or the peer is gone: the operation then goes over the
  // wire.
  Code move() {
    if (list_.empty()) return Code::kOk;
    const PeerMemory::Outcome how =
        need_ == Rights::kRemoteWrite ? memory_.store(list_, window_) : memory_.fetch(list_);
    if (how == PeerMemory::Outcome::kDone) moved_bytes_ += list_.bytes();
    list_.clear();
    if (how == PeerMemory::Outcome::kDone) return Code::kOk;
    return how == PeerMemory::Outcome::kFault ? Code::kInvalidArgument : Code::kUnimplemented;
  }

  PeerMemory& memory_;
  const Rights need_;
  PeerBlocks list_;
  std::uint64_t moved_bytes_ = 0;
  const RemoteRegion* remote_ = nullptr;
  PeerWindow window_;
  bool whole_ = false;  // the window covers all of remote_
  const DeviceRegion* local_ = nullptr;
  Pin pin_;
};

// Copies the first of `copies` as long as they are short, use the held regions, and `left` bytes of
// the step are not used up. Returns how many blocks it copied, and adds their bytes to `bytes`.
std::size_t copy_short(std::span<const CopyBlock> copies, const Holding& holding, bool read,
                       std::uint64_t& left, std::uint64_t& bytes) {
  std::byte* const here = copies[0].local->data();
  std::byte* const there = holding.there(0);
  const std::byte* const source = read ? there : here;
  std::byte* const target = read ? here : there;
  std::size_t count = 0;
  bool held = holding.holds(copies[0]);
  while (left > 0 && held) {
    const CopyBlock& copy = copies[count];
    if (copy.length_bytes >= limits::kColdCopyBytes) break;
    held = count + 1 < copies.size() && holding.holds(copies[count + 1]);
    if (held) {
      const CopyBlock& next = copies[count + 1];
      ask_for_block(source + (read ? next.remote_offset : next.local_offset));
    }
    copy_bytes(target + (read ? copy.local_offset : copy.remote_offset),
               source + (read ? copy.remote_offset : copy.local_offset), copy.length_bytes);
    left -= std::min(left, std::max(copy.length_bytes, limits::kCopyStepLeast));
    bytes += copy.length_bytes;
    ++count;
  }
  return count;
}

}  // namespace

void DirectCopies::count(const OneSided& operation) {
  ++(operation.fetched ? link_.counters.fetched_copies : link_.counters.direct_copies);
}

// Copies the blocks of `operation` until all are copied or the bytes of this step are used up.
Code DirectCopies::copy_blocks(OneSided& operation) {
  const bool read = operation.kind == Kind::kRead;
  const std::uint64_t step = left_;
  const std::uint64_t before = link_.counters.direct_bytes;
  Holding holding(*link_.memory, operation.need());
  while (operation.next_copy < operation.copies.size()) {
    const CopyBlock& copy = operation.copies[operation.next_copy];
    if (copy.length_bytes > 0) {
      if (left_ == 0) break;
      Code code = holding.hold(copy);
      if (code != Code::kOk) return code;
      if (holding.mapped() && operation.copy_offset == 0 && copy.length_bytes < limits::kColdCopyBytes) {
        operation.started = true;
        operation.next_copy += copy_short(operation.copies.subspan(operation.next_copy), holding, read, left_,
                                          link_.counters.direct_bytes);
        continue;
      }
      const std::uint64_t at = operation.copy_offset;
      const std::uint64_t rest = copy.length_bytes - at;
      const std::uint64_t part = rest <= left_ ? rest : link_.port->pace.piece_bytes(left_);
      std::byte* const here = copy.local->data() + copy.local_offset + at;
      if (holding.mapped()) {
        std::byte* const there = holding.there(copy.remote_offset + at);
        const std::byte* const source = read ? there : here;
        bulk_copy(
            read ? here : there, source, part,
            part == rest ? holding.source_of(operation.copies, operation.next_copy + 1) : source + part);
        link_.counters.direct_bytes += part;
      } else {
        code = holding.add(here, copy.remote_offset + at, part);
        if (code != Code::kOk) return code;
      }
      operation.started = true;
      // A part of a block ends the turn.
      left_ -= part < rest ? left_ : std::min(left_, std::max(part, limits::kCopyStepLeast));
      operation.copy_offset += part;
      if (operation.copy_offset < copy.length_bytes) break;
    }
    operation.copy_offset = 0;
    ++operation.next_copy;
  }
  const Code code = holding.release();
  link_.port->pace.note_bulk(link_.counters.direct_bytes - before + holding.moved_bytes());
  if (code == Code::kOk && left_ < step) link_.note_progress();
  operation.fetched = operation.fetched || holding.moved_bytes() > 0;
  link_.counters.fetched_bytes += holding.moved_bytes();
  return code;
}

bool DirectCopies::copy_now(OneSided& operation, std::uint64_t most_moved) {
  if (link_.memory == nullptr || operation.has_imm || operation.atomic() ||
      operation.copies.size() > limits::kPromptCopyBlocks)
    return false;
  OneSidedTable& table = link_.operations;
  if (!(operation.kind == Kind::kWrite ? table.writes() : table.requests()).empty()) return false;
  std::uint64_t total = 0;
  std::uint64_t most = limits::kPromptCopyBytes;
  for (const CopyBlock& copy : operation.copies) {
    if (copy.length_bytes > limits::kPromptCopyBytes) return false;
    total += copy.length_bytes;
    if (!is_mappable(copy.remote->access().key)) most = most_moved;
  }
  if (total > most || ways_.find(operation) != Way::kDirect) return false;
  const std::uint64_t left = std::exchange(left_, limits::kCopyStepBytes);
  const Code code = copy_blocks(operation);
  left_ = left;
  if (code == Code::kOk) {
    ++(operation.kind == Kind::kWrite ? link_.counters.writes : link_.counters.reads);
    count(operation);
    return true;
  }
  operation.restart();  // posting the operation will meet the error again and report it
  return false;
}

// Copies several operations at the head of their queue under one hold, as far as they have one
// block each, with the same regions, and fit into the step: a hold, and a system call if the kernel
// copies, costs as much as copying 10 KiB. Returns how many operations it copied.
std::size_t DirectCopies::copy_together(Queue<Handle>& queue) {
  const OneSided* const first = link_.operations.find(queue.front());
  const bool read = first->kind == Kind::kRead;
  Holding holding(*link_.memory, first->need());
  std::uint64_t left = left_;
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  for (; count < queue.size() && !holding.full(); ++count) {
    OneSided* const operation = link_.operations.find(queue[count]);
    if (operation == nullptr || operation->kind != first->kind || operation->has_imm ||
        operation->copies.size() != 1 || operation->copy_offset > 0)
      break;
    const CopyBlock& copy = operation->copies.front();
    if (copy.remote != first->copies.front().remote || copy.local != first->copies.front().local ||
        copy.length_bytes == 0 || copy.length_bytes > left)
      break;
    if (ways_.decide(*operation) != Way::kDirect || holding.hold(copy) != Code::kOk) break;
    std::byte* const here = copy.local->data() + copy.local_offset;
    if (holding.mapped()) {
      std::byte* const there = holding.there(copy.remote_offset);
      bulk_copy(read ? here : there, read ? there : here, copy.length_bytes, nullptr);
    } else {
      holding.add(here, copy.remote_offset, copy.length_bytes);
    }
    left -= std::min(left, std::max(copy.length_bytes, limits::kCopyStepLeast));
    bytes += copy.length_bytes;
  }
  // A single block that is not mapped here has not been copied yet, because the kernel copies only
  // in release(). The caller copies such a block by itself.
  if (count == 0 || (count == 1 && !holding.mapped()) || holding.release() != Code::kOk) {
    holding.drop();
    return 0;
  }
  left_ = left;
  link_.port->pace.note_bulk(bytes);
  link_.note_progress();
  (holding.mapped() ? link_.counters.direct_bytes : link_.counters.fetched_bytes) += bytes;
  (holding.mapped() ? link_.counters.direct_copies : link_.counters.fetched_copies) += count;
  return count;
}

// Copies operations from the head of `queue` until the bytes of this step are used up, or the next
// operation needs the wire.
void DirectCopies::copy_head(Queue<Handle>& queue) {
  while (link_.working() && !queue.empty()) {
    const Handle handle = queue.front();
    OneSided* operation = link_.operations.find(handle);
    if (operation == nullptr) {
      queue.pop_front();
      continue;
    }
    if (ways_.decide(*operation) != Way::kDirect) return;
    if (left_ == 0) return link_.schedule_turn();
    if (std::size_t over = copy_together(queue); over > 0) {
      link_.completed_in_stage = true;
      while (over-- > 0 && link_.working()) link_.complete_one_sided(queue.pop_front(), {});
      continue;
    }
    if (!end_copy(queue, handle, copy_blocks(*operation))) return;
  }
}

// Handles the outcome of copy_blocks(). Returns false if the wire carries the operation or its
// notification instead, or if the link is broken.
bool DirectCopies::end_copy(Queue<Handle>& queue, Handle handle, Code code) {
  OneSided* const operation = link_.operations.find(handle);
  if (code == Code::kUnavailable) {
    link_.break_now(Status(Code::kUnavailable, "a local region was closed while a copy used it"));
    return false;
  }
  if (code == Code::kUnimplemented) {  // carried over the wire, from its beginning
    operation->way = Way::kWire;
    operation->restart();
    return false;
  }
  const bool over = operation->next_copy == operation->copies.size();
  if (code == Code::kOk && !over) return true;
  if (code == Code::kOk) count(*operation);
  if (code == Code::kOk && operation->has_imm) {
    operation->way = Way::kWire;  // the wire brings the notification
    return false;
  }
  if (operation->has_imm) link_.credits.unuse();
  queue.pop_front();
  link_.completed_in_stage = true;
  if (code != Code::kOk) left_ -= std::min(left_, limits::kCopyStepFailed);
  operation->failure = code;
  link_.complete_one_sided(handle,
                           code == Code::kOk ? Status() : refused_by_peer(*operation, link_.who.peer_name));
  return true;
}

// Writes and reads take turns.
void DirectCopies::run() {
  Queue<Handle>& writes = link_.operations.writes();
  Queue<Handle>& requests = link_.operations.requests();
  if (link_.memory == nullptr || (writes.empty() && requests.empty())) return;
  reads_first_ = !reads_first_;
  copy_head(reads_first_ ? requests : writes);
  copy_head(reads_first_ ? writes : requests);
}

}  // namespace slime::transport::soft
