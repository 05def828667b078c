// Batches that are bound once and posted many times: slime.PreparedBatch, and lists of blocks as
// numbers.

#include <nanobind/ndarray.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/str.h"
#include "python/py_agent.h"
#include "python/py_attachments.h"
#include "python/py_memory.h"
#include "python/py_numbers.h"

namespace slime::python {
namespace {

// --------------------------------------------------------------------------------- lists of blocks

// slime.BlockOffsets and slime.BlockStrides. Keep their regions.
struct PyBlockOffsets {
  nb::object local;
  std::vector<std::uint64_t> local_offsets;
  nb::object remote;
  std::vector<std::uint64_t> remote_offsets;
  std::uint64_t length_bytes = 0;
};
struct PyBlockStrides {
  nb::object local;
  std::uint64_t local_offset = 0;
  std::uint64_t local_stride = 0;
  nb::object remote;
  std::uint64_t remote_offset = 0;
  std::uint64_t remote_stride = 0;
  std::uint64_t count = 0;
  std::uint64_t length_bytes = 0;
};

PyBlockOffsets make_offsets(nb::handle local, nb::handle local_offsets, nb::handle remote,
                            nb::handle remote_offsets, nb::handle length_bytes) {
  const Local place = Local::of(local);
  remote_from(remote);
  PyBlockOffsets out{place.region, numbers_from<std::uint64_t>(local_offsets, "local_offsets"),
                     nb::borrow(remote), numbers_from<std::uint64_t>(remote_offsets, "remote_offsets"),
                     unsigned_from(length_bytes, "length_bytes")};
  for (std::uint64_t& offset : out.local_offsets) offset = place.offset_of(offset, out.length_bytes);
  return out;
}

PyBlockStrides make_strides(nb::handle local, nb::handle local_offset, nb::handle local_stride,
                            nb::handle remote, nb::handle remote_offset, nb::handle remote_stride,
                            nb::handle count, nb::handle length_bytes) {
  const Local place = Local::of(local);
  remote_from(remote);
  PyBlockStrides out{place.region,
                     unsigned_from(local_offset, "local_offset"),
                     unsigned_from(local_stride, "local_stride"),
                     nb::borrow(remote),
                     unsigned_from(remote_offset, "remote_offset"),
                     unsigned_from(remote_stride, "remote_stride"),
                     unsigned_from(count, "count"),
                     unsigned_from(length_bytes, "length_bytes")};
  if (out.count > 0) {  // the last block reaches furthest
    const std::uint64_t steps = out.count - 1;
    constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
    const bool fits = out.local_stride == 0 || steps <= (kMax - out.local_offset) / out.local_stride;
    static_cast<void>(
        place.offset_of(fits ? out.local_offset + steps * out.local_stride : kMax, out.length_bytes));
    out.local_offset += place.offset;
  }
  return out;
}

// -------------------------------------------------------------------------------- blocks by number

// Moves blocks by number; `kind` is Peer::read_blocks or Peer::write_blocks.
template <auto kind>
nb::object move_blocks(const PyPeer& self, nb::handle local, nb::handle remote, nb::handle local_ids,
                       nb::handle remote_ids, nb::handle block_bytes, nb::handle local_offset,
                       nb::handle remote_offset, std::optional<double> timeout) {
  constexpr bool kFillsLocal = kind == &Peer::read_blocks;
  ReleaseQueue::get().have_waiter();
  ReleaseQueue::get().drain();
  const Local place = Local::of(local);
  const std::vector<std::uint64_t> here = numbers_from<std::uint64_t>(local_ids, "local_ids");
  const std::vector<std::uint64_t> there = numbers_from<std::uint64_t>(remote_ids, "remote_ids");
  std::uint64_t offset = unsigned_from(local_offset, "local_offset");
  const std::uint64_t length = unsigned_from(block_bytes, "block_bytes");
  if (!here.empty()) {  // the block with the largest number reaches furthest
    const std::uint64_t last = *std::max_element(here.begin(), here.end());
    constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
    const bool fits = length == 0 || last <= (kMax - offset) / length;
    static_cast<void>(place.offset_of(fits ? offset + last * length : kMax, length));
  }
  offset += place.offset;
  const BlockIds blocks{.local = local_from(place.region, kFillsLocal),
                        .remote = remote_from(remote),
                        .local_ids = here,
                        .remote_ids = there,
                        .block_bytes = length,
                        .local_offset = offset,
                        .remote_offset = unsigned_from(remote_offset, "remote_offset")};
  return make_transfer((self.peer().*kind)(blocks, timeout_or_default(timeout)), place.region, self.agent());
}

template <auto kind>
void bind_move(nb::class_<PyPeer>& peer, const char* name, const char* signature) {
  peer.def(
      name, &move_blocks<kind>, nb::arg("local").none(), nb::arg("remote").none(),
      nb::arg("local_ids").none(), nb::arg("remote_ids").none(), nb::arg("block_bytes"),
      nb::arg("local_offset") = 0, nb::arg("remote_offset") = 0, nb::arg("timeout") = nb::none(),
      nb::sig(signature),
      "Moves blocks by number with one one-sided operation: block i is at local_offset +\n"
      "local_ids[i] * block_bytes of `local`, and at remote_offset + remote_ids[i] * block_bytes of\n"
      "`remote`. Numbers are NumPy arrays of int64, uint64, int32 or uint32, or sequences of ints; they\n"
      "are copied. `local` is as for Copy; it stays open until the operation has ended. Source bytes\n"
      "must not change until the future is done. InvalidArgument names the first wrong block.");
}

// --------------------------------------------------------------------------------------- the batch

PostOptions post_options(std::optional<double> timeout, std::optional<double> stall) {
  if (stall && !(*stall > 0))
    raise(Code::kInvalidArgument, "a stall bound is a positive number of seconds, or None");
  return {timeout_or_default(timeout), timeout_or_default(stall)};
}

// slime.PreparedBatch. Thread: holds the GIL.
class PyPreparedBatch {
 public:
  PyPreparedBatch(PreparedBatch batch, nb::object used, nb::object agent)
      : batch_(std::make_shared<PreparedBatch>(std::move(batch))),
        used_(std::move(used)),
        agent_(std::move(agent)) {}

