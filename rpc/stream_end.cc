#include "rpc/stream_end.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "rpc/answer_box.h"

namespace slime::rpc {
namespace {

template <class T>
void complete_later(StreamEnd::Done& done, Promise<T>&& promise, Result<T>&& result) {
  done.push_back([promise = std::move(promise), result = std::move(result)]() mutable {
    promise.complete(std::move(result));
  });
}

// How a read ends when no message is left.
Result<StreamEnd::Message> nothing_left(const Status& reason) {
  if (reason.ok()) return StreamEnd::Message();
  return reason;
}

}  // namespace

// ------------------------------------------------------------------------------------------------- the user

Future<None> StreamEnd::write(ByteVector message) {
  bool wakes = false;
  Future<None> out;
  {
    const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(mutex_);
    if (!ready_.empty()) {
      Payload message = std::move(ready_.front());
      ready_.pop_front();
      ready_bytes_ -= message.bytes().size();
      ++taken_;
      wakes = (std::exchange(hungry_, false) || credit_due()) && want();
      out = Future<Message>::ready(Message(std::move(message)));
    } else if (read_ended_ || peer_closed_) {
      return Future<Message>::ready(nothing_left(read_ended_ ? *read_ended_ : Status()));
    } else if (discarding_) {
      return Future<Message>::ready(
          Status(Code::kInvalidArgument, "the messages of this stream are dropped"));
    } else if (readers_.size() >= limits::kStreamWaiting) {
      return Future<Message>::ready(
          Status(Code::kResourceExhausted, str(readers_.size(), " reads of this stream wait already")));
    } else {
      readers_.emplace_back(driver_);
      out = readers_.back().future();
      reading_ = true;
      wakes = credit_due() && want();
    }
  }
  if (wakes) wake();
  return out;
}

void StreamEnd::close_writing() {
  {
    const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(mutex_);
    if (std::exchange(reading_, true) || !want()) return;
  }
  wake();
}

void StreamEnd::discard() {
  std::deque<Payload> dropped;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(discarding_, true)) return;
    reading_ = true;
    taken_ += ready_.size();
    ready_bytes_ = 0;
    dropped.swap(ready_);
    if (!want()) return;
  }
  wake();
}

// ---------------------------------------------------------------------------------- with the lock, for both

// Besides the credit: what is accepted lies in this process until the wire, or the peer, has taken it.
bool StreamEnd::accepts(std::size_t bytes) const {
  return accepted_count_ < credit_ && accepted_count_ - sent_count_ < terms_.options.window &&
         (held_bytes_ == 0 || held_bytes_ + bytes <= terms_.options.window_bytes);
}

Status StreamEnd::check_size(std::size_t bytes) const {
  if (bytes <= terms_.max_message_bytes) return {};
  return Status(Code::kInvalidArgument,
                str("a message of ", bytes, " bytes: the peer takes at most ", terms_.max_message_bytes));
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

// Half of the window at a time, so that few frames tell of many messages.
bool StreamEnd::credit_due() const {
  return owes() &&
         taken_ + terms_.options.window - granted_ >= std::max<std::size_t>(1, terms_.options.window / 2);
}

bool StreamEnd::owes() const {
  return reading_ && !peer_closed_ && !read_ended_ && box_ != nullptr &&
         taken_ + terms_.options.window > granted_;
}

StreamEnd::Pause StreamEnd::pause() const {
  const std::lock_guard lock(mutex_);
  return {!ready_.empty(), !readers_.empty() || !waiting_.empty(), owes()};
}

bool StreamEnd::want() { return box_ != nullptr && !std::exchange(wanted_, true); }

// Without the lock. What it reads does not change once there is a channel.
void StreamEnd::wake() { box_->attend(key_); }

// ---------------------------------------------------------------------------------------------- the channel

void StreamEnd::bind(std::shared_ptr<AnswerBox> box, std::uint64_t key, const Terms& terms) {
  const std::lock_guard lock(mutex_);
  SLIME_CHECK(box_ == nullptr && terms.options.window > 0);
  box_ = std::move(box);
  key_ = key;
  terms_ = terms;
}

StreamEnd::Wants StreamEnd::attend(bool all) {
  const std::lock_guard lock(mutex_);
  wanted_ = false;
  Wants out;
  if (credit_due() || (all && owes())) out.credit = granted_ = taken_ + terms_.options.window;
  out.end = write_closed_;
  return out;
}

std::optional<ByteVector> StreamEnd::next() {
  const std::lock_guard lock(mutex_);
  if (accepted_.empty()) return std::nullopt;
  ByteVector out = std::move(accepted_.front());
  accepted_.pop_front();
  return out;
}

bool StreamEnd::all_sent() const {
  const std::lock_guard lock(mutex_);
  return accepted_.empty() && waiting_.empty();
}

void StreamEnd::sent() {
  const std::lock_guard lock(mutex_);
  ++sent_count_;
}

void StreamEnd::freed(std::uint64_t bytes, Done& done) {
  const std::lock_guard lock(mutex_);
  held_bytes_ -= bytes;
  accept_waiting(done);
}

bool StreamEnd::credit(std::uint64_t messages, Done& done) {
  const std::lock_guard lock(mutex_);
  if (messages <= credit_) return false;
  credit_ = messages;
  accept_waiting(done);
  return true;
}

void StreamEnd::deliver(Payload&& message, Done& done) {
  const std::lock_guard lock(mutex_);
  if (discarding_ || read_ended_) {
    ++taken_;
  } else if (!readers_.empty()) {
    ++taken_;
    complete_later<Message>(done, std::move(readers_.front()), Message(std::move(message)));
    readers_.pop_front();
  } else {
    ready_bytes_ += message.bytes().size();
    ready_.push_back(std::move(message));
  }
}

bool StreamEnd::discarding() const {
  const std::lock_guard lock(mutex_);
  return discarding_;
}

void StreamEnd::peer_closed(Done& done) {
  const std::lock_guard lock(mutex_);
  peer_closed_ = true;
  for (auto& reader : std::exchange(readers_, {}))
    complete_later<Message>(done, std::move(reader), Message());
}

std::uint64_t StreamEnd::unread_bytes(bool hungry) {
  const std::lock_guard lock(mutex_);
  hungry_ = hungry;
  return ready_bytes_;
}

void StreamEnd::stop_writing(const Status& reason, Done& done) {
  const std::lock_guard lock(mutex_);
  if (write_ended_) return;
  write_ended_ = reason;
  for (const ByteVector& message : std::exchange(accepted_, {})) held_bytes_ -= message.size();
  for (Write& write : std::exchange(waiting_, {}))
    complete_later<None>(done, std::move(write.promise), reason);
}

void StreamEnd::stop_reading(const Status& reason, Done& done) {
  std::deque<Payload> unread;  // goes after the lock
  const std::lock_guard lock(mutex_);
  if (!read_ended_ || read_ended_->ok()) read_ended_ = reason;
  ready_bytes_ = 0;
  unread.swap(ready_);
  for (auto& reader : std::exchange(readers_, {}))
    complete_later<Message>(done, std::move(reader), nothing_left(*read_ended_));
}

void StreamEnd::finish_reading(const Status& reason, Done& done) {
  const std::lock_guard lock(mutex_);
  if (!read_ended_) read_ended_ = reason;
  for (auto& reader : std::exchange(readers_, {}))
    complete_later<Message>(done, std::move(reader), nothing_left(*read_ended_));
}

}  // namespace slime::rpc
