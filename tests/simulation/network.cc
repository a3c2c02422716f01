#include "simulation/network.h"

#include <algorithm>
#include <utility>

#include "ingest/message.h"
#include "simulation/publisher.h"

namespace kvr::simulation {
namespace {

constexpr Nanos kReconnectFirst = Millis(100);
constexpr Nanos kReconnectMax = Millis(5'000);

}  // namespace

class SimulatedSocket final : public net::EventSocket {
 public:
  SimulatedSocket(Network& network, std::shared_ptr<Link> link)
      : network_(network), link_(std::move(link)) {}

  bool Receive(net::Frames& frames) override {
    frames.Clear();
    if (link_->inbox.empty()) return false;
    for (const auto& part : link_->inbox.front())
      frames.Add() = part;
    link_->inbox.pop_front();
    return true;
  }
  bool Send(std::span<const std::span<const std::byte>> parts) override {
    std::uint64_t first = 0;
    if (parts.size() < 2 || !parts[0].empty() || !ingest::ReadSequence(parts[1], first))
      return true;
    std::string wanted;
    if (parts.size() > 2) {
      wanted.assign(reinterpret_cast<const char*>(parts[2].data()), parts[2].size());
    }
    network_.Request(link_, first, std::move(wanted));
    return true;
  }
  bool NextLinkEvent(net::LinkEvent& event) override {
    if (link_->events.empty()) return false;
    event = link_->events.front();
    link_->events.pop_front();
    return true;
  }

 private:
  Network& network_;
  const std::shared_ptr<Link> link_;
};

class SimulatedPoller final : public net::EventPoller {
 public:
  SimulatedPoller(Network& network, std::function<void()> wake)
      : network_(network), wake_(std::move(wake)) {}

  Result<std::unique_ptr<net::EventSocket>> Subscribe(const std::string& endpoint,
                                                      const std::string&) override {
    return Make(endpoint, true);
  }
  Result<std::unique_ptr<net::EventSocket>> Dealer(const std::string& endpoint) override {
    return Make(endpoint, false);
  }
  void Wait(Nanos) override {}
  void Wake() override {}

 private:
  std::unique_ptr<net::EventSocket> Make(const std::string& endpoint, bool subscription) {
    return std::make_unique<SimulatedSocket>(network_,
                                             network_.MakeLink(endpoint, subscription, wake_));
  }

