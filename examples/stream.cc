// Methods that stream, in either direction and in both. Works with the Python twin on either side.
//
//   stream serve                 serves Text and prints its address; ends with Enter or end of input
//   stream client HOST:PORT      reads, writes, and does both
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "agent/peer_agent.h"

namespace {

using slime::None;
using slime::rpc::ServerStream;

int fail(const slime::Status& status) {
  std::fprintf(stderr, "stream: %s\n", status.to_string().c_str());
  return 1;
}

// Writes each word once its caller has room for it, and ends when that one wants no more.
slime::Status words(ServerStream<None, std::string>& out, const std::string& text) {
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    const auto written = out.write(word).wait();
    if (!written) return written.error();
  }
  return {};
}

slime::Result<long> count(ServerStream<std::string, None>& lines) {
  long words = 0;
  while (true) {
    const auto line = lines.read().wait();
    if (!line) return line.error();
    if (!*line) return words;  // the caller writes no more
    std::istringstream in(**line);
    for (std::string word; in >> word;) ++words;
  }
}

slime::Status upper(ServerStream<std::string, std::string>& lines) {
  while (true) {
    auto line = lines.read().wait();
    if (!line) return line.error();
    if (!*line) return {};
    for (char& c : **line) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const auto written = lines.write(**line).wait();
    if (!written) return written.error();
  }
}

int serve(slime::PeerAgent& agent) {
  slime::rpc::Service text("Text");
  slime::Status status = text.add("words", words, {.parameters = {"text"}});
  if (status.ok()) status = text.add("count", count);
  if (status.ok()) status = text.add("upper", upper);
  if (status.ok()) status = agent.serve(text);
  if (!status.ok()) return fail(status);
  std::printf("%s\n", agent.address().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line) && !line.empty();) {
  }
  return 0;
}

int read_words(slime::Peer& peer) {
  auto words = peer.stream<None, std::string>("Text", "words", "streams of many words");
  while (true) {
    const auto word = words.read().wait();
    if (!word) return fail(word.error());
    if (!*word) break;
    std::printf("word: %s\n", (*word)->c_str());
  }

  // Only the first one: dropping the stream cancels the rest.
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "first ";
  const auto first = peer.stream<None, std::string>("Text", "words", many).read().wait();
  if (!first) return fail(first.error());
  std::printf("only: %s\n", first->value_or("nothing").c_str());
  return 0;
}

int write_lines(slime::Peer& peer) {
  auto lines = peer.stream<std::string, None, long>("Text", "count");
  for (int i = 0; i < 1000; ++i) {
    const auto written = lines.write("line " + std::to_string(i)).wait();  // while the method is slower
    if (!written) return fail(written.error());
  }
  const auto words = lines.finish().wait();
  if (!words) return fail(words.error());
  std::printf("words written: %ld\n", *words);
  return 0;
}

int both_ways(slime::Peer& peer) {
  auto stream = peer.stream<std::string, std::string>("Text", "upper");
  std::string back;
  for (const char* line : {"a", "b", "c"}) {
    const auto written = stream.write(line).wait();
    if (!written) return fail(written.error());
    const auto read = stream.read().wait();
    if (!read) return fail(read.error());
    back += read->value_or("");
  }
  const auto end = stream.finish().wait();
  if (!end) return fail(end.error());
  std::printf("upper: %s\n", back.c_str());
  return 0;
}

int client(slime::PeerAgent& agent, const std::string& address) {
  slime::Peer peer = agent.peer(address);
  for (const auto part : {read_words, write_lines, both_ways}) {
    const int status = part(peer);
    if (status != 0) return status;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if ((role != "serve" || argc != 2) && (role != "client" || argc != 3)) {
    std::fprintf(stderr, "usage: stream serve | stream client HOST:PORT\n");
    return 2;
  }
  const char* provider = std::getenv("SLIME_PROVIDER");  // such as "verbs"
  auto agent = slime::PeerAgent::start(
      {.name = "stream-" + role, .provider = provider != nullptr ? provider : "auto"});
  if (!agent) return fail(agent.error());
  return role == "serve" ? serve(**agent) : client(**agent, argv[2]);
}
