// Configuration as an operator writes it. Byte 0 chooses: a YAML file, a variable of the
// environment, or the words behind --worker; the rest is the text. Errors say where; what is
// accepted is in range.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "cmd/worker_config.h"
#include "config/node.h"
#include "config/option_table.h"
#include "config/yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using kvr::config::Node;

void CheckRefusal(const kvr::Error& error, std::string_view where) {
  KVR_CHECK(error.code == kvr::ErrorCode::kUnprocessable ||
            error.code == kvr::ErrorCode::kInvalidArgument);
  KVR_CHECK(error.message.starts_with(where));
  KVR_CHECK(error.message.size() > where.size() + 1);
}

void CheckNode(const Node& node) {
  KVR_CHECK(node.where.starts_with("file:"));
  KVR_CHECK(node.kind == Node::Kind::kScalar || node.text.empty());
  KVR_CHECK(node.kind == Node::Kind::kList || node.items.empty());
  KVR_CHECK(node.kind == Node::Kind::kMap || node.fields.empty());
  for (const Node& item : node.items) {
    KVR_CHECK(item.path.starts_with(node.path));
    CheckNode(item);
  }
  for (const auto& field : node.fields) {
    KVR_CHECK(node.Find(field.key) == &field.value);  // unique
    KVR_CHECK(field.value.path.ends_with(field.key));
    CheckNode(field.value);
  }
}

void CheckWorker(const kvr::cmd::WorkerConfig& worker) {
  const auto& spec = worker.spec;
  KVR_CHECK(spec.block_size >= 1);
  KVR_CHECK(!spec.dp_ranks.empty() && spec.dp_ranks.size() <= 4096);
  KVR_CHECK(std::is_sorted(spec.dp_ranks.begin(), spec.dp_ranks.end()));
  KVR_CHECK(!spec.url.empty());
}

enum class Colour { kRed, kGreen };

struct Table {
  std::uint16_t port = 8080;
  double scale = 1;
  kvr::Millis wait{5};
  bool on = false;
  std::string name = "n";
  std::vector<std::string> names;
  Colour colour = Colour::kRed;
  kvr::config::OptionTable options;

  Table() {
    options.Bind("server", "port", &port, "", std::uint16_t{1}, std::uint16_t{65'000});
    options.Bind("server", "wait", &wait, "", kvr::Millis{1}, kvr::Millis{1000});
    options.Bind("", "scale", &scale, "", 0.5, 2.0);
    options.Bind("", "on", &on, "");
    options.Bind("log.x", "name", &name, "");
    options.Bind("log.x", "names", &names, "");
    options.Bind<Colour>("log", "colour", &colour, "",
                         {{"red", Colour::kRed}, {"green", Colour::kGreen}});
    options.AddSubtree("workers", "", "");
  }

  void Check() const {
    KVR_CHECK(port >= 1 && port <= 65'000);
    KVR_CHECK(wait >= kvr::Millis{1} && wait <= kvr::Millis{1000});
    KVR_CHECK(scale >= 0.5 && scale <= 2.0);
    KVR_CHECK(colour == Colour::kRed || colour == Colour::kGreen);
  }
};

void File(std::string_view text) {
  const auto root = kvr::config::ParseYaml(text, "file");
  if (!root) {
    CheckRefusal(root.error(), "file:");
  } else {
    CheckNode(*root);
  }
  Table table;
  const auto loaded = table.options.LoadYaml(text, "file");
  table.Check();
  if (!loaded) return CheckRefusal(loaded.error(), "file:");
  KVR_CHECK(root.has_value());
  // JSON is YAML, so the effective configuration is a file that says the same.
  const std::string effective = table.options.EffectiveJson();
  Table again;
  KVR_CHECK(again.options.LoadYaml(effective, "file").has_value());
  KVR_CHECK(again.port == table.port && again.wait == table.wait && again.scale == table.scale);
  KVR_CHECK(again.on == table.on && again.colour == table.colour);
  const auto workers = kvr::cmd::ReadWorkers(table.options.Subtree("workers"));
  if (!workers) return CheckRefusal(workers.error(), "file:");
  for (const auto& worker : *workers)
    CheckWorker(worker);
}

void Variable(std::string_view text) {
  for (const char* name : {"KVR_SERVER_PORT", "KVR_SERVER_WAIT", "KVR_SCALE", "KVR_ON",
                           "KVR_LOG_X_NAMES", "KVR_LOG_COLOUR"}) {
    Table table;
    const auto loaded = table.options.LoadEnvironment({{name, std::string(text)}});
    table.Check();
    if (!loaded) CheckRefusal(loaded.error(), name);
  }
}

void Worker(std::string_view text) {
  const auto worker = kvr::cmd::ReadWorkerFlag(text);
  if (!worker) return CheckRefusal(worker.error(), "--worker");
  CheckWorker(*worker);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      File(text);
      break;
    case 1:
      Variable(text);
      break;
    default:
      Worker(text);
  }
  return 0;
}
