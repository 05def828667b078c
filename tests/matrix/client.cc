// A client of the matrix in C++:  matrix_client ADDRESS PROVIDER CTRL_URL SCOPE VICTIM
//
// Reads names of features, one per line, runs each feature and prints a line of JSON for it:
// feature, ok, error, ms. `matrix_client --features` prints the names of all features.
#include "tests/matrix/client.h"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace slime::matrix {
namespace {

std::vector<Feature> all_features() {
  std::vector<Feature> all;
  for (const auto part : {call_features(), ending_features(), server_features(), byte_features(),
                          stream_features(), attachment_features()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::string run_named(const Place& place, std::string_view name) {
  for (const Feature& feature : all_features()) {
    if (feature.name != name) continue;
    try {
      Run run(place, name);
      feature.run(run);
      return {};
    } catch (const std::exception& error) {
      return error.what();
    }
  }
  return "this client knows no such feature";
}

}  // namespace

Run::Run(const Place& where, std::string_view feature)
    : place(where), key(str(feature, "-", ::getpid())), agent(start()), peer(peer_of(*agent)) {}

std::unique_ptr<PeerAgent> Run::start(bool registered) const {
  PeerAgentOptions options;
  options.provider = place.provider;
  if (registered) {
    options.ctrl_url = place.ctrl;
    options.scope = place.scope;
  }
  return take(PeerAgent::start(std::move(options)), "an agent");
}

Peer Run::start_small(std::size_t workers, std::size_t queue_limit) {
  small_name = str("small-", key);
  return agent->peer(ask<std::string>("start_small", small_name, workers, queue_limit)).with_timeout(kSoon);
}

std::int64_t counter(const Peer& peer, std::string_view name) {
  return static_cast<std::int64_t>(value_of(peer.info().counters, name));
}

}  // namespace slime::matrix

namespace slime::matrix {
namespace {

int answer_all(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--features") {
    for (const Feature& feature : all_features()) std::printf("%s\n", std::string(feature.name).c_str());
    return 0;
  }
  if (argc != 6) return 2;
  const Place place{argv[1], argv[2], argv[3], argv[4], argv[5]};
  for (std::string name; std::getline(std::cin, name);) {
    const auto began = std::chrono::steady_clock::now();
    const std::string error = run_named(place, name);
    const auto took = std::chrono::steady_clock::now() - began;
    const nlohmann::json line = {{"feature", name},
                                 {"ok", error.empty()},
                                 {"error", error},
                                 {"ms", std::chrono::duration_cast<std::chrono::milliseconds>(took).count()}};
    std::printf("%s\n", line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace slime::matrix

int main(int argc, char** argv) {
  try {
    return slime::matrix::answer_all(argc, argv);
  } catch (const std::exception& error) {  // thrown by the JSON library
    std::fprintf(stderr, "matrix_client: %s\n", error.what());
    return 1;
  }
}
