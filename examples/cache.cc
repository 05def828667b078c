// Puts named objects into a cache and gets them back, one by one and in batches. The client in
// examples/python/cache.py works with this server, too.
//
//   cache serve                serves 64 MiB of cache, prints its address; ends with Enter
//   cache use HOST:PORT        uses a cache: of `cache serve`, or of `slime-cache start`
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "cache/client.h"
#include "cache/server.h"

namespace {

using slime::Status;
namespace cache = slime::cache;

int fail(const Status& status) {
  std::fprintf(stderr, "cache: %s\n", status.to_string().c_str());
  return 1;
}

int serve(slime::PeerAgent& agent) {
  const auto server = cache::CacheServer::start(agent, {.memory_bytes = 64 << 20});
  if (!server) return fail(server.error());
  std::printf("%s\n", agent.address().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line) && !line.empty();) {
  }
  return 0;
}

Status use(slime::PeerAgent& agent, const std::string& address) {
  auto created = cache::CacheClient::create(agent, address);
  if (!created) return created.error();
  cache::CacheClient client = std::move(*created);
  SLIME_TRY(client.put("texts", "greeting", std::string_view("hello, cache"), {.replace = true}));
  const auto greeting = client.get("texts", "greeting");
  if (!greeting) return greeting.error();
  std::printf("%.*s\n", static_cast<int>(greeting->size()), reinterpret_cast<const char*>(greeting->data()));

  // put() without `replace` keeps an existing object and returns kAlreadyExists. get() of a missing
  // object returns kNotFound.
  const Status again = client.put("texts", "greeting", std::string_view("bye"));
  std::printf("again: %s\n", std::string(slime::code_name(again.code())).c_str());
  const auto nothing = client.get("texts", "farewell");
  std::printf("farewell: %s\n", std::string(slime::code_name(nothing.status().code())).c_str());

  // Puts sixteen blocks of registered memory as one batch and gets them back, without copies.
  constexpr std::size_t kBlocks = 16, kBlockBytes = 256 * 1024;
  auto memory = agent.allocate(kBlocks * kBlockBytes, slime::Rights::kLocal);
  if (!memory) return memory.error();
  for (std::size_t i = 0; i < memory->length_bytes(); ++i)
    memory->data()[i] = static_cast<std::byte>(i / 1000);
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < kBlocks; ++i) keys.push_back("block-" + std::to_string(i));
  std::vector<cache::PutItem> puts;
  std::vector<cache::GetItem> gets;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    puts.push_back({keys[i], cache::Source(*memory, i * kBlockBytes, kBlockBytes)});
    gets.push_back({keys[i], cache::Target(*memory, i * kBlockBytes, kBlockBytes)});
  }
  for (const Status& status :
       client.put_many("blocks", puts, {.ttl = std::chrono::minutes(5), .replace = true}))
    SLIME_TRY(status);
  std::fill_n(memory->data(), memory->length_bytes(), std::byte{0});
  for (const auto& length : client.get_many("blocks", gets)) SLIME_TRY(length.status());
  for (std::size_t i = 0; i < memory->length_bytes(); ++i) {
    if (memory->data()[i] != static_cast<std::byte>(i / 1000))
      return {slime::Code::kCorrupt, "a block came back changed"};
  }
  std::printf("%zu blocks went and came back\n", kBlocks);
  return client.remove("texts", "greeting");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if ((role != "serve" || argc != 2) && (role != "use" || argc != 3)) {
    std::fprintf(stderr, "usage: cache serve | cache use HOST:PORT\n");
    return 2;
  }
  const char* provider = std::getenv("SLIME_PROVIDER");  // such as "verbs"
  auto agent =
      slime::PeerAgent::start({.name = "cache-" + role, .provider = provider != nullptr ? provider : "auto"});
  if (!agent) return fail(agent.error());
  if (role == "serve") return serve(**agent);
  const Status status = use(**agent, argv[2]);
  return status.ok() ? 0 : fail(status);
}
