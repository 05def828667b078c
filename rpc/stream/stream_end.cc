#include "rpc/stream/stream_end.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "rpc/channel/answer_box.h"

namespace slime::rpc {
namespace {

template <class T>
void complete_later(StreamEnd::Done& done, Promise<T>&& promise, Result<T>&& result) {
  done.push_back([promise = std::move(promise), result = std::move(result)]() mutable {
    promise.complete(std::move(result));
  });
}

// Returns the outcome of a read for which no message is left.
Result<StreamEnd::Message> nothing_left(const Status& reason) {
  if (reason.ok()) return StreamEnd::Message();
  return reason;
}

}  // namespace

// ---------------------------------------------------------------------------------------- the user

Future<None> StreamEnd::write(ByteVector message) {
  bool wakes = false;
  Future<None> out;
  {
    const MutexLock lock(mutex_);
    if (write_ended_) return Future<None>::ready(*write_ended_);
    if (write_closed_)
      return Future<None>::ready(Status(Code::kInvalidArgument, "a message after close_writing()"));
    if (box_ != nullptr) {
      Status status = check_size(message.size());
      if (!status.ok()) return Future<None>::ready(std::move(status));
    }
    if (waiting_.empty() && accepts(message.size())) {
      accept(std::move(message));
      out = Future<None>::ready(None{});
      wakes = want();
    } else if (waiting_.size() >= limits::kStreamWaiting) {
      return Future<None>::ready(
          Status(Code::kResourceExhausted,
                 str(waiting_.size(), " messages of this stream wait for credits already")));
    } else {
      Promise<None> promise(driver_);
      out = promise.future();
      waiting_.push_back({std::move(message), std::move(promise)});
    }
  }
  if (wakes) wake();
  return out;
}

Future<StreamEnd::Message> StreamEnd::read() {
  bool wakes = false;
  Future<Message> out;
  {
    const MutexLock lock(mutex_);
    if (!ready_.empty() && reads_.empty()) {
      Promise<Message> promise;
      promise.complete(Message(take_first()));
      out = promise.owning_future();
      wakes = (std::exchange(notify_, false) || credit_due()) && want();
    } else if (reads_.empty() && (read_ended_ || peer_closed_)) {
      return Future<Message>::ready(nothing_left(read_ended_ ? *read_ended_ : Status()));
    } else if (discarding_) {
      return Future<Message>::ready(
          Status(Code::kInvalidArgument, "the messages of this stream are dropped"));
    } else if (reads_.size() >= limits::kStreamWaiting) {
      return Future<Message>::ready(
          Status(Code::kResourceExhausted, str(reads_.size(), " reads of this stream wait already")));
    } else {
      Promise<Message> promise(driver_);
      out = promise.owning_future();
      const std::uint64_t number = ++reads_begun_;
      promise.on_cancel([weak = weak_from_this(), number] {
        if (const auto self = weak.lock()) self->cancel_read(number);
      });
      reads_.push_back({std::move(promise), number});
      reading_ = true;
      wakes = credit_due() && want();
    }
  }
  if (wakes) wake();
  return out;
}

void StreamEnd::cancel_read(std::uint64_t number) {
  std::optional<Promise<Message>> promise;
  {
    const MutexLock lock(mutex_);
    const auto found =
        std::find_if(reads_.begin(), reads_.end(), [&](const Read& read) { return read.number == number; });
    // the read has already got its message, or the stream has ended
    if (found == reads_.end()) return;
    promise = std::move(found->promise);
    reads_.erase(found);
  }
  promise->complete(Status(Code::kCancelled, "the read was cancelled"));
}

// Puts the message back, and has the loop give it to a waiting read. Does nothing in a forked
// child: there a thread of the parent process may have held the lock.
void StreamEnd::give_back(std::uint64_t, std::uint64_t number, Payload&& message) noexcept {
  if (process_ != fork_generation()) return;
  bool wakes = false;
  {
    const MutexLock lock(mutex_);
    if (discarding_ || read_stopped_) return;
    const auto behind =
        std::find_if(ready_.begin(), ready_.end(), [&](const Ready& ready) { return ready.number > number; });
    ready_bytes_ += message.bytes().size();
    ready_.insert(behind, {std::move(message), number, true});
    if (box_ != nullptr) box_->count_given_back();
    wakes = !reads_.empty() && box_ != nullptr;
  }
  if (wakes) wake();
}

void StreamEnd::close_writing() {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(write_closed_, true) || !want()) return;
  }
  wake();
}

