#include "transport/choice.h"

#include <algorithm>
#include <array>

#include "base/str.h"
#include "transport/limits.h"
#include "transport/shm/parameters.h"
#include "transport/verbs/parameters.h"

namespace slime::transport {
namespace {

constexpr std::string_view kShm = "shm";
constexpr std::string_view kVerbs = "verbs";

// How two hints are compared, and what is said when they fit.
struct Comparison {
  std::string_view provider;
  Status (*check)(Bytes ours, std::string_view self_name, Bytes theirs, std::string_view peer_name);
  std::string_view fits;
};

// The providers that do not reach everybody.
constexpr std::array kComparisons{
    Comparison{kShm, &shm::check_hints, "same host and user"},
    Comparison{kVerbs, &verbs::check_hints, "both have an active RDMA port"},
};

const Comparison* comparison_for(std::string_view provider) {
  const auto at = std::find_if(kComparisons.begin(), kComparisons.end(),
                               [&](const Comparison& one) { return one.provider == provider; });
  return at == kComparisons.end() ? nullptr : &*at;
}

// OK, or why the two cannot have this offer.
Status check(std::string_view peer_name, const Offer& offer, std::string_view self_name,
             const Holding* holding) {
  if (holding == nullptr)
    return Status(Code::kUnimplemented, str("'", self_name, "' has no ", offer.provider));
  if (!holding->available.ok())
    return Status(holding->available.code(),
                  str("'", self_name, "' has no ", offer.provider, ": ",
                      std::string_view(holding->available.text()).substr(0, limits::kChoiceCauseBytes)));
  const Comparison* comparison = comparison_for(offer.provider);
  // A side that says nothing was told which provider to use: what is wrong shows when it is tried.
  if (comparison == nullptr || offer.hint.empty() || holding->hint.empty()) return {};
  return comparison->check(holding->hint, self_name, offer.hint, peer_name);
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

// A peer's list can make it long.
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
      const Comparison* comparison = comparison_for(offer.provider);
      const bool alone = offers.size() == 1;
      const std::string why = alone ? str("the only one that '", peer_name, "' offers")
                                    : std::string(comparison == nullptr ? "" : comparison->fits);
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

std::optional<std::size_t> likely_choice(std::span<const Offer> offers, bool same_machine) {
  for (std::size_t i = 0; i < offers.size(); ++i) {
    if (offers.size() == 1) return i;
    if (offers[i].provider == kShm && !same_machine) continue;
    // Queue pairs take a while to make, and most peers of a machine that has an adapter have one, too.
    if (offers[i].provider == kVerbs) return std::nullopt;
    return i;
  }
  return std::nullopt;
}

}  // namespace slime::transport
