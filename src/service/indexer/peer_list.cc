#include "service/indexer/peer_list.h"

#include <algorithm>

#include <fmt/format.h>

#include "net/http.h"

namespace kvr::service {

Result<void> PeerList::Add(const std::string& url) {
  KVR_TRY_VOID(net::ParseUrl(url));
  const Lock lock(mutex_);
  if (std::ranges::find(urls_, url) != urls_.end()) return {};
  if (urls_.size() >= kPeersMax) {
    return Fail(ErrorCode::kOverloaded,
                fmt::format("{} peers are listed, which is the limit", kPeersMax));
  }
  urls_.push_back(url);
  return {};
}

bool PeerList::Remove(const std::string& url) {
  const Lock lock(mutex_);
  return std::erase(urls_, url) > 0;
}

std::vector<std::string> PeerList::urls() const {
  const Lock lock(mutex_);
  return urls_;
}

}  // namespace kvr::service
