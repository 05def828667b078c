#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "rpc/codec.h"
#include "rpc/server.h"

// Requests to a server without a channel.
namespace slime::rpc::testing {

using Answer = Result<ByteVector>;

// The channel's side of one request: keeps the one answer.
class Caller {
 public:
  Request request(std::string service, std::string method, ByteVector body, TimePoint deadline = kNever) {
    CallInfo info(std::make_shared<CallNames>(CallNames{"tester", std::move(service), std::move(method)}));
    info.deadline = deadline;
    return {std::move(info), Payload(std::move(body)), std::make_shared<Responder>(*this)};
  }
  Answer wait() { return answer_.get_future().get(); }
  [[nodiscard]] int answers() const { return answers_; }

 private:
  struct Responder final : Request::Responder {
    explicit Responder(Caller& c) : caller(c) {}
    void respond(std::uint64_t, Answer&& reply) noexcept override {
      ++caller.answers_;
      caller.answer_.set_value(std::move(reply));
    }
    void attach(std::uint64_t, Attachments) override {}
    [[nodiscard]] bool cancelled(std::uint64_t, TimePoint) const noexcept override { return false; }
    void on_cancel(std::uint64_t, Task) override {}
    Caller& caller;
  };
  std::promise<Answer> answer_;
  std::atomic<int> answers_{0};
};

template <class... A>
Answer call(Server& server, const std::string& service, const std::string& method, const A&... arguments) {
  Caller caller;
  server.handle(caller.request(service, method, encode_arguments(arguments...)));
  return caller.wait();
}

template <class T>
T value(const Answer& reply) {
  REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
  auto out = decode_value<T>(*reply);
  REQUIRE_MESSAGE(out.has_value(), out.status().to_string());
  return *out;
}

// Opens once; handlers wait for it.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++inside_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void wait_inside(int n) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::seconds(30), [&] { return inside_ >= n; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  bool open_ = false;
};

}  // namespace slime::rpc::testing
