#pragma once

#include <memory>
#include <utility>

#include "python/binding.h"
#include "rpc/attachment.h"
#include "rpc/payload.h"

// Values of Python as msgpack, and back: the way of the values that most calls have. slime._attachments knows
// all values and all errors, and says here what that is; whatever this does not know, or finds wrong, is left
// to it.
namespace slime::python {

// None, bool, int, float, str, bytes, bytearray, list, tuple, dict and NumPy arrays of plain numbers in C
// order, of just these types. False: it is for slime._attachments.pack(); `out` is of no use then. Raises
// what lending an array may raise. Thread: holds the GIL.
bool encode_value(nb::handle value, rpc::AttachedBody& out);

// The value of a body; invalid: it is for slime._attachments.unpack(), which finds the payload as it was.
// Thread: holds the GIL.
nb::object decode_value(const rpc::Payload& payload);

// The value of a reply, for make_future(). May be asked again, also by another thread meanwhile.
class ReplyValue {
 public:
  nb::object operator()(rpc::Payload& payload);
  // The value is all that holds what came beside it.
  void value_taken() {
    if (kept_) kept_->drop_attachments();
  }

 private:
  std::shared_ptr<rpc::Payload> kept_;
};

void bind_values(nb::module_& m);

}  // namespace slime::python
