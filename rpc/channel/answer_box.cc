#include "rpc/channel/answer_box.h"

#include "rpc/channel/channel_impl.h"

namespace slime::rpc {

std::uint64_t owned_bytes(const Attachments& attachments) {
  std::uint64_t out = 0;
  for (const Attachment& attachment : attachments) {
    if (attachment.owns_memory()) out += attachment.size();
  }
  return out;
}

void AnswerBox::respond(std::uint64_t ticket, Result<ByteVector>&& reply) noexcept {
  const Handle served = Handle::unpack(ticket);
  if (at_once_ != nullptr && at_once_->box_ == this && channel_ != nullptr)
    return channel_->send_answer(served, std::move(reply));
  Answer answer{served, std::move(reply)};
  AttachedBody dropped;  // goes after the lock, as the answer does when the channel is closed
  const std::lock_guard lock(mutex_);
  if (loop_ == nullptr) return;
  if (answer.reply) take_from_account(answer, dropped);
  waiting_.answers.push_back(std::move(answer));
  call_channel_if_first();
}

// The loop may not come to it for long: handlers on many threads, or a caller that has to drive it and does
// not, would fill the memory meanwhile.
void AnswerBox::take_from_account(Answer& answer, AttachedBody& dropped) {
  std::uint64_t bytes = answer.reply->size();
  Fate* fate = nullptr;
  if (any_fates_.load(std::memory_order_relaxed)) {
    const auto found = fates_.find(answer.served.packed());
    if (found != fates_.end()) {
      fate = &found->second;
      bytes += owned_bytes(fate->attachments);
    }
  }
  if (bytes <= large_bytes_) return;
  answer.held = account_->take(bytes);
  if (answer.held) return;
  answer.refused_bytes = bytes;
  dropped.body.swap(*answer.reply);
  if (fate != nullptr) dropped.attachments.swap(fate->attachments);
}

void AnswerBox::call_channel_if_first() {
  if (waiting_.answers.size() + waiting_.streams.size() + waiting_.messages.size() > 1)
    return;  // the channel was called already and takes all
  loop_->post([box = shared_from_this()] {
    if (box->channel_ != nullptr) box->channel_->take_answers();
  });
}

void AnswerBox::granted(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  if (loop_ == nullptr) return;
  loop_->post([box = shared_from_this(), ticket] {
    if (box->channel_ != nullptr) box->channel_->on_granted(Handle::unpack(ticket));
  });
}

void AnswerBox::attend(std::uint64_t key) {
  if (at_once_ != nullptr && at_once_->box_ == this && channel_ != nullptr) return channel_->attend_user(key);
  const std::lock_guard lock(mutex_);
  if (loop_ == nullptr) return;
  waiting_.streams.push_back(key);
  call_channel_if_first();
}

// Does nothing in a forked child: a thread of the parent may have held the lock, and there is no
// loop.
void AnswerBox::give_back(std::uint64_t tag, std::uint64_t number, Payload&& message) noexcept {
  if (process_ != fork_generation()) return;
  const std::lock_guard lock(mutex_);
  if (loop_ == nullptr) return;
  count_given_back();
  waiting_.messages.push_back({tag, number, std::move(message)});
  call_channel_if_first();
}

std::shared_ptr<StreamEnd> AnswerBox::stream(std::uint64_t ticket) const {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(ticket);
  return found == streams_.end() ? nullptr : found->second;
}

void AnswerBox::add_stream(std::uint64_t ticket, std::shared_ptr<StreamEnd> stream) {
  const std::lock_guard lock(mutex_);
  streams_.emplace(ticket, std::move(stream));
}

void AnswerBox::remove_stream(std::uint64_t ticket) {
  std::shared_ptr<StreamEnd> gone;
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(ticket);
  if (found == streams_.end()) return;
  gone = std::move(found->second);  // goes after the lock
  streams_.erase(found);
}

bool AnswerBox::cancelled(std::uint64_t ticket, TimePoint deadline) const noexcept {
  if (closed_.load(std::memory_order_relaxed)) return true;
  if (deadline != kNever && deadline <= clock_.now()) return true;
  if (!any_fates_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(mutex_);
  const auto fate = fates_.find(ticket);
  return fate != fates_.end() && fate->second.cancelled;
}

void AnswerBox::on_cancel(std::uint64_t ticket, Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (loop_ != nullptr) {
      Fate& fate = fates_[ticket];
      any_fates_.store(true, std::memory_order_relaxed);
      if (!fate.cancelled) return fate.told.push_back(std::move(task));
    }
  }
  task();  // it has happened already
}

AnswerBox::Waiting AnswerBox::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(waiting_, {});
}

void AnswerBox::cancel(std::uint64_t ticket) {
  std::vector<Task> told;
  {
    const std::lock_guard lock(mutex_);
    Fate& fate = fates_[ticket];
    any_fates_.store(true, std::memory_order_relaxed);
    fate.cancelled = true;
    told.swap(fate.told);
  }
  for (Task& task : told) task();
}

void AnswerBox::attach(std::uint64_t ticket, Attachments attachments) {
  const std::lock_guard lock(mutex_);
  if (loop_ == nullptr) return;
  fates_[ticket].attachments = std::move(attachments);
  any_fates_.store(true, std::memory_order_relaxed);
}

AnswerBox::Fate AnswerBox::forget(std::uint64_t ticket) {
  Fate fate;  // its tasks go after the lock
  const std::lock_guard lock(mutex_);
  const auto found = fates_.find(ticket);
  if (found == fates_.end()) return fate;
  fate = std::move(found->second);
  fates_.erase(found);
  any_fates_.store(!fates_.empty(), std::memory_order_relaxed);
  return fate;
}

void AnswerBox::close() {
  Waiting dropped;
  std::unordered_map<std::uint64_t, Fate> fates;
  std::unordered_map<std::uint64_t, std::shared_ptr<StreamEnd>> streams;
  closed_.store(true, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    loop_ = nullptr;
    channel_ = nullptr;
    dropped = std::exchange(waiting_, {});
    streams.swap(streams_);
    fates.swap(fates_);
    any_fates_.store(false, std::memory_order_relaxed);
  }
  for (auto& [ticket, fate] : fates) {
    for (Task& task : fate.told) task();
  }
}

}  // namespace slime::rpc
