#include "rpc/channel/inbox.h"

#include <algorithm>
#include <utility>

#include "base/str.h"

namespace slime::rpc {

bool Inbox::awaited(std::uint64_t tag) const {
  const auto found = tags_.find(tag);
  return found != tags_.end() && found->second.receivers.size() > found->second.messages.size();
}

Status Inbox::admit(std::uint64_t tag, std::uint64_t bytes) const {
  if (awaited(tag)) return {};
  if (messages_ >= bounds_.messages || (messages_ > 0 && bytes_ + bytes > bounds_.bytes)) {
    return Status(Code::kResourceExhausted, str("the inbox is full: ", messages_, " messages with ", bytes_,
                                                " bytes that nobody has received"));
  }
  return {};
}

void Inbox::count(const Message& message, bool added) {
  if (added) {
    ++messages_;
    bytes_ += message.bytes;
  } else {
    --messages_;
    bytes_ -= message.bytes;
  }
}

Inbox::Place Inbox::add(std::uint64_t tag, std::uint64_t bytes) {
  std::list<Message>& messages = tags_[tag].messages;
  const Place message = messages.emplace(messages.end());
  message->tag = tag;
  message->number = ++arrived_;
  message->bytes = bytes;
  count(*message, true);
  return message;
}

void Inbox::complete(Place message, Payload&& payload) {
  message->payload = std::move(payload);
  message->complete = true;
  match(message->tag);
}

void Inbox::drop(Place message) {
  const std::uint64_t tag = message->tag;
  count(*message, false);
  tags_[tag].messages.erase(message);
  match(tag);
}

Inbox::Place Inbox::insert(std::uint64_t tag, std::uint64_t number) {
  std::list<Message>& messages = tags_[tag].messages;
  const auto behind = std::find_if(messages.begin(), messages.end(),
                                   [&](const Message& message) { return message.number > number; });
  return messages.emplace(behind);
}

void Inbox::put_back(std::uint64_t tag, std::uint64_t number, Payload&& payload) {
  const Place message = insert(tag, number);
  message->tag = tag;
  message->number = number;
  message->bytes = payload.bytes().size();
  count(*message, true);
  complete(message, std::move(payload));
}

void Inbox::put_back(Message&& lent) {
  const Place message = insert(lent.tag, lent.number);
  *message = std::move(lent);
  count(*message, true);
  match(message->tag);
}

void Inbox::add_lent(std::uint64_t tag, std::uint64_t bytes, std::unique_ptr<Lent> lent) {
  add(tag, bytes)->lent = std::move(lent);
  match(tag);
}

std::unique_ptr<Inbox::Lent> Inbox::take_lent(std::uint64_t id) {
  for (auto& [tag, state] : tags_) {
    const auto message = std::find_if(state.messages.begin(), state.messages.end(), [&](const Message& each) {
      return each.lent != nullptr && each.lent->id == id;
    });
    if (message == state.messages.end()) continue;
    std::unique_ptr<Lent> out = std::move(message->lent);
    drop(message);  // may forget the tag
    return out;
  }
  return nullptr;
}

std::vector<std::unique_ptr<Inbox::Lent>> Inbox::take_all_lent() {
  std::vector<std::uint64_t> ids;
  for (const auto& [tag, state] : tags_) {
    for (const Message& message : state.messages) {
      if (message.lent != nullptr) ids.push_back(message.lent->id);
    }
  }
  std::vector<std::unique_ptr<Lent>> out;
  out.reserve(ids.size());
  for (const std::uint64_t id : ids) out.push_back(take_lent(id));
  return out;
}

bool Inbox::would_wait(std::uint64_t tag) const {
  const auto found = tags_.find(tag);
  return found == tags_.end() || found->second.messages.size() <= found->second.receivers.size();
}

void Inbox::add_receive(std::uint64_t tag, Handle receive) {
  tags_[tag].receivers.push_back(receive);
  match(tag);
}

void Inbox::remove_receive(std::uint64_t tag, Handle receive) {
  const auto found = tags_.find(tag);
  if (found != tags_.end()) std::erase(found->second.receivers, receive);
  forget_if_empty(tag);
}

Inbox::Matched Inbox::take_first(Tag& tag) {
  Matched out{std::move(tag.messages.front()), tag.receivers.front()};
  tag.messages.pop_front();
  tag.receivers.pop_front();
  count(out.message, false);
  return out;
}

void Inbox::match(std::uint64_t tag) {
  const auto found = tags_.find(tag);
  if (found == tags_.end() || !found->second.ready()) return forget_if_empty(tag);
  completions_.add(Completions::Handler(Task([this, tag] { deliver(tag); })));
}

// Gives messages to receives only when the receives' handlers are called. Until then a receive may
// be given up, and the next receive must get the message instead.
void Inbox::deliver(std::uint64_t tag) {
  for (;;) {
    const auto found = tags_.find(tag);
    if (found == tags_.end() || !found->second.ready()) return;
    Matched matched = take_first(found->second);
    if (matched.message.lent != nullptr) {
      forget_if_empty(tag);
      reader_.read(matched.receive, std::move(matched.message));
      continue;
    }
    DeliveryHandler handler = receives_.take_receive(matched.receive);
    forget_if_empty(tag);
    handler(Delivery(source_, tag, matched.message.number, std::move(matched.message.payload)));
    receives_.collect_untaken();  // takes the message back if the handler did not take it
  }
}

void Inbox::finish_receives() {
  for (auto& [tag, state] : tags_) {
    while (state.ready() && state.messages.front().complete) {
      Matched matched = take_first(state);
      Completions::Outcome outcome;
      outcome.payload = std::move(matched.message.payload);
      outcome.tag = tag;
      outcome.number = matched.message.number;
      completions_.add(receives_.take_receive(matched.receive), std::move(outcome));
    }
  }
}

void Inbox::drop_incomplete() {
  std::vector<std::uint64_t> tags;
  for (auto& [tag, state] : tags_) {
    for (const Message& message : state.messages) {
      if (!message.complete) count(message, false);
    }
    std::erase_if(state.messages, [](const Message& message) { return !message.complete; });
    tags.push_back(tag);
  }
  for (const std::uint64_t tag : tags) forget_if_empty(tag);
}

void Inbox::forget_if_empty(std::uint64_t tag) {
  const auto found = tags_.find(tag);
  if (found != tags_.end() && found->second.messages.empty() && found->second.receivers.empty())
    tags_.erase(found);
}

}  // namespace slime::rpc
