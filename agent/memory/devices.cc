#include "agent/memory/devices.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/str.h"

namespace slime::agent {
// Opens the device of `entry`, whose provider exists already.
Status Devices::open_one(Entry& entry) {
  const std::string who = str("provider ", entry.name);
  SLIME_TRY(entry.provider->available().with_context(who));
  auto device = entry.provider->open_device();
  if (!device) return std::move(device).error().with_context(who);
  entry.device = std::move(*device);
  return {};
}

Result<std::shared_ptr<Devices>> Devices::open(std::string_view provider, transport::ProviderTable table,
                                               const transport::ProviderSettings& settings) {
  auto out = std::make_shared<Devices>();
  out->automatic_ = provider == kAuto;
  for (const transport::ProviderEntry& each : table) {
    if (!out->automatic_ && each.name != provider) continue;
    Entry entry;
    entry.name = each.name;
    entry.provider = each.make(settings);
    entry.traits = &entry.provider->traits();
    if (out->automatic_ && !entry.traits->automatic) continue;
    entry.status = open_one(entry);
    const bool needed = !out->automatic_ || entry.traits->reaches_everyone || entry.provider->required();
    if (!entry.status.ok() && (needed || entry.status.code() == Code::kInvalidArgument)) return entry.status;
    if (!entry.status.ok()) entry.provider.reset();
    out->entries_.push_back(std::move(entry));
  }
  if (out->entries_.empty()) return transport::make_provider(provider, table).status();
  const MutexLock lock(out->mutex_);
  for (const Entry& entry : out->entries_) out->used_.push_back(!out->optional(entry));
  return out;
}

Status Devices::status(std::size_t index) const {
  if (!entries_[index].status.ok()) return entries_[index].status;
  return entries_[index].device == nullptr ? Status() : entries_[index].device->usable();
}

std::optional<std::size_t> Devices::find(std::string_view provider) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].name == provider) return i;
  }
  return std::nullopt;
}

std::vector<std::string> Devices::names() const {
  std::vector<std::string> out;
  for (const Entry& entry : entries_) {
    if (entry.device) out.push_back(entry.name);
  }
  return out;
}

std::string Devices::describe() const {
  if (!automatic_) return "pinned";
  std::string works;
  std::string fails;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Status one = status(i);
    if (one.ok())
      works.append(works.empty() ? "" : ", ").append(entries_[i].name);
    else
      fails.append("; no ").append(entries_[i].name).append(": ").append(one.text());
  }
  return str(kAuto, ": ", works, fails);
}

Result<std::vector<std::unique_ptr<transport::Port>>> Devices::open_ports(
    transport::Loop& loop, const transport::PortOptions& options) {
  std::vector<std::unique_ptr<transport::Port>> out(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (!entry.device) continue;
    auto port = entry.device->open_port(loop, options);
    if (port) {
      out[i] = std::move(*port);
      continue;
    }
    entry.status = std::move(port).error().with_context(str("provider ", entry.name));
    if (!automatic_ || entry.traits->reaches_everyone || entry.provider->required()) return entry.status;
    SLIME_LOG(LogLevel::kWarning, "agent", "no connection uses ", entry.name, ": ", entry.status.text());
    entry.device.reset();
    entry.provider.reset();
  }
  return out;
}

std::vector<transport::Outlet> Devices::outlets(
    const std::vector<std::unique_ptr<transport::Port>>& ports) const {
  std::vector<transport::Outlet> out;
  for (std::size_t i = 0; i < entries_.size(); ++i)
    out.push_back({entries_[i].name, ports[i].get(), device(i), status(i), entries_[i].traits});
  return out;
}

std::size_t Devices::owner() const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].device && !optional(entries_[i])) return i;
  }
  return entries_.size() - 1;  // there is one that must work
}

std::vector<bool> Devices::used() const {
  const MutexLock lock(mutex_);
  return used_;
}

bool Devices::use(std::size_t index) {
  const MutexLock lock(mutex_);
  const bool fresh = !used_[index];
  used_[index] = true;
  return fresh;
}

void Devices::warn(std::size_t index, const Status& reason) {
  {
    const MutexLock lock(mutex_);
    warned_.resize(entries_.size());
    if (warned_[index]) return;
    warned_[index] = true;
  }
  SLIME_LOG(LogLevel::kWarning, "agent", "memory is used without ", entries_[index].name,
            ": operations that name it over a connection of ", entries_[index].name,
            " fail; other memory is not concerned, and the next such memory is not logged. ", reason.text());
}

std::string Devices::alternative() const {
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [](const Entry& entry) { return entry.traits->reaches_everyone; });
  return at == entries_.end() ? "" : str("; a peer or agent that is pinned to ", at->name, " can use it");
}

// Adds a region to `to`, or records why this device has none. Returns the device's error only if
// the agent cannot do without the device.
Status Devices::add(Registrations& to, std::size_t index, Result<transport::DeviceRegion> region) {
  if (region) {
    to.add(index, std::move(*region));
    return {};
  }
  Status why = std::move(region).error();
  // kUnimplemented: this provider cannot move memory of this kind; another provider may.
  const bool cannot = why.code() == Code::kUnimplemented && entries_.size() > 1;
  if (!cannot && !optional(entries_[index])) return why;
  if (!cannot) warn(index, why);
  to.miss(index, std::move(why).with_context(str("this memory is not registered with ", entries_[index].name,
                                                 ", which the connection uses", alternative())));
  return {};
}

Result<Registrations> Devices::allocate(std::size_t bytes, transport::Rights rights,
                                        transport::MemoryKind kind, transport::Pages pages) {
  const std::size_t first = owner();
  const std::vector<bool> at_once = used();
  auto made = entries_[first].device->allocate(bytes, rights, kind, pages);
  if (!made) return std::move(made).error();
  std::byte* const data = made->data();
  Registrations out(entries_.size(), first);
  out.add(first, std::move(*made));
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (i == first || !entries_[i].device) continue;
    if (at_once[i])
      SLIME_TRY(add(out, i, entries_[i].device->register_memory(data, bytes, rights, kind)));
    else
      out.defer(i);
  }
  return out;
}

Result<Registrations> Devices::register_memory(void* data, std::size_t bytes, transport::Rights rights,
                                               transport::MemoryKind kind) {
  Registrations out(entries_.size(), owner());
  const std::vector<bool> at_once = used();
  // the lazy devices last: one of them is not deferred if nothing else takes the memory
  for (const bool lazy : {false, true}) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (!entries_[i].device || at_once[i] == lazy) continue;
      if (lazy && out.any())
        out.defer(i);
      else
        SLIME_TRY(add(out, i, entries_[i].device->register_memory(data, bytes, rights, kind)));
    }
  }
  if (!out.any()) return out.missing(owner());
  return out;
}

void Devices::complete(Registrations& memory) {
  const std::vector<bool> now = used();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!memory.deferred(i) || !now[i]) continue;
    // The device is optional: a refusal is kept in `memory`, and is no error of this call.
    add(memory, i,
        entries_[i].device->register_memory(memory.data(), memory.length_bytes(), memory.rights(),
                                            memory.kind()))
        .ignore();
  }
}

}  // namespace slime::agent
