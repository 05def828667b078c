#include "transport/shm/windows.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/fork.h"

namespace slime::transport::shm {

// --------------------------------------------------------------------------------------- unmapping

Unmapper::~Unmapper() {
  if (deferred_) loop_.drop_deferred(*this);
}

void Unmapper::take(SharedMemory memory) {
  if (!memory) return;
  left_.push_back(std::move(memory));
  if (!std::exchange(deferred_, true)) loop_.defer(*this);
}

std::size_t Unmapper::left_bytes() const {
  std::size_t bytes = 0;
  for (const SharedMemory& memory : left_) bytes += memory.size();
  return bytes;
}

void Unmapper::run_deferred() noexcept {
  deferred_ = false;
  for (std::size_t done = 0; done < limits::kUnmapBytes && !left_.empty();) {
    done += std::min(left_.back().size(), limits::kUnmapBytes);
    left_.back().unmap_end(limits::kUnmapBytes);
    if (!left_.back()) left_.pop_back();
  }
  if (left_.empty()) return;
  deferred_ = true;
  loop_.defer(*this);
}

// ----------------------------------------------------------------------------------------- windows

namespace {

// Returns the kernel's id of the calling thread. Keeps the id, because gettid() takes as long as a
// short copy. The id is asked for again in a child of fork(), where it differs.
std::uint64_t thread_number() {
  struct Known {
    std::uint64_t generation;
    std::uint64_t number;
  };
  static thread_local Known known{0, 0};
  if (known.number == 0 || known.generation != fork_generation())
    known = {fork_generation(), static_cast<std::uint64_t>(::gettid())};
  return known.number;
}

}  // namespace

Windows::~Windows() {
  for (auto& [region, entry] : entries_) unmap(entry);
}

bool Windows::attach(std::shared_ptr<Attachment> attachment, ExportPage& page, Ask ask) {
  attachment_ = std::move(attachment);
  page_ = &page;
  ask_ = std::move(ask);
  return awaited_;
}

PeerMemory::Reach Windows::reach(const RemoteRegion& region) {
  const KeyClass kind = class_of(region.access().key);
  if (kind == KeyClass::kOnce) return {};
  if (page_ != nullptr && kind == KeyClass::kRead && !process_.fetches()) return {};
  const std::uint64_t id = region.id().packed();
  if (last_ == nullptr || last_region_ != id) {
    if (page_ == nullptr) {
      awaited_ = true;
      return {Way::kAsked, nullptr};
    }
    auto found = entries_.find(id);
    if (found == entries_.end()) {
      if (lost_ || !make_room()) return {};
      found = entries_.try_emplace(id).first;
      found->second.window.key = region.access().key;
      ++asked_;
      WindowRequest request;
      request.region = id;
      request.key = region.access().key;
      if (!ask_(request).ok()) lose();
    }
    last_region_ = id;
    last_ = &found->second;
  }
  if (last_->state == State::kShown) return {Way::kDirect, &last_->window};
  return {last_->state == State::kAsked && !lost_ ? Way::kAsked : Way::kWire, nullptr};
}

// Makes room for one more entry: drops refused and revoked ones, whose regions may be asked for
// again. Returns false if all entries are needed, or too many requests are unanswered.
bool Windows::make_room() {
  if (asked_ >= limits::kWindowsAsked) return false;
  if (entries_.size() < limits::kWindows) return true;
  sweep();
  std::erase_if(entries_, [](const auto& entry) { return entry.second.state == State::kRefused; });
  last_ = nullptr;
  return entries_.size() < limits::kWindows;
}

Status Windows::on_reply(const WindowReply& reply, std::vector<UniqueFd> descriptors) {
  const auto found = entries_.find(reply.region);
  if (found == entries_.end() || found->second.state != State::kAsked ||
      found->second.window.key != reply.key)
    return {Code::kCorrupt, "an answer about a region that was not asked for"};
  Entry& entry = found->second;
  --asked_;
  entry.state = State::kRefused;
  // The owner had no descriptor or no free slot. The rings carry the data until the next sweep();
  // then the owner is asked again.
  entry.again = reply.code == static_cast<std::uint8_t>(Code::kResourceExhausted);
  if (reply.code != 0) return {};
  if ((reply.address == 0) != is_mappable(reply.key))
    return {Code::kCorrupt, "an answer about memory of another kind"};
  if (reply.address == 0) {
    if (descriptors.empty()) return {};
    SLIME_TRY(map(entry, reply, descriptors.front()));
    if (!entry.memory) return {};
  }
  entry.window.data = entry.memory.data();
  entry.window.address = reply.address;
  entry.window.length_bytes = reply.length_bytes;
  entry.window.rights = static_cast<Rights>(reply.rights);
  entry.window.ticket = reply.ticket;
  if (reply.address != 0 && reply.slot < limits::kGatedExports)
    entry.window.gate = page_->gates[reply.slot].load(std::memory_order_seq_cst);
  entry.window.in_use = &page_->in_use;
  entry.window.shown = &page_->shown[reply.slot];
  entry.state = State::kShown;
  return {};
}

Status Windows::map(Entry& entry, const WindowReply& reply, const UniqueFd& memory) {
  if (reply.length_bytes > limits::kWindowBytes - bytes_) return {};
  const bool writable = allows(static_cast<Rights>(reply.rights), Rights::kRemoteWrite);
  Result<SharedMemory> mapped = SharedMemory::map(memory.get(), static_cast<std::size_t>(reply.length_bytes),
                                                  writable ? Access::kWrite : Access::kRead);
  if (!mapped && mapped.error().code() == Code::kCorrupt) return std::move(mapped).error();
  if (!mapped) return {};
  entry.memory = std::move(*mapped);
  bytes_ += entry.memory.size();
  return {};
}

// Announces the call's word before the call. An owner closes the gate first and then reads
// `writing`, so it sees the word of a call that has passed the gate.
PeerMemory::Outcome Windows::store(PeerBlocks& list, const PeerWindow& window) {
  const std::uint64_t word = (thread_number() << 32) | (++stores_ & 0xffffffff);
  page_->writing.store(word, std::memory_order_seq_cst);
  return process_.store(list, window.gate, word);
}

PeerMemory::Known Windows::peer_fetches() {
  if (page_ == nullptr) awaited_ = true;
  return lost_ && process_.peer_fetches() == Known::kOpen ? Known::kNo : process_.peer_fetches();
}

void Windows::lose() {
  lost_ = true;
  asked_ = 0;
}

void Windows::unmap(Entry& entry) {
  bytes_ -= entry.memory.size();
  unmapper_.take(std::move(entry.memory));
}

void Windows::sweep() {
  for (auto next = entries_.begin(); next != entries_.end();) {
    const auto here = next++;
    Entry& entry = here->second;
    const bool over = entry.state == State::kShown &&
                      entry.window.shown->load(std::memory_order_relaxed) != entry.window.ticket;
    if (!over && !(entry.state == State::kRefused && entry.again)) continue;
    unmap(entry);
    entries_.erase(here);
    last_ = nullptr;
  }
}

bool Windows::empty() const {
  return std::all_of(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.second.state == State::kRefused && !entry.second.again;
  });
}

std::size_t Windows::mapped() const {
  return static_cast<std::size_t>(std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.second.state == State::kShown && entry.second.window.mapped();
  }));
}

}  // namespace slime::transport::shm
