#pragma once

#include <memory>
#include <utility>

#include "python/binding.h"
#include "rpc/attachment.h"
#include "rpc/payload.h"

// Converts Python values to msgpack and back, for the values that most calls have.
// slime._attachments handles all values and all errors: any value that these functions do not
// handle, or find invalid, is left to it.
namespace slime::python {

// Encodes None, bool, int, float, str, bytes, bytearray, list, tuple, dict and NumPy arrays of
// plain numbers in C order, of exactly these types. Returns false for slime._attachments.pack();
// the contents of `out` are undefined then. Raises the errors of lent(). Thread: holds the GIL.
bool encode_value(nb::handle value, rpc::AttachedBody& out);

// Decodes a body. Returns an invalid object for slime._attachments.unpack(), and leaves the payload
// unchanged. Thread: holds the GIL.
nb::object decode_value(const rpc::Payload& payload);

// Decodes a reply, for make_future(). May be called again, also by another thread meanwhile.
class ReplyValue {
 public:
  nb::object operator()(rpc::Payload& payload);
  // Drops the payload's references to attachments: only the value keeps them now.
  void value_taken() {
    if (kept_) kept_->drop_attachments();
  }

 private:
  std::shared_ptr<rpc::Payload> kept_;
};

void bind_values(nb::module_& m);

}  // namespace slime::python