  [[nodiscard]] PreparedBatch& batch() const { return *batch_; }

  nb::object post(nb::handle blocks, std::optional<double> timeout, std::optional<double> stall) const {
    const PostOptions options = post_options(timeout, stall);
    return blocks.is_none() ? posted(batch().post(options))
                            : posted(batch().post(numbers_from<std::uint32_t>(blocks, "blocks"), options));
  }
  nb::object post_with_imm(nb::handle imm, nb::handle blocks, std::optional<double> timeout,
                           std::optional<double> stall) const {
    const PostOptions options = post_options(timeout, stall);
    const std::uint64_t number = unsigned_from(imm, "imm");
    if (number > UINT32_MAX) raise(Code::kInvalidArgument, "imm is above 2**32 - 1");
    const auto value = static_cast<std::uint32_t>(number);
    return blocks.is_none()
               ? posted(batch().post_with_imm(value, options))
               : posted(batch().post_with_imm(value, numbers_from<std::uint32_t>(blocks, "blocks"), options));
  }
  void rebind(nb::handle remotes) const {
    std::vector<RemoteRegion> regions;
    for (const nb::handle remote : nb::iter(remotes)) regions.push_back(remote_from(remote));
    check(batch().rebind(regions));
  }
  [[nodiscard]] nb::list remotes() const {
    nb::list out;
    for (const RemoteRegion& remote : batch().remotes()) out.append(nb::cast(remote));
    return out;
  }

  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    const auto* batch = nb::inst_ptr<PyPreparedBatch>(self);
    Py_VISIT(batch->used_.ptr());
    Py_VISIT(batch->agent_.ptr());
    return 0;
  }
  static int clear(PyObject* self) {
    auto* batch = nb::inst_ptr<PyPreparedBatch>(self);
    batch->used_.reset();
    batch->agent_.reset();
    return 0;
  }

 private:
  [[nodiscard]] nb::object posted(Future<None> future) const {
    ReleaseQueue::get().have_waiter();
    ReleaseQueue::get().drain();
    return make_transfer(std::move(future), used_, agent_);
  }
  ForkGuarded<PreparedBatch> batch_;
  nb::object used_;  // the local regions, kept open
  nb::object agent_;
};

PyType_Slot kBatchSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&PyPreparedBatch::traverse)},
                             {Py_tp_clear, reinterpret_cast<void*>(&PyPreparedBatch::clear)},
                             {0, nullptr}};

