#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"

namespace slime {

// 128 random bits that an agent draws when it starts. They identify the process, independent of its
// name. Used by the tie-break of simultaneous handshakes and by every cache of a peer's data.
struct InstanceId {
  std::array<std::byte, 16> bytes{};

  static InstanceId random();
  static std::optional<InstanceId> parse(std::string_view hex);
  [[nodiscard]] std::string to_string() const { return to_hex(bytes); }
  [[nodiscard]] bool is_zero() const { return *this == InstanceId{}; }
  auto operator<=>(const InstanceId&) const = default;
};

// Names one use of a slot in a SlotMap. Slots are used again, but a handle of an earlier use never
// matches, so stale handles from peers are detected.
struct Handle {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  // 0 is never used

  [[nodiscard]] std::uint64_t packed() const { return (std::uint64_t{generation} << 32) | index; }
  static Handle unpack(std::uint64_t value) {
    return {static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(value >> 32)};
  }
  auto operator<=>(const Handle&) const = default;
};

// A table of at most `limit` values, named by handles. Growing moves the values. Thread: one.
template <class T>
class SlotMap {
 public:
  explicit SlotMap(std::size_t limit) : limit_(limit) {}

  // Stores a value made from `args`. Returns its handle and address; a null address if the table is
  // full.
  template <class... Args>
  std::pair<Handle, T*> emplace(Args&&... args) {
    std::uint32_t index;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else {
      if (slots_.size() >= limit_) return {Handle{}, nullptr};
      index = static_cast<std::uint32_t>(slots_.size());
      slots_.emplace_back();
    }
    Slot& slot = slots_[index];
    if (++slot.generation == 0) slot.generation = 1;
    slot.value.emplace(std::forward<Args>(args)...);
    ++size_;
    return {Handle{index, slot.generation}, &*slot.value};
  }
  // Stores `value` and returns its handle; nullopt if the table is full.
  template <class Value>
  std::optional<Handle> insert(Value&& value) {
    const auto [handle, stored] = emplace(std::forward<Value>(value));
    return stored != nullptr ? std::optional(handle) : std::nullopt;
  }
  // Returns the value; null if the handle is not in use.
  T* find(Handle handle) {
    if (handle.index >= slots_.size()) return nullptr;
    Slot& slot = slots_[handle.index];
    return slot.value && slot.generation == handle.generation ? &*slot.value : nullptr;
  }
  const T* find(Handle handle) const { return const_cast<SlotMap*>(this)->find(handle); }
  // Returns whether the handle was ever in use. Cannot distinguish handles that are 2^31 uses of
  // their slot apart.
  [[nodiscard]] bool knew(Handle handle) const {
    return handle.index < slots_.size() &&
           static_cast<std::int32_t>(slots_[handle.index].generation - handle.generation) >= 0;
  }
  // Returns the handle of the value that is at `index` now; nullopt if there is no value. For
  // messages that carry only a part of a handle.
  [[nodiscard]] std::optional<Handle> handle_at(std::uint32_t index) const {
    if (index >= slots_.size() || !slots_[index].value) return std::nullopt;
    return Handle{index, slots_[index].generation};
  }
  // Removes and returns the value; nullopt for a stale handle.
  std::optional<T> take(Handle handle) {
    if (find(handle) == nullptr) return std::nullopt;
    Slot& slot = slots_[handle.index];
    std::optional<T> out = std::move(slot.value);
    slot.value.reset();
    free_.push_back(handle.index);
    --size_;
    return out;
  }
  // Removes the value. Returns false for a stale handle.
  bool erase(Handle handle) {
    if (find(handle) == nullptr) return false;
    slots_[handle.index].value.reset();
    free_.push_back(handle.index);
    --size_;
    return true;
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  // Calls fn(Handle, T&) for each value. `fn` must not add or take values.
  template <class F>
  void for_each(F&& fn) {
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].value) fn(Handle{i, slots_[i].generation}, *slots_[i].value);
    }
  }

 private:
  struct Slot {
    std::uint32_t generation = 0;
    std::optional<T> value;
  };
  std::size_t limit_;
  std::size_t size_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace slime
