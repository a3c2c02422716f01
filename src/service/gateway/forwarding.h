// Which headers cross the gateway.
#pragma once

#include "net/http.h"

namespace kvr::service {

// The client's headers without those of its connection, and without those that the gateway decides
// (Host, Content-Length, X-data-parallel-rank).
net::HttpHeaders HeadersForEngine(const net::HttpHeaders& from_client);

// The engine's headers without those of its connection, and without Content-Length.
net::HttpHeaders HeadersForClient(const net::HttpHeaders& from_engine);

}  // namespace kvr::service
