// Reads and writes of memory that the peer lets us map, and of what the kernel reads and writes for us:
// copied here, once, without the peer's program. They keep their place in the queues, so that notifications
// and barriers mean what they mean on the wire.
#include <algorithm>

#include "transport/bulk_copy.h"
#include "transport/soft/endpoint.h"

namespace slime::transport::soft {
namespace {

// The window and the local region of the blocks that are being copied; those of the next block mostly are the
// same. Blocks of memory that is not mapped are moved together, when the step or the list is at its end.
class Holding {
 public:
  // `need`: what its blocks do to the peer's memory.
  Holding(PeerMemory& memory, Rights need) : memory_(memory), need_(need) {}
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  ~Holding() { drop(); }

  // Until the next call both are held. kNotFound: the peer has closed its region; kUnavailable: we have ours.
  // Or how moving the blocks before has failed.
  Code hold(const Copy& copy) {
    if (copy.remote != remote_) {
      const Code ended = release();
      if (ended != Code::kOk) return ended;
      const PeerMemory::Reach reach = memory_.reach(copy.remote->descriptor());
      // The kernel refuses, or the owner has closed it: over the wire the owner says so.
      if (reach.way != PeerMemory::Way::kDirect && !is_mappable(copy.remote->descriptor().keys[0]))
        return Code::kUnimplemented;
      if (reach.way != PeerMemory::Way::kDirect || !reach.window->begin(need_)) return Code::kNotFound;
      remote_ = copy.remote;
      window_ = *reach.window;
    }
    if (!window_.covers(copy.remote->descriptor(), need_, copy.remote_offset, copy.length_bytes))
      return Code::kNotFound;  // it was looked at before, so this is another region than then
    if (copy.local != local_) {
      bulk_copy_end();  // the region before is nobody's but its owner's from here on
      const Code moved = move();
      if (moved != Code::kOk) return moved;
      pin_ = Pin::for_own(static_cast<SoftRegion*>(copy.local->impl())->record());
      local_ = pin_ ? copy.local : nullptr;
      if (!pin_) return Code::kUnavailable;
    }
    return Code::kOk;
  }
  // Whether it would hold the same for this one.
  [[nodiscard]] bool holds(const Copy& copy) const {
    return copy.local == local_ && copy.remote == remote_ &&
           window_.covers(copy.remote->descriptor(), need_, copy.remote_offset, copy.length_bytes);
  }
  [[nodiscard]] bool mapped() const { return window_.mapped(); }
  // Of memory that is mapped.
  [[nodiscard]] std::byte* there(std::uint64_t offset) const { return window_.data + offset; }
  // Where the block of this index will be read, to have it in time. nullptr: there is none, or nobody knows
  // yet.
  [[nodiscard]] const std::byte* source_of(std::span<const Copy> copies, std::size_t index) const {
    if (index >= copies.size()) return nullptr;
    const Copy& copy = copies[index];
    if (need_ == Rights::kRemoteWrite) return copy.local->data() + copy.local_offset;
    return copy.remote == remote_ ? there(copy.remote_offset) : nullptr;
  }
  // Of memory that is not: together with others.
  Code add(std::byte* here, std::uint64_t offset, std::uint64_t bytes) {
    if (list_.full()) {
      const Code moved = move();
      if (moved != Code::kOk) return moved;
    }
    list_.add(here, window_.address + offset, bytes);
    return Code::kOk;
  }
  [[nodiscard]] bool full() const { return list_.full(); }
  // kNotFound: what was copied last may have been too late.
  Code release() {
    bulk_copy_end();
    const Code moved = move();
    if (std::exchange(remote_, nullptr) == nullptr || window_.end(need_)) return moved;
    return Code::kNotFound;
  }
  // What has not been copied yet never is.
  void drop() {
    list_.clear();
    release();
  }
  [[nodiscard]] std::uint64_t moved_bytes() const { return moved_bytes_; }

