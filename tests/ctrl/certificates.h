#pragma once

#include <doctest/doctest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <string>

#include "tests/support/folder.h"

namespace slime::ctrl::test {

using slime::test::Folder;

struct Free {
  void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { ::X509_free(certificate); }
};
using Key = std::unique_ptr<EVP_PKEY, Free>;
using Certificate = std::unique_ptr<X509, Free>;

// A key and its certificate: a self-signed CA, or a server.
struct Identity {
  Key key;
  Certificate certificate;
};

inline void add_extension(X509* certificate, int nid, const char* value) {
  X509_EXTENSION* const extension = ::X509V3_EXT_conf_nid(nullptr, nullptr, nid, value);
  REQUIRE(extension != nullptr);
  ::X509_add_ext(certificate, extension, -1);
  ::X509_EXTENSION_free(extension);
}

// `names` is like "IP:127.0.0.1". A null `issuer` makes a CA.
inline Identity make_identity(const char* common_name, const char* names, const Identity* issuer) {
  Identity out{Key(::EVP_EC_gen("P-256")), Certificate(::X509_new())};
  X509* const certificate = out.certificate.get();
  ::X509_set_version(certificate, 2);
  ::ASN1_INTEGER_set(::X509_get_serialNumber(certificate), issuer == nullptr ? 1 : 2);
  ::X509_gmtime_adj(::X509_getm_notBefore(certificate), -3600);
  ::X509_gmtime_adj(::X509_getm_notAfter(certificate), 3600);
  ::X509_set_pubkey(certificate, out.key.get());
  X509_NAME* const subject = ::X509_get_subject_name(certificate);
  ::X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(common_name), -1, -1, 0);
  ::X509_set_issuer_name(certificate,
                         issuer == nullptr ? subject : ::X509_get_subject_name(issuer->certificate.get()));
  if (issuer == nullptr) add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE");
  if (names != nullptr) add_extension(certificate, NID_subject_alt_name, names);
  REQUIRE(::X509_sign(certificate, issuer == nullptr ? out.key.get() : issuer->key.get(), ::EVP_sha256()) >
          0);
  return out;
}

inline std::string write_certificate(const Folder& folder, const std::string& name,
                                     const Identity& identity) {
  std::FILE* const file = std::fopen(folder.file(name).c_str(), "w");
  REQUIRE(file != nullptr);
  ::PEM_write_X509(file, identity.certificate.get());
  std::fclose(file);
  return folder.file(name);
}
inline std::string write_key(const Folder& folder, const std::string& name, const Identity& identity) {
  std::FILE* const file = std::fopen(folder.file(name).c_str(), "w");
  REQUIRE(file != nullptr);
  ::PEM_write_PrivateKey(file, identity.key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  return folder.file(name);
}

}  // namespace slime::ctrl::test