template <class Blocks>
PreparedBatch prepare_unlocked(const PyPeer& self, Transfer transfer, const Blocks& blocks) {
  return unwrap([&, peer = self.shared()] {
    // releases the GIL: prepare() takes time proportional to the number of blocks
    const nb::gil_scoped_release unlocked;
    return peer->prepare(transfer, blocks);
  }());
}

nb::object prepare(const PyPeer& self, Transfer transfer, nb::handle blocks) {
  const bool fills_local = transfer == Transfer::kRead;
  if (nb::isinstance<PyBlockOffsets>(blocks)) {
    const auto& list = nb::cast<const PyBlockOffsets&>(blocks);
    const BlockOffsets bound{local_from(list.local, fills_local), list.local_offsets,
                             remote_from(list.remote), list.remote_offsets, list.length_bytes};
    return nb::cast(PyPreparedBatch(prepare_unlocked(self, transfer, bound), list.local, self.agent()));
  }
  if (nb::isinstance<PyBlockStrides>(blocks)) {
    const auto& list = nb::cast<const PyBlockStrides&>(blocks);
    const BlockStrides bound{local_from(list.local, fills_local),
                             list.local_offset,
                             list.local_stride,
                             remote_from(list.remote),
                             list.remote_offset,
                             list.remote_stride,
                             list.count,
                             list.length_bytes};
    return nb::cast(PyPreparedBatch(prepare_unlocked(self, transfer, bound), list.local, self.agent()));
  }
  // keeps the Copy objects until the batch is bound; the batch itself keeps only their regions
  nb::list copies;
  const std::vector<Copy> bound = copies_from(blocks, fills_local, copies);
  nb::list regions;
  std::unordered_set<const PyObject*> known;
  for (const nb::handle copy : copies) {
    const nb::object& region = nb::cast<const PyCopy&>(copy).local;
    if (known.insert(region.ptr()).second) regions.append(region);
  }
  return nb::cast(PyPreparedBatch(prepare_unlocked(self, transfer, bound), regions, self.agent()));
}

void bind_blocks(nb::module_& m) {
  nb::class_<PyBlockOffsets>(m, "BlockOffsets",
                             "Blocks of one length: block i is at local_offsets[i] and at remote_offsets[i].")
      .def(
          "__init__",
          [](PyBlockOffsets* self, nb::handle local, nb::handle local_offsets, nb::handle remote,
             nb::handle remote_offsets, nb::handle length_bytes) {
            new (self)
                PyBlockOffsets(make_offsets(local, local_offsets, remote, remote_offsets, length_bytes));
          },
          nb::arg("local").none(), nb::arg("local_offsets").none(), nb::arg("remote").none(),
          nb::arg("remote_offsets").none(), nb::arg("length_bytes"),
          nb::sig("def __init__(self, local: typing.Any, local_offsets: typing.Any, remote: RemoteRegion, "
                  "remote_offsets: typing.Any, length_bytes: int) -> None"),
          "Offsets are NumPy arrays of int64, uint64, int32 or uint32, or sequences of ints; they\n"
          "are copied. `local` is as for Copy. `length_bytes` is the length of each block.")
      .def("__len__", [](const PyBlockOffsets& self) { return self.local_offsets.size(); });
  nb::class_<PyBlockStrides>(m, "BlockStrides",
                             "Blocks of one length at equal distances: block i is at offset + i * stride.")
      .def(
          "__init__",
          [](PyBlockStrides* self, nb::handle local, nb::handle local_offset, nb::handle local_stride,
             nb::handle remote, nb::handle remote_offset, nb::handle remote_stride, nb::handle count,
             nb::handle length_bytes) {
            new (self) PyBlockStrides(make_strides(local, local_offset, local_stride, remote, remote_offset,
                                                   remote_stride, count, length_bytes));
          },
          nb::arg("local").none(), nb::arg("local_offset"), nb::arg("local_stride"), nb::arg("remote").none(),
          nb::arg("remote_offset"), nb::arg("remote_stride"), nb::arg("count"), nb::arg("length_bytes"),
          nb::sig("def __init__(self, local: typing.Any, local_offset: int, local_stride: int, remote: "
                  "RemoteRegion, remote_offset: int, remote_stride: int, count: int, length_bytes: int) -> "
                  "None"),
          "`local` is as for Copy. `length_bytes` is the length of each block.")
      .def("__len__", [](const PyBlockStrides& self) { return self.count; });
}

}  // namespace

