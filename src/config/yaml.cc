#include "config/yaml.h"

#include <cstdio>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

namespace kvr::config {
namespace {

// Builds nodes from the parser's events. yaml-cpp's own tree hides duplicate keys and follows
// aliases, cyclic ones included; the events do neither.
class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(std::string_view name) : name_(name) {}

  Node root;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  // The mark of a missing value is that of whatever follows it, so the place is the key's or the
  // list's.
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    Node& node = Add(mark, Node::Kind::kNull);
    if (open_.empty()) return;
    const Node& parent = *open_.back().node;
    node.where = parent.kind == Node::Kind::kMap ? parent.fields.back().where : parent.where;
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw YAML::ParserException(mark, "aliases are not read; write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    if (TakeKey(mark, value)) return;
    const bool quoted = tag == "!";
    const bool null = !quoted && (value.empty() || value == "~" || value == "null");
    Node& node = Add(mark, null ? Node::Kind::kNull : Node::Kind::kScalar);
    if (!null) node.text = value;
    node.quoted = quoted;
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    Open(mark, Node::Kind::kList);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    Open(mark, Node::Kind::kMap);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  // A list or map whose end was not seen. Only the last of `open_` grows, so the pointers to those
  // around it stay valid.
  struct Level {
    Node* node;
    bool key_next;
  };

  std::string Where(const YAML::Mark& mark) const {
    return fmt::format("{}:{}", name_, mark.line + 1);
  }

  bool AtKey() const { return !open_.empty() && open_.back().key_next; }

  // True when the scalar is the key of a map.
  bool TakeKey(const YAML::Mark& mark, const std::string& key) {
    if (!AtKey()) return false;
    Node& map = *open_.back().node;
    if (const Node* first = map.Find(key)) {
      throw YAML::ParserException(
          mark, fmt::format("duplicate key `{}`, first at {}; keep one", key, first->where));
    }
    map.fields.push_back({.key = key, .where = Where(mark), .value = {}});
    map.fields.back().value.where = Where(mark);
    map.fields.back().value.path = map.path.empty() ? key : fmt::format("{}.{}", map.path, key);
    open_.back().key_next = false;
    return true;
  }

  Node& Add(const YAML::Mark& mark, Node::Kind kind) {
    if (AtKey()) throw YAML::ParserException(mark, "a key must be a plain text");
    Node* node = &root;
    if (!open_.empty()) {
      Node& parent = *open_.back().node;
      if (parent.kind == Node::Kind::kList) {
        parent.items.emplace_back();
        node = &parent.items.back();
        node->path = fmt::format("{}[{}]", parent.path, parent.items.size() - 1);
      } else {
        node = &parent.fields.back().value;
        open_.back().key_next = true;
      }
    }
    node->kind = kind;
    node->where = Where(mark);
    return *node;
  }

  void Open(const YAML::Mark& mark, Node::Kind kind) {
    Node& node = Add(mark, kind);
    open_.push_back({&node, kind == Node::Kind::kMap});
  }

  std::string_view name_;
  std::vector<Level> open_;
};

// What to look at, where the library's words alone do not help.
std::string_view HintOf(const YAML::Exception& error, std::string_view text) {
  for (int line = 0; line < error.mark.line && text.find('\n') != text.npos; ++line)
    text.remove_prefix(text.find('\n') + 1);
  text = text.substr(0, text.find('\n'));
  const std::string_view indent = text.substr(0, text.find_first_not_of(" \t"));
  if (indent.find('\t') != indent.npos) return "; the line begins with a tab: indent with spaces";
  static constexpr std::string_view kOfIndent[] = {"illegal map value", "end of map not found",
                                                   "end of sequence not found",
                                                   "illegal block entry"};
  for (const std::string_view message : kOfIndent) {
    if (error.msg == message) {
      return "; is this line, or one before, indented as its neighbours are, with a space behind "
             "each `:` and `-`?";
    }
  }
  return "";
}

}  // namespace

Result<Node> ParseYaml(std::string_view text, std::string_view name) {
  if (text.size() > kYamlBytesMax) {
    return Fail(ErrorCode::kTooLarge,
                fmt::format("{}: longer than {} MiB", name, kYamlBytesMax >> 20));
  }
  Builder builder(name);
  try {
    // A comment at the end makes yaml-cpp notice a quote that is never closed.
    std::istringstream stream{std::string(text) + "\n#"};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder) || builder.root.kind == Node::Kind::kNull) {
      builder.root.kind = Node::Kind::kMap;
      if (builder.root.where.empty()) builder.root.where = fmt::format("{}:1", name);
    }
    Builder second(name);
    if (parser.HandleNextDocument(second)) {
      return Fail(ErrorCode::kUnprocessable,
                  fmt::format("{}: more than one document; keep the first", second.root.where));
    }
  } catch (const YAML::Exception& error) {
    return Fail(ErrorCode::kUnprocessable, fmt::format("{}:{}: {}{}", name, error.mark.line + 1,
                                                       error.msg, HintOf(error, text)));
  }
  return std::move(builder.root);
}

Result<Node> ReadYamlFile(const std::string& path) {
  std::string text;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (file != nullptr) {
    text.resize(kYamlBytesMax + 1);  // one more than allowed, so that ParseYaml can tell
    text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  }
  if (file == nullptr || std::ferror(file.get()) != 0) {
    return Fail(ErrorCode::kIo,
                fmt::format("cannot read `{}`; check the path and its rights", path));
  }
  return ParseYaml(text, path);
}

}  // namespace kvr::config
