// The log that several nanoctrl share, with arbitrary contents: every replica refuses the same
// entries, decoded entries are encoded to the same bytes, and applying them never breaks a
// registry.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ctrl/store/log_format.h"
#include "ctrl/store/replay.h"

namespace {

using namespace slime;
using namespace slime::ctrl;

void apply(std::string_view head, std::string_view body, Registry& registry, Replay& replay) {
  const Result<LogEntry> entry = decode_entry(head, body);
  if (!entry) return;
  const EncodedEntry written = encode_entry(*entry);
  const Result<LogEntry> again = decode_entry(written.head, written.body);
  SLIME_CHECK(again);
  const EncodedEntry same = encode_entry(*again);
  SLIME_CHECK(same.head == written.head && same.body == written.body);
  replay.apply(registry, {replay.at().ms + entry->number % 20'000, replay.at().sequence + 1}, entry->command);
}

void restore(std::string_view chunk) {
  std::vector<Record> records;
  if (!decode_chunk(chunk, records).ok()) return;
  Result<RegistryState> state = decode_records(records);
  if (state) (void)Registry::restore({}, std::move(*state), EntryId{1'700'000'000'000, 0}.time());
}

}  // namespace

// Entries as "HEAD\nBODY", separated by zero bytes. The whole input is also decoded as a chunk of a
// snapshot, and as an id.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const auto id = EntryId::parse(input)) (void)id->time();
  restore(input);
  Registry registry({.epoch = 500});
  Replay replay({1'700'000'000'000, 0}, 0);
  std::string_view rest = input;
  while (true) {
    const std::size_t end = rest.find('\0');
    const std::string_view entry = rest.substr(0, end);
    const std::size_t line_end = entry.find('\n');
    apply(entry.substr(0, line_end),
          line_end == std::string_view::npos ? std::string_view() : entry.substr(line_end + 1), registry,
          replay);
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return 0;
}
