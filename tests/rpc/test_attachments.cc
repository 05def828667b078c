#include <doctest/doctest.h>

#include <string>

#include "base/random.h"
#include "rpc/codec.h"
#include "rpc/codec/attachments.h"
#include "rpc/limits.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::wire;

namespace attachments_test {
namespace {

ByteVector unhex(std::string text) {
  std::erase(text, ' ');
  ByteVector out(text.size() / 2);
  REQUIRE(from_hex(text, out));
  return out;
}

const ByteVector& arguments() {
  static const ByteVector bytes = unhex("92 d60100000000 d60101000000");
  return bytes;
}
const ByteVector& inlined() {
  static const ByteVector bytes = unhex("0708");
  return bytes;
}

AttachmentTable sample_table() {
  AttachmentTable table;
  table.lease = {1, 2};
  table.entries.resize(2);
  table.entries[0].length_bytes = 2;
  table.entries[0].bytes = inlined();
  table.entries[1].length_bytes = 0x1000;
  table.entries[1].lent = true;
  table.entries[1].offset = 0x100;
  table.entries[1].region.id = {3, 4};
  table.entries[1].region.length_bytes = 0x2000;
  table.entries[1].region.rights = transport::Rights::kRemoteRead;
  table.entries[1].region.key = transport::PackedKey(as_bytes("a key"));
  table.body = arguments();
  return table;
}

const char* const kGolden =
    "02000000 00000000 0100000002000000"
    "0200000000000000 00"
    "0010000000000000 01 0001000000000000"
    "0300000004000000 0020000000000000 01 0500 61206b6579"
    "0708"
    "92 d60100000000 d60101000000";

bool good(const AttachmentTable& table) { return decode_attachments(encode_attachments(table)).has_value(); }

template <class F>
bool good_with(F change) {
  AttachmentTable table = sample_table();
  change(table);
  return good(table);
}

}  // namespace

TEST_CASE("a table of attachments has the bytes that are written down, and is read back") {
  const ByteVector bytes = encode_attachments(sample_table());
  CHECK(to_hex(bytes) == to_hex(unhex(kGolden)));
  const auto table = decode_attachments(bytes);
  REQUIRE_MESSAGE(table.has_value(), table.status().to_string());
  CHECK(table->lease == Handle{1, 2});
  REQUIRE(table->entries.size() == 2);
  CHECK(!table->entries[0].lent);
  CHECK(to_hex(table->entries[0].bytes) == "0708");
  CHECK(table->entries[1].lent);
  CHECK(table->entries[1].length_bytes == 0x1000);
  CHECK(table->entries[1].offset == 0x100);
  CHECK(std::ranges::equal(table->entries[1].region.key.bytes(), as_bytes("a key")));
  CHECK(to_hex(table->body) == to_hex(arguments()));
}

TEST_CASE("a table that is cut, before its body, is refused") {
  const ByteVector bytes = encode_attachments(sample_table());
  for (std::size_t size = 0; size < bytes.size() - arguments().size(); ++size)
    CHECK(decode_attachments(Bytes(bytes).first(size)).status().code() == Code::kCorrupt);
}

TEST_CASE("a table must lend what can be read, under a lease, and count what is there") {
  CHECK(good_with([](AttachmentTable&) {}));
  CHECK(good_with([](AttachmentTable& t) { t.entries[1].offset = 0x1000; }));
  CHECK(!good_with([](AttachmentTable& t) { t.entries[1].offset = 0x1001; }));
  CHECK(!good_with([](AttachmentTable& t) { t.entries[1].offset = ~std::uint64_t{0}; }));
  CHECK(!good_with([](AttachmentTable& t) { t.entries[1].length_bytes = 0; }));
  CHECK(!good_with([](AttachmentTable& t) { t.entries[1].length_bytes = ~std::uint64_t{0}; }));
  CHECK(!good_with([](AttachmentTable& t) { t.entries[0].length_bytes = 1000; }));
  CHECK(!good_with([](AttachmentTable& t) { t.entries[0].length_bytes = ~std::uint64_t{0}; }));
  CHECK(!good_with([](AttachmentTable& t) { t.entries[1].region.rights = transport::Rights::kRemoteWrite; }));
  CHECK(!good_with([](AttachmentTable& t) { t.entries[1].region.id.generation = 0; }));
  CHECK(!good_with([](AttachmentTable& t) { t.lease.generation = 0; }));
  CHECK(!good_with([](AttachmentTable& t) { t.entries.pop_back(); }));  // a lease of nothing
  CHECK(!good_with([](AttachmentTable& t) { t.entries.clear(); }));
  CHECK(good_with([](AttachmentTable& t) {
    t.lease = {};
    t.entries.assign(rpc::limits::kMaxAttachments, {});
  }));
  CHECK(!good_with([](AttachmentTable& t) {
    t.lease = {};
    t.entries.assign(rpc::limits::kMaxAttachments + 1, {});
  }));
  ByteVector reserved = encode_attachments(sample_table());
  reserved[4] = std::byte{1};
  CHECK(!decode_attachments(reserved).has_value());
}

TEST_CASE("changed bytes of a table are refused or read, never more") {
  const std::uint64_t seed = 12;
  CAPTURE(seed);
  Rng rng(seed);
  for (int i = 0; i < 20'000; ++i) {
    ByteVector bytes = encode_attachments(sample_table());
    for (std::uint64_t n = rng.below(4) + 1; n > 0; --n)
      bytes[rng.below(bytes.size())] = static_cast<std::byte>(rng.next());
    const auto table = decode_attachments(bytes);
    if (!table) {
      CHECK(table.error().code() == Code::kCorrupt);
      continue;
    }
    CHECK(table->entries.size() <= rpc::limits::kMaxAttachments);
    for (const AttachmentEntry& entry : table->entries)
      CHECK((entry.lent || entry.bytes.size() == entry.length_bytes));
  }
}

TEST_CASE("the value that stands for an attachment has the bytes that are written down, and no others") {
  CHECK(to_hex(encode_attachment_value(3, nullptr)) == "03000000");
  const ArrayType array{"<f4", {2, 300}};
  const ByteVector data = encode_attachment_value(1, &array);
  CHECK(to_hex(data) == to_hex(unhex("01000000 0300 3c6634 02 0200000000000000 2c01000000000000")));
  const auto back = decode_attachment_value(data);
  REQUIRE(back.has_value());
  CHECK(back->index == 1);
  CHECK(back->array == array);
  for (std::size_t size = 0; size < data.size(); ++size)
    CHECK(decode_attachment_value(Bytes(data).first(size)).has_value() == (size == 4));
  ByteVector longer = data;
  longer.push_back(std::byte{0});
  CHECK(!decode_attachment_value(longer).has_value());
}

TEST_CASE("an attachment in msgpack is an extension value, and names one that is there") {
  Attachment array{ByteVector(8)};
  array.set_array({"<u2", {4}});
  const AttachedBody body =
      encode_attached_arguments(Attachment(inlined()), std::optional<Attachment>(array));
  REQUIRE(body.attachments.size() == 2);
  CHECK(to_hex(Bytes(body.body).first(8)) == "92d60100000000c7");
  using Values = std::tuple<Attachment, std::optional<Attachment>>;
  const auto values =
      decode_arguments<Attachment, std::optional<Attachment>>(body.body, "x.y", body.attachments);
  REQUIRE_MESSAGE(values.has_value(), values.status().to_string());
  CHECK(std::get<0>(*values).bytes().data() == body.attachments[0].bytes().data());
  CHECK(std::get<0>(*values).array() == nullptr);
  REQUIRE(std::get<1>(Values(*values)).has_value());
  CHECK(*std::get<1>(*values)->array() == ArrayType{"<u2", {4}});
  // One that is not there.
  CHECK(!decode_arguments<Attachment, std::optional<Attachment>>(body.body, "x.y",
                                                                 std::span(body.attachments).first(1))
             .has_value());
  CHECK(!decode_value<Attachment>(encode_value(3)).has_value());
}

TEST_CASE("who wants bytes gets them of an attachment, and who wants an attachment gets it of bytes") {
  const AttachedBody body = encode_attached_value(Attachment(inlined()));
  const auto bytes = decode_value<ByteVector>(body.body, body.attachments);
  REQUIRE(bytes.has_value());
  CHECK(*bytes == inlined());
  const auto view = decode_value<Bytes>(body.body, body.attachments);
  REQUIRE(view.has_value());
  CHECK(view->data() == body.attachments[0].bytes().data());
  const auto attachment = decode_value<Attachment>(encode_value(inlined()));
  REQUIRE(attachment.has_value());
  CHECK(to_hex(attachment->bytes()) == "0708");
}

}  // namespace attachments_test