  Network& network_;
  const std::function<void()> wake_;
};

std::unique_ptr<net::EventPoller> Network::MakePoller(std::function<void()> wake) {
  return std::make_unique<SimulatedPoller>(*this, std::move(wake));
}

Nanos Network::Delay() {
  return std::chrono::microseconds(20 + rng_.Below(rng_.Below(8) == 0 ? 20'000 : 900));
}

Publisher* Network::Find(const std::string& endpoint) const {
  const auto found = listening_.find(endpoint);
  return found == listening_.end() ? nullptr : found->second;
}

void Network::Listen(Publisher& publisher) {
  listening_[publisher.endpoint()] = &publisher;
  if (!publisher.replay_endpoint().empty()) listening_[publisher.replay_endpoint()] = &publisher;
}

void Network::Close(Publisher& publisher) {
  listening_.erase(publisher.endpoint());
  listening_.erase(publisher.replay_endpoint());
  for (const auto& weak : links_) {
    const auto link = weak.lock();
    if (link && link->peer == &publisher) Disconnect(*link);
  }
}

std::shared_ptr<Link> Network::MakeLink(const std::string& endpoint, bool subscription,
                                        std::function<void()> wake) {
  auto link = std::make_shared<Link>();
  link->endpoint = endpoint;
  link->subscription = subscription;
  link->wake = std::move(wake);
  if (subscription) {
    std::erase_if(links_, [](const auto& weak) { return weak.expired(); });
    links_.push_back(link);
    Connect(link, kReconnectFirst);
  }
  return link;
}

void Network::Connect(const std::weak_ptr<Link>& weak, Nanos pause) {
  const auto link = weak.lock();
  if (!link || link->peer != nullptr) return;
  Publisher* const found = agenda_.now() < link->cut_until ? nullptr : Find(link->endpoint);
  if (found == nullptr) {
    agenda_.After(pause,
                  [this, weak, pause] { Connect(weak, std::min(2 * pause, kReconnectMax)); });
    return;
  }
  link->peer = found;
  // What is left of an earlier connection cannot be told from what comes.
  link->whole = link->inbox.empty();
  link->events.push_back(net::LinkEvent::kConnected);
  link->wake();
  // What is published before the subscription has arrived goes nowhere.
  agenda_.After(Delay(), [weak, connection = link->connection] {
    const auto connected = weak.lock();
    if (!connected || connected->connection != connection) return;
    connected->subscribed = true;
    connected->whole = connected->whole && connected->peer->next_sequence() == 0;
  });
}

void Network::Disconnect(Link& link) {
  // What was under way has arrived up to some message.
  std::uint64_t arrived = rng_.Below(link.under_way.size() + 1);
  for (auto& [order, message] : link.under_way) {
    if (arrived-- == 0) break;
    link.inbox.push_back(std::move(message));
  }
  link.under_way.clear();
  ++link.connection;
  link.peer = nullptr;
  link.subscribed = false;
  link.at_mark = false;
  link.whole = false;
  link.last_due = Nanos{0};
  link.events.push_back(net::LinkEvent::kDisconnected);
  link.wake();
  const auto self = std::find_if(links_.begin(), links_.end(),
                                 [&link](const auto& weak) { return weak.lock().get() == &link; });
  agenda_.After(Delay(), [this, weak = *self] { Connect(weak, kReconnectFirst); });
}

void Network::CutOne(const std::string& endpoint, Nanos span) {
  std::vector<std::shared_ptr<Link>> connected;
  for (const auto& weak : links_) {
    auto link = weak.lock();
    if (link && link->peer != nullptr && link->endpoint == endpoint) connected.push_back(link);
  }
  if (connected.empty()) return;
  Link& link = *connected[rng_.Below(connected.size())];
  link.cut_until = agenda_.now() + span;
  Disconnect(link);
}

void Network::EndCuts() {
  for (const auto& weak : links_) {
    if (const auto link = weak.lock()) link->cut_until = Nanos{0};
  }
}

bool Network::Broadcast(Publisher& publisher, const Message& message) {
  bool room = true;
  const std::size_t unread_max = publisher.unread_max();
  for (const auto& weak : links_) {
    const auto link = weak.lock();
    if (!link || link->peer != &publisher || !link->subscribed) continue;
    const bool whole = std::exchange(link->whole, false);
    if (link->at_mark && link->unread() > unread_max / 2) continue;
    link->at_mark = link->unread() >= unread_max;
    if (link->at_mark) {
      room = false;
      continue;
    }
    if (Chance(faults.drop)) continue;
    Message copy = message;
    const bool twice = Chance(faults.duplicate);
    if (twice) Send(link, copy, Delay() + Delay(), false);
    if (Chance(faults.reorder)) {
      Send(link, std::move(copy), Delay() + Millis(rng_.Below(300)), false);
    } else {
      const Nanos late = Chance(faults.slow) ? Millis(rng_.Below(2'000)) : Millis(0);
      Send(link, std::move(copy), Delay() + late, true);
      // A copy may overtake those before it, and a reader give up what comes late.
      link->whole = whole && !twice && late == Nanos{0};
    }
  }
  return room;
}

void Network::Withhold(const Publisher& publisher) {
  for (const auto& weak : links_) {
    const auto link = weak.lock();
    if (link && link->peer == &publisher) link->whole = false;
  }
}

bool Network::ToldAll(const Publisher& publisher) const {
  bool somebody = false;
  for (const auto& weak : links_) {
    const auto link = weak.lock();
    if (!link || link->peer != &publisher) continue;
    if (!link->whole) return false;
    somebody = true;
  }
  return somebody;
}

void Network::Send(const std::shared_ptr<Link>& link, Message message, Nanos delay, bool behind) {
  Nanos due = agenda_.now() + delay;
  if (behind) {
    due = std::max(due, link->last_due);
    link->last_due = due;
  }
  const std::uint64_t order = link->sent++;
  link->under_way.emplace(order, std::move(message));
  agenda_.After(due - agenda_.now(), [weak = std::weak_ptr<Link>(link), order] {
    const auto to = weak.lock();
    if (!to) return;
    auto arrived = to->under_way.extract(order);
    if (arrived.empty()) return;  // lost with its connection
    // A reader that has not heard of the connection cannot tell whose the messages are.
    if (!to->events.empty()) to->whole = false;
    to->inbox.push_back(std::move(arrived.mapped()));
    to->wake();
  });
}

void Network::Request(const std::weak_ptr<Link>& from, std::uint64_t first, std::string wanted) {
  agenda_.After(Delay(), [this, from, first, wanted = std::move(wanted)] {
    const auto link = from.lock();
    if (!link || Chance(faults.no_answer)) return;
    if (Publisher* const found = Find(link->endpoint)) return found->Answer(from, first, wanted);
    // It waits in the socket until somebody listens.
    agenda_.After(kReconnectFirst, [this, from, first, wanted] { Request(from, first, wanted); });
  });
}

void Network::Reply(const std::weak_ptr<Link>& to, Message message) {
  if (const auto link = to.lock()) Send(link, std::move(message), Delay(), true);
}

}  // namespace kvr::simulation
