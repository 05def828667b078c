#include "transport/mac.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <memory>

#include "base/check.h"

namespace slime::transport {
namespace {

// Returns a context with HMAC and SHA-256 looked up, which is done once. HMAC() of OpenSSL 3 looks
// them up in each call and takes locks for that. A child of fork() would inherit such a lock in
// locked state if another thread held it. Copying this context takes no lock.
EVP_MAC_CTX* looked_up() {
  static EVP_MAC_CTX* const kContext = [] {
    EVP_MAC* const mac = ::EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    EVP_MAC_CTX* const context = mac == nullptr ? nullptr : ::EVP_MAC_CTX_new(mac);
    ::EVP_MAC_free(mac);
    char digest[] = "SHA256";
    const OSSL_PARAM parameters[] = {::OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                     ::OSSL_PARAM_construct_end()};
    // Aborts with a build of OpenSSL that has no SHA-256, which Slime does not support.
    SLIME_CHECK(context != nullptr && ::EVP_MAC_CTX_set_params(context, parameters) == 1);
    return context;
  }();
  return kContext;
}
[[maybe_unused]] const EVP_MAC_CTX* const looked_up_before_any_fork = looked_up();

}  // namespace

HandshakeMac hmac_sha256(const Secret& key, Bytes text) {
  const std::unique_ptr<EVP_MAC_CTX, decltype(&::EVP_MAC_CTX_free)> context(::EVP_MAC_CTX_dup(looked_up()),
                                                                            &::EVP_MAC_CTX_free);
  // Passes an address that is not null for an empty key: OpenSSL takes null for "use the earlier
  // key".
  const auto* const secret =
      reinterpret_cast<const unsigned char*>(key.empty() ? "" : static_cast<const void*>(key.bytes().data()));
  HandshakeMac out{};
  std::size_t size = 0;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  SLIME_CHECK(
      context != nullptr && ::EVP_MAC_init(context.get(), secret, key.size(), nullptr) == 1 &&
      ::EVP_MAC_update(context.get(), bytes, text.size()) == 1 &&
      ::EVP_MAC_final(context.get(), reinterpret_cast<unsigned char*>(out.data()), &size, out.size()) == 1 &&
      size == out.size());
  return out;
}

}  // namespace slime::transport
