// An echo over ZeroMQ, DEALER to ROUTER:
// server ENDPOINT | client ENDPOINT SIZE INFLIGHT SECONDS [THREADS]
// Each thread of the client has a socket of its own; INFLIGHT is of all of them.
#include <zmq.h>

#include <cstring>
#include <deque>
#include <string_view>
#include <thread>

#include "bench/compare/load.h"

namespace {

void* open(void* context, int type, const char* endpoint, bool listens) {
  void* const socket = zmq_socket(context, type);
  const int none = 0;  // no limit of queued messages: the window is the limit
  zmq_setsockopt(socket, ZMQ_SNDHWM, &none, sizeof none);
  zmq_setsockopt(socket, ZMQ_RCVHWM, &none, sizeof none);
  zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
  if ((listens ? zmq_bind(socket, endpoint) : zmq_connect(socket, endpoint)) != 0)
    peer::fail(zmq_strerror(zmq_errno()));
  return socket;
}

int serve(const char* endpoint) {
  void* const socket = open(zmq_ctx_new(), ZMQ_ROUTER, endpoint, true);
  std::puts("READY");
  std::fflush(stdout);
  for (;;) {
    zmq_msg_t who;
    zmq_msg_t body;
    zmq_msg_init(&who);
    zmq_msg_init(&body);
    if (zmq_msg_recv(&who, socket, 0) < 0 || zmq_msg_recv(&body, socket, 0) < 0) return 1;
    if (zmq_msg_send(&who, socket, ZMQ_SNDMORE) < 0 || zmq_msg_send(&body, socket, 0) < 0) return 1;
  }
}

void run(void* context, const char* endpoint, const peer::Load& load, peer::Meter& meter) {
  void* const socket = open(context, ZMQ_DEALER, endpoint, false);
  const std::vector<char> payload(load.size, 'x');
  std::deque<peer::Clock::time_point> started;  // replies come in order
  const auto send = [&] {
    started.push_back(peer::Clock::now());
    if (zmq_send(socket, payload.data(), payload.size(), 0) < 0) peer::fail(zmq_strerror(zmq_errno()));
  };
  for (std::size_t i = 0; i < load.inflight; ++i) send();
  std::vector<char> reply(load.size + 1);
  for (bool more = true; more;) {
    const int got = zmq_recv(socket, reply.data(), reply.size(), 0);
    if (got != static_cast<int>(load.size) || std::memcmp(reply.data(), payload.data(), load.size) != 0)
      peer::fail("wrong data");
    more = meter.add(started.front());
    started.pop_front();
    if (more) send();
  }
}

int load(const char* endpoint, peer::Load load, std::size_t threads) {
  if (threads == 0 || load.inflight % threads != 0) peer::fail("INFLIGHT is a multiple of THREADS");
  load.inflight /= threads;
  void* const context = zmq_ctx_new();
  std::vector<peer::Meter> meters(threads, peer::Meter(load));
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < threads; ++i)
    others.emplace_back([&, i] { run(context, endpoint, load, meters[i]); });
  run(context, endpoint, load, meters[0]);
  for (std::thread& other : others) other.join();
  for (std::size_t i = 1; i < threads; ++i) meters[0].add(meters[i]);
  meters[0].print();
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3 && std::string_view(arguments[1]) == "server") return serve(arguments[2]);
  if ((count == 6 || count == 7) && std::string_view(arguments[1]) == "client")
    return load(arguments[2], peer::load_of(arguments + 3),
                count == 7 ? std::strtoull(arguments[6], nullptr, 10) : 1);
  peer::fail("server ENDPOINT | client ENDPOINT SIZE INFLIGHT SECONDS [THREADS]");
}