void bind_prepared(nb::module_& m, nb::class_<PyPeer>& peer) {
  nb::enum_<Transfer>(m, "Transfer", "The direction of a batch.")
      .value("READ", Transfer::kRead, "remote -> local")
      .value("WRITE", Transfer::kWrite, "local -> remote");
  bind_blocks(m);
  nb::class_<PyPreparedBatch>(
      m, "PreparedBatch", nb::type_slots(kBatchSlots),
      "A batch of copies with one peer, which peer.prepare() checks and binds once, and which is\n"
      "posted many times. Posts may overlap; each is one operation, like peer.read(). Keeps its\n"
      "local regions open. After the connection has ended, a post ends with Aborted: ask for the\n"
      "regions again, then rebind().")
      .def("post", &PyPreparedBatch::post, nb::arg("blocks").none() = nb::none(),
           nb::arg("timeout") = nb::none(), nb::arg("stall") = nb::none(),
           nb::sig("def post(self, blocks: typing.Any | None = None, timeout: float | None = None, "
                   "stall: float | None = None) -> Future[None]"),
           "Starts the transfer of all blocks, or of those with these numbers (a NumPy array or ints; 0 is\n"
           "the first). Bytes that are written must not change until the future is done.\n"
           "`stall`: also ends with DeadlineExceeded when the connection moves no bytes of transfers for so\n"
           "many seconds. With it, timeout=math.inf means no timeout.")
      .def("post_with_imm", &PyPreparedBatch::post_with_imm, nb::arg("imm"),
           nb::arg("blocks").none() = nb::none(), nb::arg("timeout") = nb::none(),
           nb::arg("stall") = nb::none(),
           nb::sig("def post_with_imm(self, imm: int, blocks: typing.Any | None = None, "
                   "timeout: float | None = None, stall: float | None = None) -> Future[None]"),
           "Like post(), for a batch that writes. Afterwards the peer's on_imm handler gets `imm`\n"
           "once.")
      .def("rebind", &PyPreparedBatch::rebind, nb::arg("remotes"),
           nb::sig("def rebind(self, remotes: collections.abc.Iterable[RemoteRegion]) -> None"),
           "Replaces `remotes` by these regions, in order, for later posts.")
      .def_prop_ro("remotes", &PyPreparedBatch::remotes, nb::sig("def remotes(self) -> list[RemoteRegion]"),
                   "The remote regions in the order in which the blocks first name them.")
      .def_prop_ro(
          "length_bytes", [](const PyPreparedBatch& self) { return self.batch().length_bytes(); },
          "Total of all blocks.")
      .def("__len__", [](const PyPreparedBatch& self) { return self.batch().size(); })
      .def("__repr__", [](const PyPreparedBatch& self) {
        return str("<slime.PreparedBatch ", self.batch().size(), " blocks, ", self.batch().length_bytes(),
                   " bytes>");
      });
  bind_move<&Peer::read_blocks>(
      peer, "read_blocks",
      "def read_blocks(self, local: typing.Any, remote: RemoteRegion, local_ids: typing.Any, "
      "remote_ids: typing.Any, block_bytes: int, local_offset: int = 0, remote_offset: int = 0, "
      "timeout: float | None = None) -> Future[None]");
  bind_move<&Peer::write_blocks>(
      peer, "write_blocks",
      "def write_blocks(self, local: typing.Any, remote: RemoteRegion, local_ids: typing.Any, "
      "remote_ids: typing.Any, block_bytes: int, local_offset: int = 0, remote_offset: int = 0, "
      "timeout: float | None = None) -> Future[None]");
  peer.def("prepare", &prepare, nb::arg("transfer"), nb::arg("copies").none(),
           nb::sig("def prepare(self, transfer: Transfer, copies: Copy | BlockOffsets | BlockStrides | "
                   "collections.abc.Iterable[typing.Any]) -> PreparedBatch"),
           "Checks and binds a batch for many posts. Does not connect. InvalidArgument and PermissionDenied\n"
           "name the first wrong block.");
}

}  // namespace slime::python