 private:
  // kInvalidArgument: memory that is not there; kUnimplemented: it goes over the wire from now on, or nothing
  // does.
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
  const MemoryRegion* local_ = nullptr;
  Pin pin_;
};

// The first blocks of `copies`, as long as they are short ones of the regions that are held, and as the step
// lasts. How many; `bytes` are added up.
std::size_t copy_short(std::span<const Copy> copies, const Holding& holding, bool read, std::uint64_t& left,
                       std::uint64_t& bytes) {
  std::byte* const here = copies[0].local->data();
  std::byte* const there = holding.there(0);
  const std::byte* const source = read ? there : here;
  std::byte* const target = read ? here : there;
  std::size_t count = 0;
  while (left > 0 && count < copies.size()) {
    const Copy& copy = copies[count];
    if (copy.length_bytes >= limits::kColdCopyBytes || !holding.holds(copy)) break;
    if (count + 1 < copies.size() && holding.holds(copies[count + 1])) {
      const Copy& next = copies[count + 1];
      ask_for_block(source + (read ? next.remote_offset : next.local_offset));
    }
    std::memcpy(target + (read ? copy.local_offset : copy.remote_offset),
                source + (read ? copy.remote_offset : copy.local_offset), copy.length_bytes);
    left -= std::min(left, std::max(copy.length_bytes, limits::kCopyStepLeast));
    bytes += copy.length_bytes;
    ++count;
  }
  return count;
}

}  // namespace

// Decided once, for the whole batch: the first time that nothing is in front of it.
SoftEndpoint::Way SoftEndpoint::way_of(const OneSided& operation) {
  if (peer_memory_ == nullptr || operation.atomic()) return Way::kWire;
  Way way = Way::kWire;
  const RemoteRegion* remote = nullptr;
  PeerMemory::Reach reach;
  for (const Copy& copy : operation.copies) {
    if (copy.length_bytes == 0) continue;
    const RegionDescriptor& region = copy.remote->descriptor();
    if (copy.remote != remote) {
      reach = peer_memory_->reach(region);
      if (reach.way == PeerMemory::Way::kAsked) return Way::kOpen;
      remote = copy.remote;
    }
    // What the target would refuse it shall refuse itself.
    if (reach.way == PeerMemory::Way::kWire ||
        !reach.window->covers(region, operation.need(), copy.remote_offset, copy.length_bytes))
      return operation.kind == Kind::kWrite ? fetch_or_wire(operation) : Way::kWire;
    way = Way::kDirect;
  }
  return way;
}

bool SoftEndpoint::goes_by_wire(OneSided& operation) {
  if (operation.way == Way::kOpen) {
    operation.way = way_of(operation);
    if (operation.way == Way::kOpen) operation.started = true;  // the peer has been asked
  }
  // Refused since that was decided, and nothing of it is on its way.
  if (operation.way == Way::kFetch && fetch_denied_ && operation.next_copy == 0 && operation.copy_offset == 0)
    operation.way = Way::kWire;
  return operation.way == Way::kWire || operation.way == Way::kFetch;
}

void SoftEndpoint::count_copy(const OneSided& operation) {
  ++(operation.fetched ? counters_.fetched_copies : counters_.direct_copies);
}

// Copies until the operation's end or the step's.
Code SoftEndpoint::copy_blocks(OneSided& operation) {
  const bool read = operation.kind == Kind::kRead;
  const std::uint64_t step = copy_left_;
  Holding holding(*peer_memory_, operation.need());
  while (operation.next_copy < operation.copies.size()) {
    const Copy& copy = operation.copies[operation.next_copy];
    if (copy.length_bytes > 0) {
      if (copy_left_ == 0) break;
      Code code = holding.hold(copy);
      if (code != Code::kOk) return code;
      if (holding.mapped() && operation.copy_offset == 0 && copy.length_bytes < limits::kColdCopyBytes) {
        operation.started = true;
        operation.next_copy += copy_short(operation.copies.subspan(operation.next_copy), holding, read,
                                          copy_left_, counters_.direct_bytes);
        continue;
      }
      const std::uint64_t at = operation.copy_offset;
      const std::uint64_t part = std::min(copy.length_bytes - at, copy_left_);
      std::byte* const here = copy.local->data() + copy.local_offset + at;
      if (holding.mapped()) {
        std::byte* const there = holding.there(copy.remote_offset + at);
        const bool last = at + part == copy.length_bytes;
        bulk_copy(read ? here : there, read ? there : here, part,
                  last ? holding.source_of(operation.copies, operation.next_copy + 1) : nullptr);
        counters_.direct_bytes += part;
      } else {
        code = holding.add(here, copy.remote_offset + at, part);
        if (code != Code::kOk) return code;
      }
      operation.started = true;
      copy_left_ -= std::min(copy_left_, std::max(part, limits::kCopyStepLeast));
      operation.copy_offset += part;
      if (operation.copy_offset < copy.length_bytes) break;
    }
    operation.copy_offset = 0;
    ++operation.next_copy;
  }
  const Code code = holding.release();
  if (code == Code::kOk && copy_left_ < step) note_progress();
  operation.fetched = operation.fetched || holding.moved_bytes() > 0;
  counters_.fetched_bytes += holding.moved_bytes();
  return code;
}

// Within the post: one that is short and has nothing in front of it; `most_moved`: by the kernel. False: it
// is posted like any other.
bool SoftEndpoint::copy_now(OneSided& operation, std::uint64_t most_moved) {
  if (peer_memory_ == nullptr || operation.has_imm || operation.atomic() ||
      operation.copies.size() > limits::kPromptCopyBlocks)
    return false;
  if (!(operation.kind == Kind::kWrite ? writes_ : requests_).empty()) return false;
  std::uint64_t total = 0;
  std::uint64_t most = limits::kPromptCopyBytes;
  for (const Copy& copy : operation.copies) {
    if (copy.length_bytes > limits::kPromptCopyBytes) return false;
    total += copy.length_bytes;
    if (!is_mappable(copy.remote->descriptor().keys[0])) most = most_moved;
  }
  if (total > most || way_of(operation) != Way::kDirect) return false;
  const std::uint64_t left = std::exchange(copy_left_, limits::kCopyStepBytes);
  const Code code = copy_blocks(operation);
  copy_left_ = left;
  if (code == Code::kOk) return true;
  operation.next_copy = 0;  // what is wrong is found, and told, once more
  operation.copy_offset = 0;
  return false;
}

// Operations of one block each at the head of their queue, as many as fit into the step: what is held for
// them, and a call of the kernel's where it makes the copies, cost as much as 10 KiB. How many are over.
std::size_t SoftEndpoint::copy_together(Queue<Handle>& queue) {
  const OneSided* const first = operations_.find(queue.front());
  const bool read = first->kind == Kind::kRead;
  Holding holding(*peer_memory_, first->need());
  std::uint64_t left = copy_left_;
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  for (; count < queue.size() && !holding.full(); ++count) {
    OneSided* const operation = operations_.find(queue[count]);
    if (operation == nullptr || operation->kind != first->kind || operation->has_imm ||
        operation->copies.size() != 1 || operation->copy_offset > 0)
      break;
    const Copy& copy = operation->copies.front();
    if (copy.remote != first->copies.front().remote || copy.local != first->copies.front().local ||
        copy.length_bytes == 0 || copy.length_bytes > left)
      break;
    if (goes_by_wire(*operation) || operation->way != Way::kDirect || holding.hold(copy) != Code::kOk) break;
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
  // Alone, one that the kernel would move has not been moved yet.
  if (count == 0 || (count == 1 && !holding.mapped()) || holding.release() != Code::kOk) {
    holding.drop();
    return 0;
  }
  copy_left_ = left;
  note_progress();
  (holding.mapped() ? counters_.direct_bytes : counters_.fetched_bytes) += bytes;
  (holding.mapped() ? counters_.direct_copies : counters_.fetched_copies) += count;
  return count;
}

// What is at the head of a queue and can be copied, up to the step's end.
void SoftEndpoint::copy_head(Queue<Handle>& queue) {
  while (working() && !queue.empty()) {
    const Handle handle = queue.front();
    OneSided* operation = operations_.find(handle);
    if (operation == nullptr) {
      queue.pop_front();
      continue;
    }
    if (goes_by_wire(*operation) || operation->way == Way::kOpen) return;
    if (copy_left_ == 0) return schedule_turn();
    if (std::size_t over = copy_together(queue); over > 0) {
      completed_in_stage_ = true;
      while (over-- > 0 && working()) complete_one_sided(queue.pop_front(), {});
      continue;
    }
    const Code code = copy_blocks(*operation);
    if (code == Code::kUnavailable)
      return break_now(Status(Code::kUnavailable, "a local region was closed while a copy used it"));
    if (code == Code::kUnimplemented) {  // from the beginning, over the wire
      operation->way = Way::kWire;
      operation->next_copy = 0;
      operation->copy_offset = 0;
      return;
    }
    const bool over = operation->next_copy == operation->copies.size();
    if (code == Code::kOk && !over) continue;
    if (code == Code::kOk) count_copy(*operation);
    if (code == Code::kOk && operation->has_imm) {
      operation->way = Way::kWire;  // which brings the notification
      return;
    }
    if (operation->has_imm) --credit_used_;
    queue.pop_front();
    completed_in_stage_ = true;
    if (code != Code::kOk) copy_left_ -= std::min(copy_left_, limits::kCopyStepFailed);
    operation->failure = code;
    complete_one_sided(handle, code == Code::kOk ? Status() : refused_by_peer(*operation));
  }
}

// Writes and reads take turns.
void SoftEndpoint::copy_directly() {
  if (peer_memory_ == nullptr || (writes_.empty() && requests_.empty())) return;
  copies_reads_ = !copies_reads_;
  copy_head(copies_reads_ ? requests_ : writes_);
  copy_head(copies_reads_ ? writes_ : requests_);
}

void SoftEndpoint::on_peer_memory() noexcept {
  if (working()) schedule();
}

}  // namespace slime::transport::soft
