// Methods that stream, in either direction and in both. The Python example
// (examples/python/stream.py) can be either side.
//
//   stream serve                 serves Text, prints its address; ends with Enter or end of input
//   stream client HOST:PORT      reads, writes, and does both
#include <cctype>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "agent/peer_agent.h"

namespace {

using slime::None, slime::Status, slime::rpc::ServerStream;

// Writes each word once the caller has room for it, and stops when the caller cancels the stream.
Status words(ServerStream<None, std::string>& out, const std::string& text) {
  std::istringstream in(text);
  for (std::string word; in >> word;) SLIME_TRY(out.write(word).wait().status());
  return {};
}

slime::Result<long> count(ServerStream<std::string, None>& lines) {
  long words = 0;
  auto line = lines.read().wait();
  for (; line && *line; line = lines.read().wait()) {
    std::istringstream in(**line);
    for (std::string word; in >> word;) ++words;
  }
  return line ? slime::Result<long>(words) : line.error();
}

Status upper(ServerStream<std::string, std::string>& lines) {
  auto line = lines.read().wait();
  for (; line && *line; line = lines.read().wait()) {
    for (char& c : **line) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    SLIME_TRY(lines.write(**line).wait().status());
  }
  return line.status();
}

Status serve(slime::PeerAgent& agent) {
  slime::rpc::Service text("Text");
  SLIME_TRY(text.add("words", words, {.parameters = {"text"}}));
  SLIME_TRY(text.add("count", count));
  SLIME_TRY(text.add("upper", upper));
  SLIME_TRY(agent.serve(text));
  std::cout << agent.address() << std::endl;
  std::cin.get();
  return {};
}

Status client(slime::Peer peer) {
  auto words = peer.stream<None, std::string>("Text", "words", "streams of many words");
  auto word = words.read().wait();
  for (; word && *word; word = words.read().wait()) std::cout << "word: " << **word << '\n';
  SLIME_TRY(word.status());
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "first ";
  // Reads only the first word: destroying the stream object cancels the rest.
  word = peer.stream<None, std::string>("Text", "words", many).read().wait();
  SLIME_TRY(word.status());
  std::cout << "only: " << word->value_or("nothing") << '\n';

  auto lines = peer.stream<std::string, None, long>("Text", "count");
  for (int i = 0; i < 1000; ++i)  // waits while the method is slower
    SLIME_TRY(lines.write("line " + std::to_string(i)).wait().status());
  const auto written = lines.finish().wait();
  SLIME_TRY(written.status());
  std::cout << "words written: " << *written << "\nupper: ";

  auto both = peer.stream<std::string, std::string>("Text", "upper");
  for (const char* line : {"a", "b", "c"}) {
    SLIME_TRY(both.write(line).wait().status());
    word = both.read().wait();
    SLIME_TRY(word.status());
    std::cout << word->value_or("nothing");
  }
  std::cout << std::endl;
  return both.finish().wait().status();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if ((role != "serve" || argc != 2) && (role != "client" || argc != 3)) {
    std::cerr << "usage: stream serve | stream client HOST:PORT\n";
    return 2;
  }
  const char* provider = std::getenv("SLIME_PROVIDER");  // such as "verbs"
  auto agent = slime::PeerAgent::start(
      {.name = "stream-" + role, .provider = provider != nullptr ? provider : "auto"});
  const Status status = !agent            ? agent.error()
                        : role == "serve" ? serve(**agent)
                                          : client((*agent)->peer(argv[2]));
  if (!status.ok()) std::cerr << "stream: " << status.to_string() << '\n';
  return status.ok() ? 0 : 1;
}
