// Sockets of a network that exists in virtual time only, and loses, repeats, delays and reorders
// what it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "net/event_socket.h"
#include "simulation/agenda.h"

namespace kvr::simulation {

using Message = std::vector<std::vector<std::byte>>;

// Chances in a thousand. None: messages come whole, once, in order and soon.
struct Faults {
  // Of a live message on its way to one subscriber.
  std::uint64_t drop = 0;
  std::uint64_t duplicate = 0;
  std::uint64_t reorder = 0;  // those behind it overtake it
  std::uint64_t slow = 0;     // it and all behind it come up to two seconds late
  // Of an answer of a replay socket.
  std::uint64_t no_answer = 0;
  std::uint64_t cut_answer = 0;   // ends without its end
  std::uint64_t slow_answer = 0;  // other things happen meanwhile
  // Of a message in it.
  std::uint64_t hole_in_answer = 0;
};

class Publisher;

// One socket that connects. Shared with the network, which knows it as long as somebody holds it.
struct Link {
  std::string endpoint;
  bool subscription = true;
  std::function<void()> wake;  // something is there to read

  std::deque<Message> inbox;
  std::deque<net::LinkEvent> events;
  std::map<std::uint64_t, Message> under_way;  // of this connection, by the order of sending
  std::uint64_t sent = 0;
  Nanos last_due{0};
  Publisher* peer = nullptr;  // none: not connected
  std::uint64_t connection = 0;
  bool subscribed = false;  // a while after it was connected
  bool at_mark = false;     // left too much unread; takes nothing before it has read half of it
  bool whole = false;       // was sent all that its peer has ever told, in order and soon
  Nanos cut_until{0};

  [[nodiscard]] std::size_t unread() const { return inbox.size() + under_way.size(); }
};

class Network {
 public:
  // Both must outlive the network.
  Network(Agenda& agenda, Rng& rng) : agenda_(agenda), rng_(rng) {}
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  Faults faults;

  // Sockets whose arrivals call `wake`.
  [[nodiscard]] std::unique_ptr<net::EventPoller> MakePoller(std::function<void()> wake);

  // What listens at its endpoints from now on; at most one at each.
  void Listen(Publisher& publisher);
  // It is gone, with all that it had not sent.
  void Close(Publisher& publisher);
  // To all that are subscribed. False when one of them was just found to leave too much unread.
  bool Broadcast(Publisher& publisher, const Message& message);
  // A message that none of its subscribers is sent.
  void Withhold(const Publisher& publisher);
  // Whether somebody is subscribed, and nobody who is has missed anything since its first message.
  [[nodiscard]] bool ToldAll(const Publisher& publisher) const;
  // A message of an answer, or the like, in order behind the ones before.
  void Reply(const std::weak_ptr<Link>& to, Message message);

  // Breaks the connections of a subscriber to `endpoint`, chosen at random, for so long.
  void CutOne(const std::string& endpoint, Nanos span);
  // All may connect again at once.
  void EndCuts();

  [[nodiscard]] bool Chance(std::uint64_t in_thousand) { return rng_.Below(1'000) < in_thousand; }
  // Under 1 ms, mostly.
  [[nodiscard]] Nanos Delay();
  [[nodiscard]] Agenda& agenda() { return agenda_; }
  [[nodiscard]] Rng& rng() { return rng_; }

 private:
  friend class SimulatedPoller;
  friend class SimulatedSocket;

  std::shared_ptr<Link> MakeLink(const std::string& endpoint, bool subscription,
                                 std::function<void()> wake);
  void Connect(const std::weak_ptr<Link>& weak, Nanos pause);
  void Disconnect(Link& link);
  // `wanted` is empty, or what is wanted beside messages.
  void Request(const std::weak_ptr<Link>& from, std::uint64_t first, std::string wanted);
  // Plans the arrival. `behind` what was sent before, or as it happens.
  void Send(const std::shared_ptr<Link>& link, Message message, Nanos delay, bool behind);
  [[nodiscard]] Publisher* Find(const std::string& endpoint) const;

  Agenda& agenda_;
  Rng& rng_;
  std::map<std::string, Publisher*> listening_;
  std::vector<std::weak_ptr<Link>> links_;  // subscriptions
};

}  // namespace kvr::simulation
