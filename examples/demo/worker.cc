// One of the two workers of scripts/demo.py. The other one, worker.py beside this file, serves the
// same methods.
//
//   demo_worker NAME CTRL_URL      serves Worker and prints "ready"; ends when its stdin ends
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "agent/dump.h"
#include "agent/peer_agent.h"

namespace {

using slime::Code;
using slime::Result;
using slime::Status;

constexpr std::size_t kBytes = std::size_t{256} << 20;
constexpr slime::Nanos kTimeout = std::chrono::seconds(60);

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Returns word i of the test data: i times a constant, plus seed. worker.py makes the same data.
std::uint64_t word(std::size_t i, std::uint64_t seed) { return i * 0x9e3779b97f4a7c15ULL + seed; }

std::span<std::uint64_t> words(const slime::MemoryRegion& region) {
  return {reinterpret_cast<std::uint64_t*>(region.data()), region.length_bytes() / sizeof(std::uint64_t)};
}

void fill(const slime::MemoryRegion& region, std::uint64_t seed) {
  const auto all = words(region);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = word(i, seed);
}

bool check(const slime::MemoryRegion& region, std::uint64_t seed) {
  const auto all = words(region);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != word(i, seed)) return false;
  }
  return true;
}

// Reads the block of the worker `other`, then writes it, and checks every byte each time. Returns
// the seconds that the read and the write took.
Result<std::vector<double>> exchange(slime::PeerAgent& agent, const std::string& other, std::uint64_t seed) {
  slime::Peer peer = agent.peer(other);
  auto remote = peer.region("block");
  if (!remote) return remote.error();
  auto local = agent.allocate(remote->length_bytes(), slime::Rights::kLocal);
  if (!local) return local.error();
  const slime::Copy whole[] = {{*local, 0, *remote, 0, remote->length_bytes()}};

  if (auto filled = peer.call<void>("Worker", "fill", seed).wait(kTimeout); !filled) return filled.error();
  auto begin = std::chrono::steady_clock::now();
  if (auto read = peer.read(whole, kTimeout).wait(); !read) return read.error();
  const double read_seconds = seconds_since(begin);
  if (!check(*local, seed)) return Status(Code::kCorrupt, "the bytes read from " + other + " are wrong");

  fill(*local, seed + 1);
  begin = std::chrono::steady_clock::now();
  if (auto written = peer.write(whole, kTimeout).wait(); !written) return written.error();
  const double write_seconds = seconds_since(begin);
  const auto right = peer.call<bool>("Worker", "check", seed + 1).wait(kTimeout);
  if (!right) return right.error();
  if (!*right) return Status(Code::kCorrupt, "the bytes written to " + other + " are wrong there");
  return std::vector<double>{read_seconds, write_seconds};
}

// Calls the worker `other` `count` times, one call after the other, and checks each answer. Returns
// the median and the 99th percentile of the calls' durations, in microseconds.
Result<std::vector<double>> calls(slime::PeerAgent& agent, const std::string& other, std::int64_t count) {
  slime::Peer peer = agent.peer(other);
  if (count < 1) return Status(Code::kInvalidArgument, "count must be positive");
  std::vector<double> micros;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto sum = peer.call<std::int64_t>("Worker", "add", i, 1000).wait(kTimeout);
    micros.push_back(seconds_since(begin) * 1e6);
    if (!sum) return sum.error();
    if (*sum != i + 1000) return Status(Code::kCorrupt, "a wrong sum from " + other);
  }
  std::sort(micros.begin(), micros.end());
  return std::vector<double>{micros[micros.size() / 2], micros[micros.size() * 99 / 100]};
}

Status serve(slime::PeerAgent& agent, const slime::MemoryRegion& block) {
  slime::rpc::Service service("Worker");
  SLIME_TRY(service.add("add", [](std::int64_t a, std::int64_t b) { return a + b; }));
  SLIME_TRY(service.add("fill", [&block](std::uint64_t seed) { fill(block, seed); }));
  SLIME_TRY(service.add("check", [&block](std::uint64_t seed) { return check(block, seed); }));
  SLIME_TRY(service.add("exchange", [&agent](const std::string& other, std::uint64_t seed) {
    return exchange(agent, other, seed);
  }));
  SLIME_TRY(service.add("calls", [&agent](const std::string& other, std::int64_t count) {
    return calls(agent, other, count);
  }));
  SLIME_TRY(agent.publish("block", block));
  return agent.serve(service);
}

int fail(const Status& status) {
  std::fprintf(stderr, "demo_worker: %s\n", status.to_string().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: demo_worker NAME CTRL_URL\n");
    return 2;
  }
  if (const Status status = slime::dump_on_signal(); !status.ok()) return fail(status);  // kill -USR1
  auto agent = slime::PeerAgent::start({.name = argv[1], .ctrl_url = argv[2], .kind = "worker"});
  if (!agent) return fail(agent.error());
  auto block = (*agent)->allocate(kBytes, slime::Rights::kReadWrite);
  if (!block) return fail(block.error());
  if (const Status status = serve(**agent, *block); !status.ok()) return fail(status);
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
  }
  const Status closed = (*agent)->close();
  return closed.ok() ? 0 : fail(closed);
}
