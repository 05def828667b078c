#include "transport/soft/ways.h"

#include <algorithm>

namespace slime::transport::soft {
namespace {

// Returns whether `copy` follows `before` directly on both sides, so that the peer can read the two
// as one block.
bool follows(const CopyBlock& before, const CopyBlock& copy) {
  return copy.local == before.local && copy.remote == before.remote &&
         copy.local_offset == before.local_offset + before.length_bytes &&
         copy.remote_offset == before.remote_offset + before.length_bytes;
}

}  // namespace

Way WayFinder::find(const OneSided& operation) {
  if (link_.memory == nullptr || operation.atomic()) return Way::kWire;
  Way way = Way::kWire;
  const RemoteRegion* remote = nullptr;
  PeerMemory::Reach reach;
  bool whole = false;  // each copy of the region can be made here
  for (const CopyBlock& copy : operation.copies) {
    if (copy.length_bytes == 0) continue;
    const RemoteRegion& region = *copy.remote;
    if (copy.remote != remote) {
      reach = link_.memory->reach(region);
      if (reach.way == PeerMemory::Way::kAsked) return Way::kOpen;
      remote = copy.remote;
      whole = reach.way == PeerMemory::Way::kDirect &&
              reach.window->covers(region, operation.need(), 0, region.length_bytes());
    }
    if (whole) {
      way = Way::kDirect;
      if (operation.one_pair) break;
      continue;
    }
    // A copy that the peer would refuse goes over the wire, so that the peer's refusal ends the
    // operation.
    if (reach.way == PeerMemory::Way::kWire ||
        !reach.window->covers(region, operation.need(), copy.remote_offset, copy.length_bytes))
      return operation.kind == Kind::kWrite ? fetch_or_wire(operation) : Way::kWire;
    way = Way::kDirect;
  }
  return way;
}

Way WayFinder::fetch_or_wire(const OneSided& operation) {
  if (fetch_denied_) return Way::kWire;
  std::uint64_t total = 0;
  std::uint64_t pieces = 0;
  const CopyBlock* before = nullptr;
  for (const CopyBlock& copy : operation.copies) {
    total += copy.length_bytes;
    pieces += before == nullptr || !follows(*before, copy) ? 1 : 0;
    before = &copy;
  }
  if (total < std::max(limits::kFetchLeastBytes, pieces * limits::kFetchLeastBlock)) return Way::kWire;
  const PeerMemory::Known known = link_.memory->peer_fetches();
  if (known != PeerMemory::Known::kYes) return known == PeerMemory::Known::kNo ? Way::kWire : Way::kOpen;
  const DeviceRegion* last = nullptr;
  for (const CopyBlock& copy : operation.copies) {
    if (copy.local == last) continue;
    last = copy.local;
    if (!record_of(copy).fetchable()) return Way::kWire;
  }
  return Way::kFetch;
}

Way WayFinder::decide(OneSided& operation) {
  if (operation.way == Way::kOpen) {
    operation.way = find(operation);
    if (operation.way == Way::kOpen) operation.started = true;  // the peer has been asked
  }
  // The peer was refused by its kernel after this operation's way was decided. Nothing of the
  // operation has been sent yet, so the wire can carry it.
  if (operation.way == Way::kFetch && fetch_denied_ && operation.next_copy == 0 && operation.copy_offset == 0)
    operation.way = Way::kWire;
  return operation.way;
}

void WayFinder::ask_ahead(const OneSided& operation) {
  if (link_.memory != nullptr && operation.kind == Kind::kRead)
    static_cast<void>(link_.memory->reach(*operation.copies.front().remote));
}

}  // namespace slime::transport::soft
