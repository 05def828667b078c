// A service, and a client that calls it by the server's address, without a registry. The Python
// example (examples/python/call.py) can be either side.
//
//   call serve                 serves Calc and prints its address; ends with Enter or end of input
//   call client HOST:PORT      calls it
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "agent/peer_agent.h"

namespace {

int fail(const slime::Status& status) {
  std::fprintf(stderr, "call: %s\n", status.to_string().c_str());
  return 1;
}

int serve(slime::PeerAgent& agent) {
  slime::rpc::Service calc("Calc");
  // Methods are plain functions. Their arguments and results are sent as msgpack.
  slime::Status status = calc.add("add", [](long a, long b) { return a + b; });
  if (!status.ok()) return fail(status);
  status = calc.add("divide", [](double a, double b) -> slime::Result<double> {
    if (b == 0) return slime::Status(slime::Code::kInvalidArgument, "division by zero");
    return a / b;
  });
  if (!status.ok()) return fail(status);
  status = calc.add("total", [](const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum;
  });
  if (!status.ok()) return fail(status);
  status = agent.serve(calc);
  if (!status.ok()) return fail(status);
  std::printf("%s\n", agent.address().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line) && !line.empty();) {
  }
  return 0;
}

int client(slime::PeerAgent& agent, const std::string& address) {
  slime::Peer peer = agent.peer(address);
  const auto sum = peer.call<long>("Calc", "add", 40, 2).wait();
  if (!sum) return fail(sum.error());
  std::printf("40 + 2 = %ld\n", *sum);

  // Begins several calls, then takes their answers.
  slime::Future<double> half = peer.call<double>("Calc", "divide", 1.0, 2.0);
  slime::Future<double> total = peer.call<double>("Calc", "total", std::vector<double>{1.5, 2.5, 3.0});
  const auto half_value = half.wait();
  const auto total_value = total.wait();
  if (!half_value) return fail(half_value.error());
  if (!total_value) return fail(total_value.error());
  std::printf("1 / 2 = %g\ntotal = %g\n", *half_value, *total_value);

  // The caller gets the handler's error: a code for the program, and a text for people.
  const auto bad = peer.call<double>("Calc", "divide", 1.0, 0.0).wait();
  if (bad || bad.error().code() != slime::Code::kInvalidArgument)
    return fail({slime::Code::kInternal, "expected an error"});
  std::printf("1 / 0: %s\n", bad.error().to_string().c_str());
  const auto unknown = peer.call<double>("Calc", "power", 1.0, 0.0).wait();
  if (unknown || unknown.error().code() != slime::Code::kNotFound)
    return fail({slime::Code::kInternal, "expected not_found"});
  std::printf("power: %s\n", unknown.error().to_string().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if ((role != "serve" || argc != 2) && (role != "client" || argc != 3)) {
    std::fprintf(stderr, "usage: call serve | call client HOST:PORT\n");
    return 2;
  }
  const char* provider = std::getenv("SLIME_PROVIDER");  // such as "verbs"
  auto agent =
      slime::PeerAgent::start({.name = "call-" + role, .provider = provider != nullptr ? provider : "auto"});
  if (!agent) return fail(agent.error());
  return role == "serve" ? serve(**agent) : client(**agent, argv[2]);
}
