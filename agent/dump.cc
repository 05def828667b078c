#include "agent/dump.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "agent/agent_impl.h"
#include "agent/agents.h"
#include "agent/limits.h"
#include "base/fork.h"
#include "base/mutex.h"
#include "base/on_signal.h"
#include "base/str.h"

namespace slime {
namespace {

using Json = nlohmann::ordered_json;

struct Agents {
  Mutex mutex;
  std::vector<std::weak_ptr<PeerAgentImpl>> list SLIME_GUARDED_BY(mutex);
};
// Never destroyed: a signal may arrive while the process exits.
constinit PerProcess<Agents> agents;

// Returns a JSON value as text. Escapes bytes that could disturb a terminal, because peers choose
// their names.
std::string text_of(const Json& value) {
  if (!value.is_string()) return value.dump();
  std::string quoted = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return quoted.find('\\') == std::string::npos ? quoted.substr(1, quoted.size() - 2) : quoted;
}

bool left_out(const Json& value) {
  if (value.is_object()) return std::all_of(value.begin(), value.end(), &left_out);
  return value.is_null() || value.empty() || value == 0 || value == "" || value == false;
}

// Writes a line "TITLE: key value, key value", then its nested objects on indented lines.
void write(std::string& out, std::size_t depth, const std::string& title, const Json& object,
           std::string_view named_by) {
  out.append(2 * depth, ' ').append(title);
  const char* between = ": ";
  for (const auto& [key, value] : object.items()) {
    if (value.is_structured() || left_out(value) || key == named_by) continue;
    out.append(between).append(key).append(" ").append(text_of(value));
    between = ", ";
  }
  out += '\n';
  for (const auto& [key, value] : object.items()) {
    if (value.is_object() && !left_out(value)) write(out, depth + 1, key, value, "");
    if (!value.is_array()) continue;
    const bool peers = key == "peers";
    for (const Json& one : value)
      write(out, depth + 1, str(peers ? "peer " : "operation ", text_of(one[peers ? "name" : "what"])), one,
            peers ? "name" : "what");
  }
}

void write_to_stderr() {
  const std::string text = dump();
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // stderr is closed
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace

void agent::remember(const std::shared_ptr<PeerAgentImpl>& agent) {
  Agents& all = agents.get();
  const MutexLock lock(all.mutex);
  std::erase_if(all.list, [](const std::weak_ptr<PeerAgentImpl>& other) { return other.expired(); });
  all.list.push_back(agent);
}

std::vector<std::shared_ptr<PeerAgentImpl>> agent::remembered() {
  Agents& all = agents.get();
  const MutexLock lock(all.mutex);
  std::vector<std::shared_ptr<PeerAgentImpl>> out;
  for (const std::weak_ptr<PeerAgentImpl>& one : all.list) {
    if (auto alive = one.lock()) out.push_back(std::move(alive));
  }
  return out;
}

std::string dump() {
  const std::vector<std::shared_ptr<PeerAgentImpl>> all = agent::remembered();
  std::string out = str("slime: process ", ::getpid(), " has ", all.size(),
                        all.size() == 1 ? " agent" : " agents", "; what is 0 or empty is left out\n");
  for (const std::shared_ptr<PeerAgentImpl>& one : all) {
    const Json info = Json::parse(to_json(one->info(agent::limits::kDumpWait)));
    write(out, 0, str("agent ", text_of(info["name"])), info, "name");
  }
  return out + "slime: end of the dump\n";
}

Status dump_on_signal(int number) { return on_signal(number, &write_to_stderr); }

}  // namespace slime
