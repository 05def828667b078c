// Two peers that find each other by name through nanoctrl. The client writes into a region of the
// server and notifies it; the server answers with a message.
//
//   nanoctrl start --port 4479
//   named_peers serve  NAME CTRL_URL   such as: named_peers serve worker:0 http://127.0.0.1:4479
//   named_peers client NAME CTRL_URL   uses the peer NAME, in any process and on any host
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "agent/peer_agent.h"

namespace {

constexpr std::uint64_t kAnswer = 2;  // the tag of messages

int fail(const slime::Status& status) {
  std::fprintf(stderr, "named_peers: %s\n", status.to_string().c_str());
  return 1;
}

int serve(slime::PeerAgent& agent) {
  auto board = agent.allocate(4096, slime::Rights::kReadWrite);
  if (!board) return fail(board.error());
  if (const slime::Status status = agent.publish("board", *board); !status.ok()) return fail(status);
  // `length` is the number of bytes that the peer wrote to `board`; all of them have arrived. The
  // handler runs on the agent's loop, so it must be short.
  agent.on_imm([&board](slime::Peer peer, std::uint32_t length) {
    const std::size_t size = std::min<std::size_t>(length, board->length_bytes());  // the peer's word
    const std::string text(reinterpret_cast<const char*>(board->data()), size);
    peer.send(kAnswer, slime::as_bytes("read on the board: " + text)).then([](const auto&) {});
  });
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line) && !line.empty();) {
  }
  agent.close().ignore();  // no handler runs afterwards, so `board` may be destroyed
  return 0;
}

int client(slime::PeerAgent& agent, const std::string& name) {
  slime::Peer peer = agent.peer(name);
  auto board = peer.region("board");
  if (!board) return fail(board.error());
  auto note = agent.allocate(4096, slime::Rights::kLocal);
  if (!note) return fail(note.error());
  const std::string text = "hello from " + agent.name();
  std::copy(text.begin(), text.end(), reinterpret_cast<char*>(note->data()));
  const slime::Copy copy[] = {{*note, 0, *board, 0, text.size()}};
  // The peer is notified once all bytes of this write have arrived.
  auto written = peer.write_with_imm(copy, static_cast<std::uint32_t>(text.size())).wait();
  if (!written) return fail(written.error());
  auto reply = peer.recv(kAnswer).wait();
  if (!reply) return fail(reply.error());
  std::printf("%s: %s\n", name.c_str(), std::string(slime::as_text(reply->bytes())).c_str());
  const auto peers = agent.list_peers();
  if (!peers) return fail(peers.error());
  std::printf("%s\n", to_json(*peers).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if ((role != "serve" && role != "client") || argc != 4) {
    std::fprintf(stderr, "usage: named_peers serve|client NAME CTRL_URL\n");
    return 2;
  }
  slime::PeerAgentOptions options;
  if (role == "serve") options.name = argv[2];
  options.ctrl_url = argv[3];
  if (const char* provider = std::getenv("SLIME_PROVIDER")) options.provider = provider;  // such as "verbs"
  auto agent = slime::PeerAgent::start(options);
  if (!agent) return fail(agent.error());
  return role == "serve" ? serve(**agent) : client(**agent, argv[2]);
}
