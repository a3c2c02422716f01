// The other indexers that this one knows of.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"

namespace kvr::service {

// Base URLs, in the order they came. Thread-safe.
class PeerList {
 public:
  static constexpr std::size_t kPeersMax = 1'024;

  // Adding a listed URL changes nothing. kInvalidArgument when it is no http URL, kOverloaded.
  Result<void> Add(const std::string& url) KVR_EXCLUDES(mutex_);
  // False when it is not listed.
  bool Remove(const std::string& url) KVR_EXCLUDES(mutex_);

  [[nodiscard]] std::vector<std::string> urls() const KVR_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::vector<std::string> urls_ KVR_GUARDED_BY(mutex_);
};

}  // namespace kvr::service