void StreamEnd::stop(const Status& reason) {
  Done done;
  stop_writing(reason, done);
  stop_reading(reason, done);
  for (Task& task : done) task();
}

void StreamEnd::start_reading() {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(reading_, true) || !want()) return;
  }
  wake();
}

void StreamEnd::discard() {
  std::deque<Ready> dropped;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(discarding_, true)) return;
    reading_ = true;
    for (const Ready& ready : ready_) taken_ += ready.counted ? 0 : 1;
    ready_bytes_ = 0;
    dropped.swap(ready_);
    if (!want()) return;
  }
  wake();
}

// ------------------------------------------------------------------------- with the lock, for both

// Returns whether a message of this size may be accepted now. Checks the peer's credits, and bounds
// the accepted messages that are in memory until they are sent and read.
bool StreamEnd::accepts(std::size_t bytes) const {
  return accepted_count_ < credit_ && accepted_count_ - sent_count_ < terms_.options.window &&
         (held_bytes_ == 0 || held_bytes_ + bytes <= terms_.options.window_bytes);
}

Status StreamEnd::check_size(std::size_t bytes) const {
  if (bytes <= terms_.max_message_bytes) return {};
  return Status(Code::kInvalidArgument, str("a message of ", bytes, " bytes: the peer takes at most ",
                                            terms_.max_message_bytes, " (its max_payload_bytes)"));
}

void StreamEnd::accept(ByteVector&& message) {
  ++accepted_count_;
  held_bytes_ += message.size();
  accepted_.push_back(std::move(message));
}

void StreamEnd::accept_waiting(Done& done) {
  while (!waiting_.empty()) {
    Write& first = waiting_.front();
    Status status = check_size(first.message.size());
    if (status.ok() && !accepts(first.message.size())) return;
    if (status.ok()) {
      accept(std::move(first.message));
      complete_later<None>(done, std::move(first.promise), None{});
    } else {
      complete_later<None>(done, std::move(first.promise), std::move(status));
    }
    waiting_.pop_front();
  }
}

Delivery StreamEnd::take_first() {
  Ready first = std::move(ready_.front());
  ready_.pop_front();
  ready_bytes_ -= first.message.bytes().size();
  if (!first.counted) ++taken_;
  return {shared_from_this(), 0, first.number, std::move(first.message)};
}

// Adds a task to `done` that serves the waiting reads in order: first with messages, then with the
// end. A read stays first in reads_ until it has completed with its message. If the read was given
// up, its message is put back before the next read is served.
void StreamEnd::match(Done& done) {
  if (reads_.empty()) return;
  done.push_back([self = shared_from_this()] {
    for (;;) {
      std::optional<Promise<Message>> promise;
      Result<Message> outcome = Message();
      bool wakes = false;
      {
        const MutexLock lock(self->mutex_);
        if (self->reads_.empty() || self->reads_.front().number == 0) return;  // 0: being served
        if (!self->ready_.empty()) {
          outcome = Message(self->take_first());
          wakes = (std::exchange(self->notify_, false) || self->credit_due()) && self->want();
        } else if (self->read_ended_ || self->peer_closed_) {
          outcome = nothing_left(self->read_ended_ ? *self->read_ended_ : Status());
        } else {
          return;
        }
        promise.emplace(std::move(self->reads_.front().promise));
        self->reads_.front().number = 0;
      }
      promise->complete(std::move(outcome));
      promise.reset();
      if (wakes) self->wake();
      const MutexLock lock(self->mutex_);
      self->reads_.pop_front();
    }
  });
}

// Returns whether credits should be sent now: at least half a window of them, so that one frame
// gives credits for many messages.
bool StreamEnd::credit_due() const {
  return owes() &&
         taken_ + terms_.options.window - granted_ >= std::max<std::size_t>(1, terms_.options.window / 2);
}

bool StreamEnd::owes() const {
  return reading_ && !peer_closed_ && !read_ended_ && box_ != nullptr &&
         taken_ + terms_.options.window > granted_;
}

