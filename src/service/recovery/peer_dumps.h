// Fetches the dump of another router.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "net/http_client.h"
#include "net/io_runtime.h"
#include "net/task.h"
#include "service/recovery/dump_reader.h"
#include "service/recovery/recovered_taker.h"
#include "service/recovery/stream_start.h"

namespace kvr::service {

// The answer header of /dump that names the process, so that one who asks itself sees it.
inline constexpr std::string_view kInstanceHeader = "x-kvroute-instance";
// A name that no other process has.
std::string MakeInstanceName();

// Asks peers for their dump, in the binary form, else as lines or as one JSON object, which is all
// that the reference has. One coroutine at a time.
class PeerDumps {
 public:
  struct Options {
    std::vector<std::string> urls;  // base URLs
    std::string self;               // the instance name of this process
    Millis connect_timeout{2'000};
    Millis idle_timeout{10'000};  // longest silence of a peer
    // Then the rest of a dump is not taken, though it comes; a silence ends by itself.
    Millis dump_max{600'000};
    DumpReader::Options reader;

    [[nodiscard]] Result<void> Validate() const;
  };

  // All must outlive the object.
  PeerDumps(net::IoRuntime& runtime, StreamStart& streams, RecoveryCounts& counts,
            const Clock& clock, const Options& options);

  // In order until one has something. kRecovered; else kEmpty when any answered or there is nobody
  // left worth asking, kFailed when none did.
  net::Task<DumpOutcome> AskAll();

 private:
  // None when it was cancelled, which is no failure of the peer.
  net::Task<std::optional<DumpOutcome>> Ask(const std::string& peer);
  net::Task<Result<void>> Read(const std::string& peer, RecoveredTaker& taker, bool& own);

  StreamStart& streams_;
  RecoveryCounts& counts_;
  const Clock& clock_;
  const Options options_;
  net::HttpClient client_;
};

}  // namespace kvr::service
