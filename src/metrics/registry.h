// Every metric of one process, and its Prometheus text.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace kvr::metrics {

// Label names and values in the order they are shown. Values must come from a bounded set.
using Labels = std::vector<std::pair<std::string, std::string>>;

// Goes up only. Thread-safe, without a lock. Relaxed: a scrape may see counters of different
// moments.
class Counter {
 public:
  void Add(std::uint64_t by = 1) { value_.fetch_add(by, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// Goes up and down. Thread-safe, without a lock.
class Gauge {
 public:
  void Set(std::int64_t value) { value_.store(value, std::memory_order_relaxed); }
  void Add(std::int64_t by) { value_.fetch_add(by, std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

// Counts observations in fixed buckets (upper bounds, ascending; one for +Inf is added).
// Thread-safe, without a lock.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds);
  void Observe(double value);

  [[nodiscard]] std::span<const double> bounds() const { return bounds_; }
  [[nodiscard]] std::uint64_t bucket(std::size_t i) const {
    return buckets_[i].load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  [[nodiscard]] double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  const std::vector<double> bounds_;
  std::vector<std::atomic<std::uint64_t>> buckets_;
  std::atomic<std::uint64_t> count_{0};
  std::atomic<double> sum_{0};
};

// `start`, `start*factor`, ... `n` bounds.
std::vector<double> ExponentialBounds(double start, double factor, std::size_t n);

// Receives the samples of a collector during one scrape.
class SampleSink {
 public:
  virtual ~SampleSink() = default;
  // The help text and type of the first sample of a name hold for the family.
  virtual void AddGauge(std::string_view name, std::string_view help, const Labels& labels,
                        double value) = 0;
  virtual void AddCounter(std::string_view name, std::string_view help, const Labels& labels,
                          double value) = 0;
};

// Thread-safe.
//
// Register once, keep the reference, update without a lock. There is no global registry: main()
// owns one and passes it down, so each test has its own.
class Registry {
 public:
  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // `name` is kvr_<module>_<what>_<unit|total>. Asking again with the same labels returns the same
  // object; with another type it is our bug and aborts. References live as long as the registry.
  Counter& AddCounter(std::string_view name, std::string_view help, Labels labels = {})
      KVR_EXCLUDES(mutex_);
  Gauge& AddGauge(std::string_view name, std::string_view help, Labels labels = {})
      KVR_EXCLUDES(mutex_);
  Histogram& AddHistogram(std::string_view name, std::string_view help,
                          std::span<const double> bounds, Labels labels = {}) KVR_EXCLUDES(mutex_);

  // Called at each scrape for series whose owners come and go (workers, ranks): a series lives
  // exactly as long as its owner reports it. `collect` is called without the registry's lock and by
  // one thread at a time, and must not destroy its own handle. Destroying the returned handle
  // unregisters it and waits until a running call of it has returned.
  class Collector {
   public:
    Collector() = default;
    Collector(Registry& registry, std::uint64_t id) : registry_(&registry), id_(id) {}
    Collector(Collector&& other) noexcept
        : registry_(std::exchange(other.registry_, nullptr)), id_(other.id_) {}
    Collector& operator=(Collector&& other) noexcept;
    ~Collector();

   private:
    Registry* registry_ = nullptr;
    std::uint64_t id_ = 0;
  };
  [[nodiscard]] Collector AddCollector(std::function<void(SampleSink&)> collect)
      KVR_EXCLUDES(mutex_);

  // Appends all families in name order, so that equal states give equal bytes.
  void WriteText(std::string& out) const KVR_EXCLUDES(mutex_);

 private:
  struct Family;
  struct Series;
  struct Source;

  Series& FindOrAdd(std::string_view name, std::string_view help, int type, Labels labels)
      KVR_REQUIRES(mutex_);
  void RemoveCollector(std::uint64_t id) KVR_EXCLUDES(mutex_);

  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<Family>, std::less<>> families_ KVR_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::shared_ptr<Source>> collectors_ KVR_GUARDED_BY(mutex_);
  std::uint64_t next_collector_ KVR_GUARDED_BY(mutex_) = 1;
};

// The content type of WriteText's output.
inline constexpr std::string_view kTextContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace kvr::metrics
