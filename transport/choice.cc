#include "transport/choice.h"

#include <algorithm>

#include "base/str.h"
#include "transport/limits.h"

namespace slime::transport {
namespace {

// Returns OK if both sides can use `offer`, else the reason why not. `holding`: the provider of the
// same name on this side; null if this side does not know the provider.
Status check(std::string_view peer_name, const Offer& offer, std::string_view self_name,
             const Holding* holding) {
  if (holding == nullptr)
    return Status(Code::kUnimplemented, str("'", self_name, "' has no ", offer.provider));
  if (!holding->available.ok())
    return Status(holding->available.code(),
                  str("'", self_name, "' has no ", offer.provider, ": ",
                      std::string_view(holding->available.text()).substr(0, limits::kChoiceCauseBytes)));
  const auto check_hints = holding->traits->check_hints;
  // Accepts the offer if a side gave no hint: a problem then shows when the provider is set up.
  if (check_hints == nullptr || offer.hint.empty() || holding->hint.empty()) return {};
  return check_hints(holding->hint, self_name, offer.hint, peer_name);
}

std::string joined(const std::string& list, std::string_view more) {
  return list.empty() ? std::string(more) : more.empty() ? list : str(list, "; ", more);
}

template <class List>
std::string names_of(const List& list) {
  std::string out;
  for (const auto& one : list) out.append(out.empty() ? "" : ", ").append(one.provider);
  return out.empty() ? "nothing" : out;
}

// Cuts `text` to kChoiceReasonBytes: offers, which the peer sends, can make it long.
std::string cut(std::string text) {
  if (text.size() > limits::kChoiceReasonBytes) text.resize(limits::kChoiceReasonBytes);
  return text;
}

}  // namespace

Result<Choice> choose(std::string_view peer_name, std::span<const Offer> offers, std::string_view self_name,
                      std::span<const Holding> holdings) {
  std::string passed;
  Code code = Code::kUnimplemented;
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const Offer& offer = offers[i];
    const auto holding = std::find_if(holdings.begin(), holdings.end(),
                                      [&](const Holding& one) { return one.provider == offer.provider; });
    const bool have = holding != holdings.end();
    const Status fits = check(peer_name, offer, self_name, have ? &*holding : nullptr);
    if (fits.ok()) {
      const bool alone = offers.size() == 1;
      const std::string why =
          alone ? str("the only one that '", peer_name, "' offers") : std::string(holding->traits->fits);
      std::string reason = joined(passed, why);
      if (reason.empty()) reason = str("the first that '", peer_name, "' offers");
      return Choice{i, static_cast<std::size_t>(holding - holdings.begin()), cut(std::move(reason))};
    }
    if (have) code = fits.code();
    passed = joined(passed, fits.text());
  }
  return Status(
      code, str("no provider that both can use: '", peer_name, "', which connects, offers ", names_of(offers),
                ", '", self_name, "' has ", names_of(holdings), ": ", cut(std::move(passed))));
}

std::optional<std::size_t> likely_choice(std::span<const ProviderTraits* const> offered, bool same_machine) {
  for (std::size_t i = 0; i < offered.size(); ++i) {
    if (offered.size() == 1) return i;
    if (offered[i]->same_machine_only && !same_machine) continue;
    if (offered[i]->slow_to_prepare) return std::nullopt;
    return i;
  }
  return std::nullopt;
}

}  // namespace slime::transport
