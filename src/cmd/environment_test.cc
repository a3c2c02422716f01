#include "cmd/environment.h"

#include <gtest/gtest.h>

namespace kvr::cmd {
namespace {

// What a service `kvr-gateway` of Kubernetes makes in every container, and what only looks so.
TEST(Environment, KnowsWhatKubernetesSets) {
  struct Row {
    const char* name;
    const char* value;
    bool is_of_kubernetes;
  };
  const Row rows[] = {
      {"KVR_GATEWAY_SERVICE_HOST", "10.0.0.11", true},
      {"KVR_GATEWAY_SERVICE_PORT", "8080", true},
      {"KVR_GATEWAY_SERVICE_PORT_HTTP", "8080", true},
      {"KVR_GATEWAY_PORT", "tcp://10.0.0.11:8080", true},
      {"KVR_SERVER_PORT", "tcp://10.0.0.11:8080", true},
      {"KVR_GATEWAY_PORT_8080_TCP", "tcp://10.0.0.11:8080", true},
      {"KVR_GATEWAY_PORT_8080_TCP_PROTO", "tcp", true},
      {"KVR_GATEWAY_PORT_8080_TCP_PORT", "8080", true},
      {"KVR_GATEWAY_PORT_8080_TCP_ADDR", "10.0.0.11", true},
      {"KVR_GATEWAY_PORT_53_UDP", "udp://10.0.0.11:53", true},
      {"KVR_SERVER_PORT", "8080", false},
      {"KVR_GATEWAY_PORT", "8080", false},
      {"KVR_GATEWAY_PORT_MAX", "8080", false},
      {"KVR_GATEWAY_PORT_8080", "8080", false},
      {"KVR_GATEWAY_PORT_8080_TCP_MAX", "8080", false},
      {"KVR_GATEWAY_IN_FLIGHT_MAX", "1", false},
      {"KVR_", "", false},
  };
  for (const Row& row : rows)
    EXPECT_EQ(IsOfKubernetes(row.name, row.value), row.is_of_kubernetes) << row.name;
}

}  // namespace
}  // namespace kvr::cmd
