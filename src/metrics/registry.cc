#include "metrics/registry.h"

#include <algorithm>
#include <limits>
#include <sstream>

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include "base/check.h"

namespace kvr::metrics {
namespace {

using FamilyMap = std::map<std::string, prometheus::MetricFamily, std::less<>>;

prometheus::ClientMetric WithLabels(const Labels& labels) {
  prometheus::ClientMetric metric;
  metric.label.reserve(labels.size());
  for (const auto& [name, value] : labels)
    metric.label.push_back({name, value});
  return metric;
}

prometheus::MetricFamily& FamilyOf(FamilyMap& families, std::string_view name,
                                   std::string_view help, prometheus::MetricType type) {
  auto it = families.find(name);
  if (it == families.end()) {
    it = families.emplace(std::string(name), prometheus::MetricFamily{}).first;
    it->second.name = name;
    it->second.help = help;
    it->second.type = type;
  }
  return it->second;
}

class FamilySink final : public SampleSink {
 public:
  explicit FamilySink(FamilyMap& families) : families_(families) {}

  void AddGauge(std::string_view name, std::string_view help, const Labels& labels,
                double value) override {
    auto metric = WithLabels(labels);
    metric.gauge.value = value;
    FamilyOf(families_, name, help, prometheus::MetricType::Gauge)
        .metric.push_back(std::move(metric));
  }
  void AddCounter(std::string_view name, std::string_view help, const Labels& labels,
                  double value) override {
    auto metric = WithLabels(labels);
    metric.counter.value = value;
    FamilyOf(families_, name, help, prometheus::MetricType::Counter)
        .metric.push_back(std::move(metric));
  }

 private:
  FamilyMap& families_;
};

}  // namespace

Histogram::Histogram(std::span<const double> bounds)
    : bounds_(bounds.begin(), bounds.end()), buckets_(bounds.size() + 1) {
  KVR_CHECK(std::is_sorted(bounds.begin(), bounds.end()));
}

void Histogram::Observe(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  buckets_[static_cast<std::size_t>(at)].fetch_add(1, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::vector<double> ExponentialBounds(double start, double factor, std::size_t n) {
  std::vector<double> bounds;
  bounds.reserve(n);
  for (double bound = start; bounds.size() < n; bound *= factor)
    bounds.push_back(bound);
  return bounds;
}

struct Registry::Series {
  Labels labels;
  Counter counter;
  Gauge gauge;
  std::unique_ptr<Histogram> histogram;
};

struct Registry::Family {
  std::string help;
  prometheus::MetricType type;
  std::vector<std::unique_ptr<Series>> series;
};

// A collector, shared with the scrapes that call it. Its mutex is held during the call, which is
// how the end of its handle waits; nothing of ours is taken under it but what `collect` takes.
struct Registry::Source {
  Mutex mutex;
  std::function<void(SampleSink&)> collect KVR_GUARDED_BY(mutex);  // empty: its handle is gone
};

Registry::Registry() = default;
Registry::~Registry() = default;

Registry::Series& Registry::FindOrAdd(std::string_view name, std::string_view help, int type,
                                      Labels labels) {
  auto it = families_.find(name);
  if (it == families_.end()) {
    auto family = std::make_unique<Family>();
    family->help = help;
    family->type = static_cast<prometheus::MetricType>(type);
    it = families_.emplace(std::string(name), std::move(family)).first;
  }
  Family& family = *it->second;
  KVR_CHECK(family.type == static_cast<prometheus::MetricType>(type));
  for (const auto& series : family.series) {
    if (series->labels == labels) return *series;
  }
  family.series.push_back(std::make_unique<Series>());
  family.series.back()->labels = std::move(labels);
  return *family.series.back();
}

Counter& Registry::AddCounter(std::string_view name, std::string_view help, Labels labels) {
  const Lock lock(mutex_);
  return FindOrAdd(name, help, static_cast<int>(prometheus::MetricType::Counter), std::move(labels))
      .counter;
}

Gauge& Registry::AddGauge(std::string_view name, std::string_view help, Labels labels) {
  const Lock lock(mutex_);
  return FindOrAdd(name, help, static_cast<int>(prometheus::MetricType::Gauge), std::move(labels))
      .gauge;
}

Histogram& Registry::AddHistogram(std::string_view name, std::string_view help,
                                  std::span<const double> bounds, Labels labels) {
  const Lock lock(mutex_);
  Series& series =
      FindOrAdd(name, help, static_cast<int>(prometheus::MetricType::Histogram), std::move(labels));
  if (!series.histogram) series.histogram = std::make_unique<Histogram>(bounds);
  return *series.histogram;
}

Registry::Collector Registry::AddCollector(std::function<void(SampleSink&)> collect) {
  auto source = std::make_shared<Source>();
  {
    const Lock lock(source->mutex);
    source->collect = std::move(collect);
  }
  const Lock lock(mutex_);
  const std::uint64_t id = next_collector_++;
  collectors_.emplace(id, std::move(source));
  return {*this, id};
}

void Registry::RemoveCollector(std::uint64_t id) {
  std::shared_ptr<Source> source;
  {
    const Lock lock(mutex_);
    source = std::move(collectors_.extract(id).mapped());
  }
  const Lock lock(source->mutex);
  source->collect = nullptr;
}

Registry::Collector& Registry::Collector::operator=(Collector&& other) noexcept {
  if (this != &other) {
    if (registry_ != nullptr) registry_->RemoveCollector(id_);
    registry_ = std::exchange(other.registry_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

Registry::Collector::~Collector() {
  if (registry_ != nullptr) registry_->RemoveCollector(id_);
}

void Registry::WriteText(std::string& out) const {
  FamilyMap families;
  std::vector<std::shared_ptr<Source>> sources;
  {
    const Lock lock(mutex_);
    for (const auto& [name, family] : families_) {
      auto& target = FamilyOf(families, name, family->help, family->type);
      for (const auto& series : family->series) {
        auto metric = WithLabels(series->labels);
        metric.counter.value = static_cast<double>(series->counter.value());
        metric.gauge.value = static_cast<double>(series->gauge.value());
        if (series->histogram) {
          const Histogram& histogram = *series->histogram;
          std::uint64_t cumulative = 0;
          for (std::size_t i = 0; i <= histogram.bounds().size(); ++i) {
            cumulative += histogram.bucket(i);
            metric.histogram.bucket.push_back(
                {cumulative, i < histogram.bounds().size()
                                 ? histogram.bounds()[i]
                                 : std::numeric_limits<double>::infinity()});
          }
          metric.histogram.sample_count = cumulative;
          metric.histogram.sample_sum = histogram.sum();
        }
        target.metric.push_back(std::move(metric));
      }
    }
    sources.reserve(collectors_.size());
    for (const auto& [id, source] : collectors_)
      sources.push_back(source);
  }
  FamilySink sink(families);
  for (const auto& source : sources) {
    const Lock lock(source->mutex);
    if (source->collect) source->collect(sink);
  }
  std::vector<prometheus::MetricFamily> ordered;
  ordered.reserve(families.size());
  for (auto& [name, family] : families)
    ordered.push_back(std::move(family));
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, ordered);
  out += text.str();
}

}  // namespace kvr::metrics