StreamEnd::Pause StreamEnd::pause() const {
  const MutexLock lock(mutex_);
  return {!ready_.empty(), !reads_.empty() || !waiting_.empty(), owes()};
}

bool StreamEnd::want() { return box_ != nullptr && !std::exchange(wanted_, true); }

// Wakes the channel. Needs no lock: box_ and key_ do not change after bind().
void StreamEnd::wake() { box_->attend(key_); }

// ------------------------------------------------------------------------------------- the channel

void StreamEnd::bind(std::shared_ptr<AnswerBox> box, std::uint64_t key, const Terms& terms) {
  const MutexLock lock(mutex_);
  SLIME_CHECK(box_ == nullptr && terms.options.window > 0);
  box_ = std::move(box);
  key_ = key;
  terms_ = terms;
}

StreamEnd::Wants StreamEnd::attend(bool all) {
  const MutexLock lock(mutex_);
  wanted_ = false;
  Wants out;
  if (credit_due() || (all && owes())) out.credit = granted_ = taken_ + terms_.options.window;
  out.end = write_closed_;
  return out;
}

std::optional<ByteVector> StreamEnd::next() {
  const MutexLock lock(mutex_);
  if (accepted_.empty()) return std::nullopt;
  ByteVector out = std::move(accepted_.front());
  accepted_.pop_front();
  return out;
}

bool StreamEnd::all_sent() const {
  const MutexLock lock(mutex_);
  return accepted_.empty() && waiting_.empty();
}

void StreamEnd::sent() {
  const MutexLock lock(mutex_);
  ++sent_count_;
}

void StreamEnd::freed(std::uint64_t bytes, Done& done) {
  const MutexLock lock(mutex_);
  held_bytes_ -= bytes;
  accept_waiting(done);
}

bool StreamEnd::credit(std::uint64_t messages, Done& done) {
  const MutexLock lock(mutex_);
  if (messages <= credit_) return false;
  credit_ = messages;
  accept_waiting(done);
  return true;
}

void StreamEnd::deliver(Payload&& message, Done& done) {
  const MutexLock lock(mutex_);
  if (discarding_ || read_ended_) {
    ++taken_;
    return;
  }
  ready_bytes_ += message.bytes().size();
  ready_.push_back({std::move(message), ++arrived_, false});
  match(done);
}

void StreamEnd::match_reads(Done& done) {
  const MutexLock lock(mutex_);
  wanted_ = false;  // reset here, because attend() is not called for a stream that has ended
  match(done);
}

bool StreamEnd::discarding() const {
  const MutexLock lock(mutex_);
  return discarding_;
}

void StreamEnd::peer_closed(Done& done) {
  const MutexLock lock(mutex_);
  peer_closed_ = true;
  match(done);
}

std::uint64_t StreamEnd::unread_bytes(bool notify) {
  const MutexLock lock(mutex_);
  notify_ = notify;
  return ready_bytes_;
}

void StreamEnd::stop_writing(const Status& reason, Done& done) {
  const MutexLock lock(mutex_);
  if (write_ended_) return;
  write_ended_ = reason;
  for (const ByteVector& message : std::exchange(accepted_, {})) held_bytes_ -= message.size();
  for (Write& write : std::exchange(waiting_, {}))
    complete_later<None>(done, std::move(write.promise), reason);
}

void StreamEnd::stop_reading(const Status& reason, Done& done) {
  std::deque<Ready> unread;  // destroyed after the lock
  const MutexLock lock(mutex_);
  if (!read_ended_ || read_ended_->ok()) read_ended_ = reason;
  read_stopped_ = true;
  // Completes waiting reads whose messages have arrived but were not delivered yet, because the end
  // came in the same turn.
  for (auto read = reads_.begin(); read != reads_.end() && !ready_.empty();) {
    if (read->number == 0) {  // being served
      ++read;
      continue;
    }
    complete_later<Message>(done, std::move(read->promise), Message(take_first()));
    read = reads_.erase(read);
  }
  ready_bytes_ = 0;
  unread.swap(ready_);
  match(done);
}

void StreamEnd::finish_reading(const Status& reason, Done& done) {
  const MutexLock lock(mutex_);
  if (!read_ended_) read_ended_ = reason;
  match(done);
}

}  // namespace slime::rpc
