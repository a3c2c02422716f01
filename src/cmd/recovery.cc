#include "cmd/recovery.h"

namespace kvr::cmd {

Recovery::Recovery(const Parts& parts, const RecoveryConfig& config) {
  if (config.start.wanted()) {
    warm_ = std::make_unique<service::WarmStart>(parts.streams, parts.registry, parts.clock,
                                                 parts.failed, config.start);
  }
  if (config.snapshot.path.empty()) return;
  service::SnapshotWriter::Parts written{parts.indexes, parts.catalog, parts.registry, parts.clock,
                                         [warm = warm_.get()] { return warm->settled(); }};
  writer_ = std::make_unique<service::SnapshotWriter>(written, config.snapshot);
}

void Recovery::Start() {
  if (warm_) warm_->Start();
  if (writer_) writer_->Start();
}

void Recovery::StopReading() {
  if (warm_) warm_->Stop();
}

void Recovery::StopWriting() {
  if (writer_) writer_->Stop();
}

}  // namespace kvr::cmd
