#include "rpc/channel/answer_box.h"

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
  if (at_once_ != nullptr && at_once_->box_ == this && host_ != nullptr)
    return host_->send_answer(served, std::move(reply));
  Answer answer{served, std::move(reply)};
  // destroyed after the lock is released; so is `answer` if the channel is closed
  AttachedBody dropped;
  const MutexLock lock(mutex_);
  if (loop_ == nullptr) return;
  if (answer.reply) take_from_account(answer, dropped);
  waiting_.answers.push_back(std::move(answer));
  call_host_if_first();
}

// Takes the bytes of a large answer from the account, which bounds the memory of waiting answers:
// the loop may send late, because handlers on many threads are faster, or because its user does not
// drive it. Without room in the account, moves the answer's bytes into `dropped`.
void AnswerBox::take_from_account(Answer& answer, AttachedBody& dropped) {
  std::uint64_t bytes = answer.reply->size();
  Notes* noted = nullptr;
  if (has_notes_.load(std::memory_order_relaxed)) {
    const auto found = notes_.find(answer.served.packed());
    if (found != notes_.end()) {
      noted = &found->second;
      bytes += owned_bytes(noted->attachments);
    }
  }
  if (bytes <= large_bytes_) return;
  answer.held = account_->take(bytes);
  if (answer.held) return;
  answer.refused_bytes = bytes;
  dropped.body.swap(*answer.reply);
  if (noted != nullptr) dropped.attachments.swap(noted->attachments);
}

void AnswerBox::call_host_if_first() {
  if (waiting_.answers.size() + waiting_.streams.size() + waiting_.messages.size() > 1)
    return;  // an earlier item has already called the host, which takes all items
  loop_->post([box = shared_from_this()] {
    if (box->host_ != nullptr) box->host_->take_answers();
  });
}

void AnswerBox::granted(std::uint64_t ticket) {
  const MutexLock lock(mutex_);
  if (loop_ == nullptr) return;
  loop_->post([box = shared_from_this(), ticket] {
    if (box->host_ != nullptr) box->host_->on_granted(Handle::unpack(ticket));
  });
}

void AnswerBox::attend(std::uint64_t key) {
  if (at_once_ != nullptr && at_once_->box_ == this && host_ != nullptr) return host_->attend_user(key);
  const MutexLock lock(mutex_);
  if (loop_ == nullptr) return;
  waiting_.streams.push_back(key);
  call_host_if_first();
}

// Does nothing in a forked child, which has no loop, and where a thread of the parent process may
// have held the lock at the fork.
void AnswerBox::give_back(std::uint64_t tag, std::uint64_t number, Payload&& message) noexcept {
  if (process_ != fork_generation()) return;
  const MutexLock lock(mutex_);
  if (loop_ == nullptr) return;
  count_given_back();
  waiting_.messages.push_back({tag, number, std::move(message)});
  call_host_if_first();
}

std::shared_ptr<StreamEnd> AnswerBox::stream(std::uint64_t ticket) const {
  const MutexLock lock(mutex_);
  const auto found = streams_.find(ticket);
  return found == streams_.end() ? nullptr : found->second;
}

void AnswerBox::add_stream(std::uint64_t ticket, std::shared_ptr<StreamEnd> stream) {
  const MutexLock lock(mutex_);
  streams_.emplace(ticket, std::move(stream));
}

void AnswerBox::remove_stream(std::uint64_t ticket) {
  std::shared_ptr<StreamEnd> gone;
  const MutexLock lock(mutex_);
  const auto found = streams_.find(ticket);
  if (found == streams_.end()) return;
  gone = std::move(found->second);  // destroyed after the lock
  streams_.erase(found);
}

bool AnswerBox::cancelled(std::uint64_t ticket, TimePoint deadline) const noexcept {
  if (closed_.load(std::memory_order_relaxed)) return true;
  if (deadline != kNever && deadline <= clock_.now()) return true;
  if (!has_notes_.load(std::memory_order_relaxed)) return false;
  const MutexLock lock(mutex_);
  const auto noted = notes_.find(ticket);
  return noted != notes_.end() && noted->second.cancelled;
}

void AnswerBox::on_cancel(std::uint64_t ticket, Task task) {
  {
    const MutexLock lock(mutex_);
    if (loop_ != nullptr) {
      Notes& noted = notes_[ticket];
      has_notes_.store(true, std::memory_order_relaxed);
      if (!noted.cancelled) return noted.on_cancel.push_back(std::move(task));
    }
  }
  task();  // the request is already cancelled, or the channel is closed: runs the task at once
}

AnswerBox::Waiting AnswerBox::take() {
  const MutexLock lock(mutex_);
  return std::exchange(waiting_, {});
}

void AnswerBox::cancel(std::uint64_t ticket) {
  std::vector<Task> told;
  {
    const MutexLock lock(mutex_);
    Notes& noted = notes_[ticket];
    has_notes_.store(true, std::memory_order_relaxed);
    noted.cancelled = true;
    told.swap(noted.on_cancel);
  }
  for (Task& task : told) task();
}

void AnswerBox::attach(std::uint64_t ticket, Attachments attachments) {
  const MutexLock lock(mutex_);
  if (loop_ == nullptr) return;
  notes_[ticket].attachments = std::move(attachments);
  has_notes_.store(true, std::memory_order_relaxed);
}

AnswerBox::Notes AnswerBox::take_notes(std::uint64_t ticket) {
  Notes noted;  // declared before the lock, so its tasks are destroyed after the lock is released
  const MutexLock lock(mutex_);
  const auto found = notes_.find(ticket);
  if (found == notes_.end()) return noted;
  noted = std::move(found->second);
  notes_.erase(found);
  has_notes_.store(!notes_.empty(), std::memory_order_relaxed);
  return noted;
}

void AnswerBox::close() {
  Waiting dropped;
  std::unordered_map<std::uint64_t, Notes> notes;
  std::unordered_map<std::uint64_t, std::shared_ptr<StreamEnd>> streams;
  closed_.store(true, std::memory_order_relaxed);
  {
    const MutexLock lock(mutex_);
    loop_ = nullptr;
    host_ = nullptr;
    dropped = std::exchange(waiting_, {});
    streams.swap(streams_);
    notes.swap(notes_);
    has_notes_.store(false, std::memory_order_relaxed);
  }
  for (auto& [ticket, noted] : notes) {
    for (Task& task : noted.on_cancel) task();
  }
}

}  // namespace slime::rpc
