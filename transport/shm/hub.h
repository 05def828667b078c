#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "transport/loop.h"
#include "transport/shm/bell.h"
#include "transport/shm/packet.h"
#include "transport/shm/parameters.h"
#include "transport/shm/windows.h"

namespace slime::transport::shm {

class ShmWire;

struct Options {
  // If false, neither process reads or writes the memory of the other by address, as if the kernel
  // refused it.
  bool fetches = true;
  // If false, no peer gets a gate to write memory of this process by address, as if the peer were
  // in another pid namespace.
  bool gates = true;
};

// The parts that all wires of one port share: the bell, the local socket over which descriptors
// arrive, and the poller of the rings. The hub looks at the rings of a few busy wires in each turn;
// the peers of other wires ring the bell. Thread: the loop. Lifetime: until the port and the last
// wire are gone.
class Hub final : private Poller, public std::enable_shared_from_this<Hub> {
 public:
  static Result<std::shared_ptr<Hub>> create(Loop& loop, Options options = {});
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;
  ~Hub();

  [[nodiscard]] Loop& loop() const { return loop_; }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] const Bell& bell() const { return bell_; }
  // Returns parameters with a new cookie. Until forget(), a packet with that cookie is accepted.
  Parameters expect();
  void forget(const InstanceId& cookie);
  // Hands to `wire` the packet with this cookie from an initiator: now if it has arrived, else when
  // it arrives.
  void claim(const InstanceId& cookie, ShmWire& wire);

  // Adds a wire. Returns the number under which the wire's peer rings the bell; kResourceExhausted
  // if all numbers are in use.
  Result<std::uint32_t> add(ShmWire& wire);
  void remove(std::uint32_t number);
  // Returns the object that unmaps the windows of all wires of this hub.
  [[nodiscard]] Unmapper& unmapper() { return unmapper_; }
  // Calls age() of all wires at intervals, until no wire has memory to give back.
  void age_later();
  // Calls wire.tell_now() at the end of the current look at the rings, or of the next one.
  void tell_later(ShmWire& wire) { untold_.push_back(&wire); }
  [[nodiscard]] bool looking() const { return looking_; }
  [[nodiscard]] std::uint64_t looks() const { return looks_; }  // looks that have begun; never 0
  // Looks at the rings of `wire` in each turn from now on, until the wire has been quiet while
  // others were busy.
  void watch(ShmWire& wire);

 private:
  // State of an expected cookie: the wire that waits for the packet with this cookie, or the packet
  // that has arrived, with its socket.
  struct Expected {
    ShmWire* wire = nullptr;
    UniqueFd socket;
    Packet packet;
  };
  // A connection whose packet has not come.
  struct Visitor final : FdHandler {
    Visitor(Hub& owner, UniqueFd fd) : hub(owner), socket(std::move(fd)) {}
    ~Visitor();
    void on_fd_events(std::uint32_t) noexcept override { hub.on_packet(*this); }

    Hub& hub;
    UniqueFd socket;
    bool watched = false;
    TimerId timer;
  };

  Hub(Loop& loop, Options options) : loop_(loop), options_(options) {}
  Status open();
  bool poll_once() noexcept override;
  bool arm() noexcept override;
  void on_visitors();
  void pause_accepting();
  void on_packet(Visitor& visitor);
  void drop(Visitor& visitor);
  void cool_down();
  void tell_untold();

  // Watches one of the hub's own descriptors.
  struct Watch final : FdHandler {
    explicit Watch(UniqueFunction<void()> fn) : fn(std::move(fn)) {}
    void on_fd_events(std::uint32_t) noexcept override { fn(); }
    UniqueFunction<void()> fn;
  };

  Loop& loop_;
  const Options options_;
  Unmapper unmapper_{loop_};
  Bell bell_;
  InstanceId boot_;
  InstanceId socket_name_;
  UniqueFd listening_;
  Watch on_bell_{[this] { bell_.drain(); }};
  Watch on_listening_{[this] { on_visitors(); }};
  TimerId aging_;
  TimerId accept_again_;
  bool open_ = false;
  bool asleep_ = false;
  std::map<InstanceId, Expected> expected_;
  std::vector<std::unique_ptr<Visitor>> visitors_;
  std::vector<ShmWire*> wires_;  // by number; null: free
  std::vector<std::uint32_t> free_;
  std::vector<ShmWire*> watched_;  // null: removed during a look
  std::vector<ShmWire*> untold_;   // null: removed since
  bool looking_ = false;
  std::uint64_t looks_ = 1;
};

}  // namespace slime::transport::shm
