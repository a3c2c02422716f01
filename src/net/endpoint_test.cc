#include <string>

#include <gtest/gtest.h>

#include "net/event_socket.h"

namespace kvr::net {
namespace {

struct Row {
  const char* name;
  std::string endpoint;
  bool connecting;
  std::string wrong;  // empty: accepted
};

class Endpoint : public testing::TestWithParam<Row> {};

TEST_P(Endpoint, IsCheckedWithTheExactText) {
  const Row& row = GetParam();
  const auto checked = CheckEndpoint(row.endpoint, row.connecting);
  if (row.wrong.empty()) {
    EXPECT_TRUE(checked) << checked.error().message;
    return;
  }
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(checked.error().message, "invalid ZMQ endpoint `" + row.endpoint + "`: " + row.wrong);
}

INSTANTIATE_TEST_SUITE_P(
    Rows, Endpoint,
    testing::Values(
        Row{"Tcp", "tcp://10.0.0.5:5557", true, ""}, Row{"Name", "tcp://engine-0.pods:1", true, ""},
        Row{"Ipv6", "tcp://[::1]:5557", true, ""}, Row{"Ipc", "ipc:///run/kv", true, ""},
        Row{"Inproc", "inproc://a", true, ""}, Row{"ListenAny", "tcp://*:0", false, ""},
        Row{"ListenFree", "tcp://127.0.0.1:*", false, ""},
        Row{"Row29", "http://x:1", true, "unsupported scheme `http`"},
        Row{"NoScheme", "10.0.0.5:5557", true, "missing scheme; write tcp://HOST:PORT"},
        Row{"EmptyScheme", "://x", true, "missing scheme; write tcp://HOST:PORT"},
        Row{"Empty", "", true, "missing scheme; write tcp://HOST:PORT"},
        Row{"NoAddress", "tcp://", true, "missing address"},
        Row{"Row30NoPort", "tcp://host", true, "missing TCP port"},
        Row{"Row30NoHost", "tcp://:1", true, "missing TCP host"},
        Row{"Row30PortTooLarge", "tcp://h:99999", true,
            "invalid TCP port: number too large to fit in target type"},
        Row{"PortNoNumber", "tcp://h:a", true, "invalid TCP port: invalid digit found in string"},
        Row{"PortTrailing", "tcp://h:1 ", true, "invalid TCP port: invalid digit found in string"},
        Row{"PortSigned", "tcp://h:-1", true, "invalid TCP port: invalid digit found in string"},
        Row{"PortEmpty", "tcp://h:", true,
            "invalid TCP port: cannot parse integer from empty string"},
        Row{"NotClosed", "tcp://[::1:5557", true, "missing closing `]`"},
        Row{"Ipv6NoPort", "tcp://[::1]", true, "missing TCP port"},
        Row{"Ipv6NoHost", "tcp://[]:1", true, "missing TCP host"},
        Row{"Row31", "tcp://::1:5557", true,
            "an IPv6 host must stand in brackets, as in tcp://[::1]:5557"},
        Row{"Row33", "tcp://*:5557", true,
            "host `*` is for listeners; name the address to connect to"},
        Row{"ConnectPortZero", "tcp://h:0", true, "invalid TCP port: 0 cannot be connected to"},
        Row{"ConnectPortAny", "tcp://h:*", true, "invalid TCP port: invalid digit found in string"},
        Row{"ConnectIpcAny", "ipc://*", true,
            "address `*` is for listeners; name the address to connect to"}),
    [](const auto& row) { return row.param.name; });

TEST(EndpointLimits, NulAndLengthAreRefused) {
  EXPECT_FALSE(CheckEndpoint(std::string("ipc:///a\0b", 10), true));
  EXPECT_FALSE(CheckEndpoint("ipc:///" + std::string(5'000, 'x'), true));
}

}  // namespace
}  // namespace kvr::net
