#include "ctrl/api/page.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/str.h"
#include "ctrl/http/replies.h"

namespace slime::embedded {
std::string_view page(std::string_view file);  // cmake/embed.cmake
}

namespace slime::ctrl {
namespace {

constexpr std::string_view kIndex = "index.html";

// Content-Security-Policy of the page, which holds its user's token: only files of this server may
// run or be shown, and no other page may frame this page.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

std::string_view without_spaces(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// Removes and returns the text of `list` before the first `separator`, without surrounding spaces.
std::string_view take_part(std::string_view& list, char separator) {
  const std::size_t end = std::min(list.find(separator), list.size());
  const std::string_view part = without_spaces(list.substr(0, end));
  list.remove_prefix(std::min(end + 1, list.size()));
  return part;
}

bool same_text(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

// Converts a quality value such as "0.8" to thousandths (800). Invalid text counts as 1000.
int thousandths(std::string_view text) {
  if (text.empty() || (text[0] != '0' && text[0] != '1')) return 1000;
  int value = (text[0] - '0') * 1000;
  int unit = 100;
  for (std::size_t i = 2; i < text.size() && i < 5 && text[1] == '.'; ++i, unit /= 10) {
    if (text[i] < '0' || text[i] > '9') return 1000;
    value += (text[i] - '0') * unit;
  }
  return std::min(value, 1000);
}

// Returns the quality (0 to 1000) of the entry for exactly `type` in an Accept header; nullopt if
// the header has no such entry.
std::optional<int> quality(std::string_view accept, std::string_view type) {
  while (!accept.empty()) {
    std::string_view range = take_part(accept, ',');
    if (!same_text(take_part(range, ';'), type)) continue;
    while (!range.empty()) {
      std::string_view parameter = take_part(range, ';');
      if (same_text(take_part(parameter, '='), "q")) return thousandths(without_spaces(parameter));
    }
    return 1000;
  }
  return std::nullopt;
}

std::string etag_of(std::string_view body) {
  std::array<std::byte, SHA256_DIGEST_LENGTH> hash{};
  ::SHA256(reinterpret_cast<const unsigned char*>(body.data()), body.size(),
           reinterpret_cast<unsigned char*>(hash.data()));
  return str('"', to_hex(Bytes(hash).first(16)), '"');
}

bool knows(std::string_view if_none_match, std::string_view etag) {
  while (!if_none_match.empty()) {
    std::string_view one = take_part(if_none_match, ',');
    if (one == "*") return true;
    if (one.starts_with("W/")) one.remove_prefix(2);
    if (one == etag) return true;
  }
  return false;
}

}  // namespace

std::span<const PageFile> page_files() {
  static const std::vector<PageFile> kFiles = [] {
    constexpr std::string_view kHtml = "text/html; charset=utf-8";
    constexpr std::string_view kStyle = "text/css; charset=utf-8";
    constexpr std::string_view kScript = "text/javascript; charset=utf-8";
    std::vector<PageFile> out = {{kIndex, kHtml, {}, {}},
                                 {"page.css", kStyle, {}, {}},
                                 {"page.js", kScript, {}, {}},
                                 {"registry.js", kScript, {}, {}},
                                 {"table.js", kScript, {}, {}}};
    for (PageFile& file : out) {
      file.body = embedded::page(file.name);
      SLIME_CHECK(!file.body.empty());
      file.etag = etag_of(file.body);
    }
    return out;
  }();
  return kFiles;
}

bool prefers_html(std::string_view accept) {
  const int html = quality(accept, "text/html").value_or(0);
  return html > 0 && html >= quality(accept, "text/plain").value_or(0);
}

ApiReply redirect_to_page() {
  ApiReply out{.status = 302, .body = "the page is at /ui\n"};
  out.content_type = "text/plain; charset=utf-8";
  out.headers = {{"Location", "/ui"}, {"Cache-Control", "no-cache"}, {"Vary", "Accept"}};
  return out;
}

ApiReply page_reply(const ApiRequest& request, const std::vector<std::string>& path) {
  // Redirects "/ui/" to "/ui": the page refers to its files by relative paths, which work at one
  // address only.
  if (path.size() == 2 && path[1].empty()) return redirect_to_page();
  const std::string_view name = path.size() == 1 ? kIndex : std::string_view(path[1]);
  const std::span<const PageFile> files = page_files();
  const auto file =
      std::find_if(files.begin(), files.end(), [&](const PageFile& f) { return f.name == name; });
  if (file == files.end() || (path.size() == 2 && name == kIndex)) return reply_no_route();
  ApiReply out;
  out.content_type = file->content_type;
  out.headers = {{"Content-Security-Policy", std::string(kPolicy)},
                 {"X-Content-Type-Options", "nosniff"},
                 {"Referrer-Policy", "no-referrer"},
                 {"Cache-Control", "no-cache"},
                 {"ETag", file->etag}};
  if (knows(request.if_none_match, file->etag)) {
    out.status = 304;
  } else {
    out.body = file->body;
  }
  return out;
}

}  // namespace slime::ctrl
