// The coroutine type of everything that waits for the network.
#pragma once

#include <boost/asio/awaitable.hpp>

namespace kvr::net {

// A coroutine that runs on one I/O thread of an IoRuntime and stays there. Start it with
// IoRuntime::Spawn or await it from another task. Destroying or cancelling it unwinds it at its
// next suspension.
template <typename T>
using Task = boost::asio::awaitable<T>;

}  // namespace kvr::net
