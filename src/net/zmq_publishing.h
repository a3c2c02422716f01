// Steps of sending that the sockets of a publisher share.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <zmq.hpp>

#include "base/clock.h"

namespace kvr::net {

// `linger`: how long unsent messages outlive the socket. Throws zmq::error_t.
inline void BindSocket(zmq::socket_t& socket, const std::string& endpoint, Millis linger) {
  socket.set(zmq::sockopt::linger, static_cast<int>(linger.count()));
  if (endpoint.starts_with("tcp://[")) socket.set(zmq::sockopt::ipv6, 1);
  socket.bind(endpoint);
}

// Neither waits. False, with the reason in zmq_errno(), when the part was not taken.
inline bool SendPart(zmq::socket_t& socket, std::span<const std::byte> part, bool more) {
  const int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
  return zmq_send(socket.handle(), part.data(), part.size(), flags) >= 0;
}
// The transport shares the bytes.
inline bool SendShared(zmq::socket_t& socket, zmq::message_t& part, bool more) {
  zmq::message_t copy;
  copy.copy(part);
  const int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
  return zmq_msg_send(copy.handle(), socket.handle(), flags) >= 0;
}

}  // namespace kvr::net
