// The coroutine type of everything that waits for the network.
#pragma once

#include <boost/asio/awaitable.hpp>

namespace kvr::net {

// A coroutine that runs on one I/O thread of an IoRuntime and stays there. Start it with
// IoRuntime::Spawn or await it from another task.
//
// Cancelling ends the pending await: operations of this module then return kCancelled, kClientGone
// or false. The next `co_await` of a cancelled task throws boost::system::system_error, which
// unwinds it, so a task cannot go on waiting by mistake; whoever started the task swallows that
// exception. What has to happen on every way out therefore belongs into destructors, which do not
// wait.
template <typename T>
using Task = boost::asio::awaitable<T>;

}  // namespace kvr::net
